# SPDX-License-Identifier: Apache-2.0
"""Hints for words that are nearly right."""

import difflib
from collections.abc import Iterable


def nearest(word: str, valid: Iterable[str]) -> str:
    """A hint: the nearest valid word if one is near, and the whole list."""
    words = [str(item) for item in valid]
    close = difflib.get_close_matches(word.strip().lower(), words, n=1, cutoff=0.5)
    listed = " ".join(words)
    return f"did you mean {close[0]!r}? valid: {listed}" if close else f"valid: {listed}"
