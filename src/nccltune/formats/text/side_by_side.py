# SPDX-License-Identifier: Apache-2.0
"""Read two tables that were pasted beside each other as two tables, one below the other."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_HEADER = re.compile(r"\bsize\s+count\s.*?(?P<right>#?\s*\bsize\s+count\s)", re.IGNORECASE)
_STARTS = (
    _HEADER,
    re.compile(r"\(B\)\s+\(elements\)\s.*?(?P<right>#?\s*\(B\)\s+\(elements\)\s)"),
    re.compile(r"out-of-place\s.*?(?P<right>#?\s*out-of-place\s)"),
)
_BARS = re.compile(r"\s*\|{1,2}\s*")
_LEAST_CELLS = 5
_NAMES = ("left", "right")


class _Beside(NamedTuple):
    """A line of two tables, its number and its halves."""

    at: int
    line: str
    halves: tuple[str, str]


def are_beside(text: str) -> bool:
    """Return whether a line of a text names the columns of two tables."""
    return _HEADER.search(text) is not None


def below_each_other(
    blocks: Iterable[tuple[int, list[str]]],
) -> Iterator[tuple[int, list[str]]]:
    """Yield blocks in which each right table is below its left one, both below a title.

    The titles are the words above the tables, separated like them, else `left` and `right`.
    """
    group: list[_Beside] = []
    for number, block in blocks:
        for at, line in enumerate(block, number):
            halves = _halves(line)
            if halves is not None:
                group.append(_Beside(at, line, halves))
                continue
            yield from _apart(group)
            group = []
            yield at, [line]
    yield from _apart(group)


def _apart(group: list[_Beside]) -> Iterator[tuple[int, list[str]]]:
    if not any(_HEADER.search(each.line) for each in group):
        yield from ((each.at, [each.line]) for each in group)
        return
    names = _NAMES
    if all(half[:1].isalpha() for half in group[0].halves):
        names, group = group[0].halves, group[1:]
    for side, name in enumerate(names):
        yield group[0].at, [f"## {name}"]
        yield from ((each.at, [each.halves[side]]) for each in group)


def _halves(line: str) -> tuple[str, str] | None:
    """Return both halves of a line; None if it is not of two tables."""
    parts = _BARS.split(line)
    if len(parts) == 2 and any(part.lstrip()[:1].isalnum() or "#" in part for part in parts):
        return parts[0], parts[1]
    for start in _STARTS:
        if (match := start.search(line)) is not None:
            return line[: match.start("right")], line[match.start("right") :]
    cells = line.split()
    half = len(cells) // 2
    if len(cells) % 2 or half < _LEAST_CELLS or not (cells[0] + cells[half]).isdecimal():
        return None
    return " ".join(cells[:half]), " ".join(cells[half:])
