# SPDX-License-Identifier: Apache-2.0
"""Lists of words, and hints for misspelt ones."""

import difflib
from collections.abc import Iterable

_SHORT_LIST = 20
"""The most words that a hint lists in full. Of a longer list the hint names only a few."""
_NEAR = 8


def nearest(word: str, valid: Iterable[str]) -> str:
    """Return a hint: the nearest valid word, and the valid words, of many the first or similar."""
    words = [str(item) for item in valid]
    plain = word.strip().lower()
    close = difflib.get_close_matches(plain, words, n=1, cutoff=0.5)
    if len(words) <= _SHORT_LIST:
        every = " ".join(words)
        return f"did you mean {close[0]!r}? valid: {every}" if close else f"valid: {every}"
    near = [item for item in words if plain and plain in item.lower()]
    near += [item for item in difflib.get_close_matches(plain, words, n=_NEAR) if item not in near]
    near = near[:_NEAR]
    if close:
        others = [item for item in near if item != close[0]]
        also = f" near it: {' '.join(others)};" if others else ""
        return f"did you mean {close[0]!r}?{also} {len(words)} are valid"
    if near:
        return f"did you mean one of {' '.join(near)}? {len(words)} are valid"
    return f"valid: {' '.join(words[:_NEAR])} and {len(words) - _NEAR} more"


def listed(text: str) -> tuple[str, ...]:
    """Return the words of a text that lists them, separated by blanks."""
    return tuple(text.split())
