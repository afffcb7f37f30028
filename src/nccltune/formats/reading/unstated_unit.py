# SPDX-License-Identifier: Apache-2.0
"""Find the unit of the times in a table that states none, by what a collective can take.

Times are flat over small sizes and proportional to large ones; bandwidths grow first and are flat
then. A small collective takes microseconds: the same numbers in another unit cannot be.
"""

import re
from collections.abc import Iterator, Sequence
from math import log

from nccltune.formats.reading.quantities import size_of
from nccltune.formats.reading.table_header import (
    MOST_CHARACTERS,
    NO_RUN,
    column_of,
    header_of,
    may_name_size,
)
from nccltune.formats.text.cells import CellError
from nccltune.formats.text.delimited import cells_of, separators_of

_FEWEST = 4
_MOST_LINES = 4096
_BENDS = 0.25
"""What the slope of one curve gains from its smaller to its larger half, in logarithms."""
_FLAT = 0.1
"""What no slope of times loses. Those of bandwidths do."""
_SMALL = 1 << 20
_LEAST_US = 1.0
_MOST_US = 1000.0
"""What a collective of at most _SMALL bytes takes on any network that NCCL is used on."""
_LARGE = 1 << 16
"""The least largest size: others may be of models or batches."""
_FASTEST = 4e6
"""Bytes a microsecond that no collective moves."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_RULE = re.compile(r"[|:\-\s=+]*")
_MAY_BE_RATE = re.compile(
    r"(?:bw|bandwidth|throughput|[GMK]i?[Bb](?:/s|ps)|flops|tok)", re.IGNORECASE
)
_OF_TIME = re.compile(
    r"\b(?:latenc(?:y|ies)|tim(?:es?|ings?)|microsec\w*|faster|slower|speed-?ups?|t(?:ook|akes?))\b",
    re.IGNORECASE,
)
_OF_OTHERS = re.compile(
    r"(?<![\d ])(?<!\d )[KMGT]i?B\b|%|\b(?:memory|footprint|watts?|power|energy|percent|load"
    r"|utili[sz]ation|occupancy|packets?|chunks?|messages|calls|tokens?|counts?)\b",
    re.IGNORECASE,
)
_UNITS = (("(us)", 1.0), ("(ms)", 1e3), ("(s)", 1e6))

_Curve = list[tuple[int, float]]


def unstated_unit(lines: Sequence[str]) -> str:
    """Return `(us)`, `(ms)` or `(s)` for the tables in a text without a unit; empty if unsure."""
    found = set[str]()
    text = "\n".join(lines[:_MOST_LINES])
    if _OF_TIME.search(text) is None or _OF_OTHERS.search(text):
        return ""
    for curves in _tables(lines[:_MOST_LINES]):
        bends = [bend for bend in map(_bend, curves) if bend is not None]
        if min(bends, default=-1.0) < -_FLAT or max(bends, default=0.0) < _BENDS:
            return ""
        units = [unit for unit, factor in _UNITS if _possible(curves, factor)]
        if len(units) != 1:
            return ""
        found.add(units[0])
    return found.pop() if len(found) == 1 else ""


def _tables(lines: Sequence[str]) -> Iterator[list[_Curve]]:
    """Yield for each table without units its columns of numbers: sizes in bytes and values."""
    at = 0
    while at < len(lines):
        line, at = lines[at], at + 1
        if len(line) > MOST_CHARACTERS or not may_name_size(line) or header_of(line) is not None:
            continue
        separator = separators_of(line)[0]
        columns = [column_of(name) for name in cells_of(line, separator)]
        sizes = [place for place, column in enumerate(columns) if column.role == "size"]
        plain = [
            place
            for place, column in enumerate(columns)
            if not (column.role or NO_RUN.search(column.name))
        ]
        rated = any(_MAY_BE_RATE.search(columns[place].name) for place in plain)
        if len(sizes) != 1 or len(plain) < 2 or rated:
            continue
        curves: dict[int, _Curve] = {place: [] for place in plain}
        while at < len(lines):
            cells = [] if _RULE.fullmatch(lines[at]) else cells_of(lines[at], separator)
            if cells and not (
                len(cells) == len(columns)
                and _take(cells, sizes[0], columns[sizes[0]].unit, curves)
            ):
                break
            at += 1
        whole = [curve for curve in curves.values() if len(curve) >= _FEWEST]
        if len(whole) > 1:
            yield whole


def _take(cells: list[str], size_at: int, unit: str, curves: dict[int, _Curve]) -> bool:
    try:
        size = size_of(cells[size_at], unit).of(binary=True)
    except CellError:
        return False
    for place, curve in curves.items():
        if size and _NUMBER.fullmatch(cells[place]):
            curve.append((size, float(cells[place])))
    return True


def _bend(curve: _Curve) -> float | None:
    """Return by how much the slope of the larger half exceeds that of the smaller one."""
    curve = sorted((size, value) for size, value in curve if value > 0)
    half = len(curve) // 2
    if len(curve) < _FEWEST or curve[0][0] == curve[half][0] or curve[half][0] == curve[-1][0]:
        return None
    (small, low), (middle, value), (large, high) = curve[0], curve[half], curve[-1]
    return log(high / value) / log(large / middle) - log(value / low) / log(middle / small)


def _possible(curves: list[_Curve], factor: float) -> bool:
    points = [(size, value * factor) for curve in curves for size, value in curve if value > 0]
    small = [time for size, time in points if size <= _SMALL]
    fastest = max(size / time for size, time in points)
    known = bool(small) and max(points)[0] >= _LARGE and fastest < _FASTEST
    return known and _LEAST_US <= min(small) < _MOST_US
