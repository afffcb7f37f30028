# SPDX-License-Identifier: Apache-2.0
"""Read the columns of an nccl-tests table from its header lines, and rows by these columns.

Known layouts: nccl-tests 2.0 to 2.20 (see docs/reference/file-formats.md). No column is read by a
fixed position. The header determines the columns, and which group is out of place.
"""

import re
from collections.abc import Callable
from math import inf, isnan
from typing import Any, NamedTuple

DTYPE_BYTES = {
    "int8": 1, "uint8": 1, "char": 1, "f8e4m3": 1, "f8e5m2": 1,
    "fp8_e4m3": 1, "fp8_e5m2": 1,
    "half": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "int": 4, "float": 4,
    "int64": 8, "uint64": 8, "double": 8,
}  # fmt: skip
"""Bytes of an element, by type name: `char` and `int` in early builds of nccl-tests 2.0,
`fp8_e4m3` and `fp8_e5m2` in rccl-tests."""
REDOPS = {name: name for name in ("sum", "prod", "max", "min", "avg", "mulsum")} | {"none": None}
_DTYPES = {name: name for name in DTYPE_BYTES}
_ROOTS: dict[str, int | None] = {"-1": None} | {str(rank): rank for rank in range(1024)}
_WRONGS: dict[str, int | None] = {"0": 0, "N/A": None, "0e+00": 0}

_RAN = ("algo", "proto", "nchannels")
_ROUNDING = 0.006
"""Difference of a bandwidth from size and time, up to which it is surely rounding."""
_LEFT = frozenset({"size", "count", "type", "redop", "root"})
_TIMES = frozenset({"time", "cputime"})
_UNITS = {
    "size": "(B)",
    "count": "(elements)",
    "time": "(us)",
    "cputime": "(us)",
    "algbw": "(GB/s)",
}
PLACEMENTS = ("out-of-place", "in-place")
"""The groups of columns, in the order in which nccl-tests prints them."""
_PLACEMENT = re.compile(r"(?<![\w-])(out-of-place|in-place)(?![\w-])")
_WORD = re.compile(r"[a-z][a-z0-9_]{1,15}")
_INTEGER = re.compile(r"-?\d{1,18}")


_NOTHING = "(cut)"
"""Stands for a column that a shortened row lacks."""


class Timing(NamedTuple):
    """The timing of a row for one placement: out of place or in place.

    - `time_us`: microseconds; CPU time if the header has `cputime`.
    - `algbw`, `busbw`: GB/s.
    - `wrong`: number of wrong elements (None: not checked).
    - `delta`: the relative error of the worst element, which tables before 2.13 print instead of
      the number.
    """

    time_us: float
    algbw: float
    busbw: float
    wrong: int | None
    delta: float | None = None


class Row(NamedTuple):
    """A row.

    `timings` are in the order of the layout's groups. `at` is the time stamp of `-S`. `ran` are the
    algorithm, the protocol and the channels that rccl-tests names.
    """

    line: int
    size: int
    elements: int
    dtype: str
    redop: str | None
    root: int | None
    at: str | None
    timings: tuple[Timing, ...]
    ran: tuple[str, str, str] | None = None


FlatRow = tuple[Any, ...]
"""A row for the fast path: line, size, count, dtype, redop, root, at; then per group of columns the
time in microseconds, busbw in GB/s (None: unknown or rounded) and the number of wrong elements
(None: not checked)."""


class BadRowError(ValueError):
    """A line that looks like a row but is invalid; the message is the reason."""


class TableColumns:
    """The columns of a table. `in_place` has a value for each group of columns.

    `from_busbw` means that the rows have no time, and a busbw to compute it from. `ratio` limits
    busbw / algbw, if the rows have both and no time.
    """

    def __init__(self, labels: list[str], placements: list[str]) -> None:
        """Make the columns from the labels of the header and the group labels above it.

        Raises BadRowError if they do not describe a table.
        """
        self.labels = labels
        starts = [index for index, label in enumerate(labels) if label in _TIMES]
        if not starts or labels[:2] != ["size", "count"] or "type" not in labels:
            raise BadRowError("the header names no size, count, type or time column")
        # Every release prints the out-of-place columns first. Pasted tables often lack the line
        # with the group labels.
        cut = placements in ([], [PLACEMENTS[0]])
        self.placements_assumed = cut and len(starts) <= len(PLACEMENTS)
        if self.placements_assumed:
            placements = list(PLACEMENTS[: len(starts)])
        if len(placements) != len(starts) or len(set(placements)) != len(placements):
            raise BadRowError("no line above the header states which columns are in place")
        self.left = labels[: starts[0]]
        if set(self.left) - _LEFT or len(set(self.left)) != len(self.left):
            raise BadRowError(f"unknown column before the times: {' '.join(self.left)}")
        self.stamped = labels[-1] == "timestamp"
        end = len(labels) - 1 if self.stamped else len(labels)
        self.groups = [
            dict(zip(labels[first:last], range(first, last), strict=True))
            for first, last in zip(starts, [*starts[1:], end], strict=True)
        ]
        if any("algbw" not in group or "busbw" not in group for group in self.groups):
            raise BadRowError("the header has a time column without its bandwidths")
        self.in_place = [placement == "in-place" for placement in placements]
        self.cpu_time = labels[starts[0]] == "cputime"
        self.names_choice = set(_RAN) <= set(labels)
        # A time stamp has two words: date and time.
        self.tokens = len(labels) + self.stamped
        self.edges: list[int] = []
        self.from_busbw = False
        self.errors = "error" in labels
        self.ratio: tuple[float, float] | None = None

    def place(self, header: str) -> None:
        """Record where each column ends in `header`.

        The values of a column end at the same position as its label.
        """
        self.edges = [match.end() for match in re.finditer(r"\S+", header.replace("#", " ", 1))]
        # Only the first `#` was replaced, because `#` is also part of the label `#wrong`.

    def fast(self, keep: Callable[[FlatRow], None]) -> Callable[[str, int], bool] | None:
        """Return a fast reader of complete, ordinary rows; None for layouts that need `row`.

        The reader calls `keep` with a flat row and returns True. For any other line it returns
        False; then the caller must use `row`.
        """
        if self.cpu_time or len(self.groups) != 2 or self.names_choice:
            return None
        want, stamped = self.tokens, self.stamped
        left = {label: index for index, label in enumerate(self.left)}
        i_type, i_redop, i_root = left["type"], left.get("redop", -1), left.get("root", -1)
        first, second = self.groups
        a0, a1 = first["algbw"], second["algbw"]
        t0, b0, w0 = first["time"], first["busbw"], first.get("#wrong", first.get("error", -1))
        t1, b1, w1 = second["time"], second["busbw"], second.get("#wrong", second.get("error", -1))
        if w0 < 0 or w1 < 0:
            return None
        dtypes, redops = _DTYPES, REDOPS
        roots, wrongs = _ROOTS, _WRONGS

        def read(line: str, number: int) -> bool:
            token = line.split()
            if len(token) != want or "_" in line:  # Python accepts 1_0 as a number
                return False
            try:
                size = int(token[0])
                time0, time1 = float(token[t0]), float(token[t1])
                if size <= 0 or not (0.0 < time0 < 1e13 and 0.0 < time1 < 1e13):
                    return False
                rate0, rate1 = size / time0 * 1e-3, size / time1 * 1e-3
                if (
                    abs(rate0 - float(token[a0])) > _ROUNDING + _ROUNDING * rate0
                    or abs(rate1 - float(token[a1])) > _ROUNDING + _ROUNDING * rate1
                ):
                    return False
                keep(
                    (
                        number,
                        size,
                        int(token[1]),
                        dtypes[token[i_type]],
                        redops[token[i_redop]] if i_redop > 0 else None,
                        roots[token[i_root]] if i_root > 0 else None,
                        f"{token[-2]}T{token[-1]}" if stamped else None,
                        time0,
                        float(token[b0]),
                        wrongs[token[w0]],
                        time1,
                        float(token[b1]),
                        wrongs[token[w1]],
                    )
                )
            except (ValueError, KeyError):
                return False
            return True

        return read

    def row(self, line: str, number: int) -> Row:
        """Read a row with all checks. Raises BadRowError with the reason if it is invalid."""
        token = line.split()
        left, rest = self._split(token)
        at = None
        if self.stamped:
            at = f"{rest[-2]}T{rest[-1]}"
            if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", at):
                raise BadRowError(f"{at!r} is not a time stamp")
        size = _integer(left["size"], "size")
        count = _integer(left["count"], "count")
        if size < 0 or count < 0:
            raise BadRowError("the size is negative")
        dtype = left["type"]
        if not _WORD.fullmatch(dtype):
            raise BadRowError(f"{dtype!r} is not a type")
        redop = left.get("redop")
        root = _integer(left["root"], "root") if "root" in left else -1
        offset = len(self.left)
        timings = tuple(
            self._timing({label: rest[index - offset] for label, index in group.items()})
            for group in self.groups
            if rest[min(group.values()) - offset] != _NOTHING
        )
        plain = None if redop == "none" else redop
        root_rank = None if root < 0 else root
        ran = None
        if self.names_choice:
            algorithm, protocol, channels = (
                rest[self.labels.index(label) - offset] for label in _RAN
            )
            ran = (algorithm, protocol, channels)
        return Row(number, size, count, dtype, plain, root_rank, at, timings, ran)

    def shortened(self, line: str, number: int) -> Row:
        """Read a row that ends after or inside of its in-place columns, as cut pastes do.

        Raises BadRowError if it is no such row.
        """
        if len(self.groups) != 2 or self.stamped or self.names_choice or self.in_place[0]:
            raise BadRowError("the layout has no second group of columns at its end")
        words = line.split()
        if len(words) < min(self.groups[1].values()) - 1:
            raise BadRowError("the row has no time")
        whole = words[: min(self.groups[1].values()) - self._blank_redop(words)]
        return self.row(" ".join([*whole, *(_NOTHING for _ in self.groups[1])]), number)

    def _split(self, token: list[str]) -> tuple[dict[str, str], list[str]]:
        """Return the columns before the times by name, and the words from the first time on.

        The reduction may be blank (all-to-all before 2.13, hypercube). Raises BadRowError if the
        number of words is wrong or the reduction is unknown.
        """
        if len(token) == self.tokens:
            names = self.left
        elif len(token) == self.tokens - 1 and self._blank_redop(token):
            names = [label for label in self.left if label != "redop"]
        else:
            raise BadRowError(f"{len(token)} words where the header names {self.tokens}")
        left = dict(zip(names, token, strict=False))
        if "redop" in left and left["redop"] not in REDOPS:
            raise BadRowError(f"{left['redop']!r} is not a reduction")
        return left, token[len(names) :]

    def _blank_redop(self, token: list[str]) -> bool:
        """Return whether the missing word of a row may be the reduction.

        This is so if the word at the position of the reduction is no name of a reduction.
        """
        return "redop" in self.left and token[self.left.index("redop")] not in REDOPS

    def _timing(self, value: dict[str, str]) -> Timing:
        time_us = _number(value["cputime" if "cputime" in value else "time"], "time")
        algbw, busbw = _number(value["algbw"], "algbw"), _number(value["busbw"], "busbw")
        if not 0 < time_us < inf:
            raise BadRowError(f"a time of {time_us:g} us cannot be")
        if algbw < 0 or busbw < 0:
            raise BadRowError("a bandwidth is negative")
        text = value.get("#wrong", value.get("error", "N/A"))
        if text == "N/A":
            return Timing(time_us, algbw, busbw, None)
        number = _number(text, "#wrong")
        if number < 0 or number == inf:
            raise BadRowError(f"{text} wrong elements cannot be")
        if "error" in value and number:
            return Timing(time_us, algbw, busbw, None, number)
        if number != int(number):
            # The next column's time without a blank before it.
            raise BadRowError(f"{text} wrong elements cannot be")
        return Timing(time_us, algbw, busbw, int(number))

    def cuts(self, line: str) -> list[int]:
        """Return the positions in `line` where a column may end, to split off other output."""
        return [edge for edge in self.edges if edge <= len(line)]


def placements_of(line: str) -> list[str]:
    """Return the group labels of a line above the header (`out-of-place`, `in-place`), in order."""
    return _PLACEMENT.findall(line)


_UNITS_LINE = re.compile(r"\s*\(B\)\s+\(elements\)(?:\s+\((?:us|GB/s)\)){6}\s*$")
_CELL = r"(?:\s+[\d.e+-]+)"
_LONE_ROW = re.compile(
    rf"\s*\d{{1,20}}\s+\d{{1,20}}\s+(?:{'|'.join(DTYPE_BYTES)})(?P<middle>(?:\s+[\w-]+){{0,2}})"
    rf"(?:{_CELL}{{3}}\s+(?:[\d.e+-]+|N/A)){{2}}\s*$"
)


def is_units_line(line: str) -> bool:
    """Return whether `line`, without its `#`, is the units line of a table with two placements."""
    return _UNITS_LINE.match(line) is not None


def labels_of_row(line: str) -> list[str] | None:
    """Return the column labels of a row that follows a units line without a line of labels.

    None if the row allows several layouts. The layouts are those of nccl-tests 2.0 to 2.11 (11 to
    13 words, `error`) and of 2.13 and later (13 words, `#wrong`).
    """
    match = _LONE_ROW.match(line[:4096])
    if match is None:
        return None
    middle = match["middle"].split()
    wrong = "#wrong"
    if len(middle) == 2 and middle[0] in REDOPS and _INTEGER.fullmatch(middle[1]):
        left = ["redop", "root"]
        # Before 2.13 the last column of each group is a relative difference, such as 1e-07.
        wrong = "error" if "e-" in line else wrong
    elif not middle:
        left, wrong = [], "error"
    elif len(middle) == 1:
        left, wrong = ["redop" if middle[0] in REDOPS else "root"], "error"
        if left == ["root"] and not _INTEGER.fullmatch(middle[0]):
            return None
    else:
        return None
    return ["size", "count", "type", *left, *["time", "algbw", "busbw", wrong] * 2]


def labels_of(line: str) -> list[str] | None:
    """Return the column labels of a header line without its `#`; None for another line."""
    words = line.split()
    return words if words[:2] == ["size", "count"] else None


def units_fault(layout: TableColumns, line: str) -> str | None:
    """Return the error in a units line; None if the line is correct.

    A column without a unit has no word in the line. So words are matched in the order of the
    columns that have a unit.
    """
    words = [word for word in line.split() if word.startswith("(")]
    expected = [
        _UNITS.get(label, "(GB/s)" if label == "busbw" else "")
        for label in layout.labels
        if label in _UNITS or label == "busbw"
    ]
    kept = iter(words)
    for unit in expected:
        if not any(word == unit for word in kept):
            return f"the units line has no {unit} where the header needs it"
    return None


def _integer(text: str, what: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise BadRowError(f"{what} {text!r} is not a whole number")
    return int(text)


def _number(text: str, what: str) -> float:
    try:
        value = float(text) if "_" not in text else None
    except ValueError:
        value = None
    if value is None or isnan(value):
        raise BadRowError(f"{what} {text!r} is not a number")
    return value
