# SPDX-License-Identifier: Apache-2.0
"""Join the lines of output that a terminal or a mail program wrapped.

The line of column names shows the wrapping: it is incomplete, and complete with the next line.
"""

import re
from typing import NamedTuple

from nccltune.formats.nccl_log.lines import find_log_line
from nccltune.formats.nccl_tests.columns import PLACEMENTS, BadRowError, TableColumns, labels_of

_LABELS = re.compile(r"size[ \t]+count[ \t]+type[ \t]")
_ROW = re.compile(r"\s*-?\d{1,20}\s+-?\d{1,20}\s+[a-z]\w{1,15}\s")
_START = re.compile(r"#(?!wrong)|\s*(?:$|```)|nccl-tests")
# Pieces of the two other lines of a header. They may end in blanks, which a copy lacks.
_HEADER = re.compile(r"#.*(?:out-of-place|size\s+count\s|\(B\)\s+\(elements\)).*")
_HEADER_END = re.compile(
    r"\s*(?:(?:\(us\)|\(GB/s\)|in-place|out-of-place|time|cputime|algbw|busbw|#wrong|error)\s*)+"
)
_HYPHEN = re.compile(r"[a-z]-$")
_MOST_PIECES = 8
_MOST_HEADER = 4096
_ROWS_TRIED = 64


class Wrapping(NamedTuple):
    """How lines were wrapped: at which width, at words or anywhere, and the words of a row."""

    width: int
    at_words: bool
    words: int


def wrapping_of(head: str) -> Wrapping | None:
    """Return how the lines of `head` were wrapped; None if they were not."""
    for match in _LABELS.finditer(head):
        start = head.rfind("\n", 0, match.start()) + 1
        first, *rest = head[start : start + _MOST_HEADER].split("\n")[: _MOST_PIECES + 1]
        first = first.rstrip("\r")
        if _words(first):
            return None
        width = max(map(len, head.split("\n")))
        joined = {True: first, False: first.ljust(width)}
        for piece in rest:
            for at_words, text in joined.items():
                joined[at_words] = f"{text}{' ' if at_words else ''}{piece}"
            found = [
                Wrapping(width, at_words, words)
                for at_words in (piece[:1] not in " \t", piece[:1] in " \t")
                if (words := _words(joined[at_words]))
            ]
            if found:
                below = head[start:].split("\n", _ROWS_TRIED)[:_ROWS_TRIED]
                return max(found, key=lambda each: _whole(below, each))
    return None


def _whole(lines: list[str], wrapping: Wrapping) -> int:
    """Return how many lines of units and rows are whole once they are joined."""
    whole = 0
    for line in unwrapped(lines, wrapping):
        words = line.split()
        units = words[:1] == ["#"] and words.count("(us)") * 2 == words.count("(GB/s)")
        whole += (
            units if "(B)" in words else bool(_ROW.match(line)) and len(words) == wrapping.words
        )
    return whole


def _words(line: str) -> int:
    """Return the number of words of a row below a complete line of column names, else 0."""
    labels = labels_of(line.partition("#")[2] if line.lstrip().startswith("#") else line)
    if labels is None:
        return 0
    try:
        columns = TableColumns(labels, list(PLACEMENTS))
    except BadRowError:
        return 0
    # A name that was cut in two is in one group only.
    return columns.tokens if len(set(map(tuple, columns.groups))) == 1 else 0


def unwrapped(lines: list[str], wrapping: Wrapping) -> list[str]:
    """Return the lines with wrapped lines joined.

    Each continuation becomes an empty line, so that lines keep their numbers.
    """
    result: list[str] = []
    at = 0
    while at < len(lines):
        line, end = lines[at], at + 1
        last = line
        while end < len(lines) and _continues(line, last, lines[end], wrapping):
            last = lines[end]
            blank = " " if wrapping.at_words and not _HYPHEN.search(line) else ""
            padded = line if wrapping.at_words else _padded(line, wrapping.width)
            line, end = f"{padded}{blank}{last}", end + 1
        result += [line, *[""] * (end - at - 1)]
        at = end
    return result


def _padded(line: str, width: int) -> str:
    """Return `line` with the blanks at the end of its last piece that a copy lacks."""
    return line + " " * (-len(line) % width)


def _continues(line: str, last: str, following: str, wrapping: Wrapping) -> bool:
    """Return whether `following` is the rest of `line`, whose last piece is `last`."""
    if _START.match(following) or _ROW.match(following) or find_log_line(following) is not None:
        return False
    if _ROW.match(line):
        return len(line.split()) < wrapping.words or (
            not wrapping.at_words and len(last) == wrapping.width
        )
    if _HEADER.fullmatch(line) and _HEADER_END.fullmatch(following):
        return True
    if wrapping.at_words:
        return len(last) + 1 + len(following.split(None, 1)[0]) > wrapping.width
    return len(last) == wrapping.width
