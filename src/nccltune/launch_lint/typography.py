# SPDX-License-Identifier: Apache-2.0
"""Find characters that editors and web pages insert: typographic dashes and quotes, blanks."""

import re
from collections.abc import Iterator

from nccltune.launch_lint.finding import LaunchFinding, error, note, warning
from nccltune.launch_lint.words import BLANK, PLACEHOLDER, Line, Word

_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_QUOTES = "\u201c\u201d\u2018\u2019\u201e"


_TOKEN = re.compile(r"([\"'])</?[a-z_|]+/?>\1")
"""A token of a model among the arguments of a script: `"<image>"`."""


def typographic(line: Line) -> tuple[LaunchFinding, ...]:
    """Return a finding for each word that is not what it seems."""
    return tuple(_findings(line))


def _findings(line: Line) -> Iterator[LaunchFinding]:
    if BLANK in line.words:
        at = line.words.index(BLANK)
        before = line.words[at - 1].raw if at else "the line"
        yield error(
            "line-continuation",
            f"a blank follows the backslash after {before}: the command ends there, and the"
            " next line is another command",
            "end the line with the backslash",
        )
    # A script in a word has texts of its own, such as `echo "[rank]"`.
    words = [word for word in line.words if not re.search(r"[\n;]", word.text)]
    script = next((n for n, word in enumerate(words) if word.text.endswith(".py")), len(words))
    words = [w for n, w in enumerate(words) if n < script or not _TOKEN.fullmatch(w.raw)]
    blanks = list(dict.fromkeys(b for w in words for b in PLACEHOLDER.findall(w.raw)))
    if blanks and all(blank.startswith("{{") for blank in blanks):
        said = f"a template fills in {', '.join(blanks)}, which is not known here"
        yield note("placeholder", said)
    elif blanks:
        what = "is a placeholder" if len(blanks) == 1 else "are placeholders"
        fix = f"put {'its value' if len(blanks) == 1 else 'their values'} there"
        yield warning("placeholder", f"{', '.join(blanks)} {what}", fix)
    for word in line.words:
        if word.text[:1] and word.text[0] in _DASHES:
            yield error(
                "dash",
                f"{word.raw} begins with the character U+{ord(word.text[0]):04X}, which is no"
                " hyphen: it is not read as an option",
                f"write {_plain(word).raw}",
            )
        elif any(quote in word.text for quote in _QUOTES):
            quote = next(char for char in word.text if char in _QUOTES)
            yield error(
                "quote",
                f"{word.raw} has the character U+{ord(quote):04X}, which is no quote for a shell",
                "write ' or \"",
            )


def plain(line: Line) -> Line:
    """Return the line as it is meant: with hyphens for dashes, and without misplaced blanks."""
    return Line(tuple(_plain(word) for word in line.words if word != BLANK), line.tail)


def _plain(word: Word) -> Word:
    if not word.text or word.text[0] not in _DASHES:
        return word
    # A word processor replaces two hyphens by one long dash. So a long name had two hyphens.
    rest = word.text.lstrip(_DASHES + "-")
    hyphens = "--" if len(rest.partition("=")[0]) > 2 else "-"
    return Word(hyphens + rest, hyphens + word.raw.lstrip(_DASHES + "-"))
