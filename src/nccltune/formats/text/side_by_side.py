# SPDX-License-Identifier: Apache-2.0
"""Read two tables that were pasted beside each other as two tables, one below the other."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

_HEADER = re.compile(r"\bsize\s+count\s", re.IGNORECASE)
_STARTS = (_HEADER, re.compile(r"\(B\)\s+\(elements\)\s"), re.compile(r"out-of-place\s"))
_BARS = re.compile(r"\|{1,2}")
_LEAST_CELLS = 5
_NAMES = ("left", "right")


class _Beside(NamedTuple):
    """A line of two tables, its number and its halves."""

    at: int
    line: str
    halves: tuple[str, str]


def are_beside(text: str) -> bool:
    """Return whether a line of a text names the columns of two tables."""
    return any(_right(_HEADER, line) is not None for line in text.split("\n"))


def below_each_other(blocks: Iterable[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
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
    if not are_beside("\n".join(each.line for each in group)):
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
        return parts[0].rstrip(), parts[1].lstrip()
    for labels in _STARTS:
        if (at := _right(labels, line)) is not None:
            return line[:at], line[at:]
    cells = line.split()
    half = len(cells) // 2
    if len(cells) % 2 or half < _LEAST_CELLS or not (cells[0] + cells[half]).isdecimal():
        return None
    return " ".join(cells[:half]), " ".join(cells[half:])


def _right(labels: re.Pattern[str], line: str) -> int | None:
    """Return where the right table starts in a line that has these labels twice; else None."""
    second = next(islice(labels.finditer(line), 1, None), None)
    return len(line[: second.start()].rstrip().removesuffix("#")) if second else None
