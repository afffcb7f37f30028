# SPDX-License-Identifier: Apache-2.0
"""Read a copy of an nccl-tests table: Markdown, CSV, TSV, or columns with other names.

Size, time and bandwidth of a row must agree, so that no column and no unit is taken for another.
"""

import re
from decimal import Decimal
from math import inf
from typing import Any, NamedTuple

from nccltune.formats.nccl_tests.checks import excess
from nccltune.formats.nccl_tests.columns import (
    DTYPE_BYTES,
    PLACEMENTS,
    REDOPS,
    BadRowError,
    FlatRow,
    TableColumns,
)
from nccltune.formats.reading.file_report import FileReport, FlagKind
from nccltune.formats.reading.quantities import (
    BINARY_PREFIXES,
    DECIMAL_PREFIXES,
    ROUNDED_SIZES,
    Number,
    PossibleBytes,
    bandwidth_of,
    rounded_sizes,
    size_of,
    time_of,
    whole_of,
)
from nccltune.formats.reading.table_header import (
    NAME_CHOICE,
    OTHER_RUN,
    RAW,
    DifferingColumns,
    Header,
    single_values,
    with_units,
)
from nccltune.formats.text.cells import AmbiguousCellError, CellError
from nccltune.formats.text.delimited import cells_of
from nccltune.formats.text.lines import visible

_ERROR = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?", re.ASCII)
_LABELS = ["size", "count", "type", "redop", "root"]
_GROUP = ["time", "algbw", "busbw", "#wrong"]
_DTYPES = {
    "float32": "float", "fp32": "float", "f32": "float", "fp16": "half", "float16": "half",
    "f16": "half", "bf16": "bfloat16", "fp64": "double", "float64": "double", "f64": "double",
    "fp8e4m3": "f8e4m3", "fp8e5m2": "f8e5m2",
}  # fmt: skip
_RATES = ("algbw", "busbw")
_SCALE = ("nodes", "ranks", "per_node")
_NONE = frozenset({"", "-", "none", "n/a", "na", "-1", "\u2013", "\u2014"})
_MOST_ROWS = 1 << 16
_TIME = re.compile(r"\b(?:time|latency)\b", re.IGNORECASE)
_THOUSANDS = re.compile(r"\d{1,3}(?:(?:,\d{3}){2,}|(?:,\d{3})+\.\d+)")
_CHECKS = 0.05
"""The least bandwidth in GB/s that is printed with enough digits to check a time."""
_ASSUMED = (
    "nothing above the table states which columns are out of place: the first ones are, as every"
    " release of nccl-tests prints them"
)


_ROUGH = 0.006
_COARSE = "times of too few digits are computed from algbw"
_WIDER = "rows have more cells than the header names: the first ones, which agree, are read"


class _Timing(NamedTuple):
    """The cells of one placement: its time, its bandwidths and the number of wrong elements."""

    time: Number
    algbw: Number | None
    busbw: Number | None
    wrong: float | None
    exact: bool

    @property
    def rounded(self) -> bool:
        """Return whether the bandwidth has digits enough for the time, and the time has not."""
        rate, time = self.algbw, self.time
        return rate is not None and rate.gives_time and time.half > max(_ROUGH * time.value, 0.5)


class _Row(NamedTuple):
    line: int
    text: str
    sizes: PossibleBytes
    elements: int
    dtype: str
    redop: str | None
    root: int | None
    timings: tuple[_Timing | None, ...]


class CopiedTable:
    """The rows of a copied table, which are kept until its end: they decide its units together."""

    def __init__(
        self, header: Header, placements: list[str], report: FileReport, line: int
    ) -> None:
        """Find the columns. Raises BadRowError if it is unknown which column is which."""
        self.header = header = _with_one_size(_with_time(header))
        self.report = report
        self._line = line
        self._columns = list(header.columns)
        self._scaled = {role: at for role in _SCALE for at in header.at(role)[:1]}
        self._left = {role: header.at(role) for role in _LABELS}
        if len(self._left["size"]) == len(self._left["count"]) > 1:
            raise BadRowError("tables stand side by side; give each alone: cut -d'|' -f1 FILE")
        for role, places in self._left.items():
            if len(places) > 1:
                raise BadRowError(f"two columns are the {role}: {self._named(places)}; keep one")
        if header.unread_choice and not header.at(OTHER_RUN):
            raise BadRowError(f"{header.unread_choice}: {NAME_CHOICE}")
        measured = next((role for role in ("time", *_RATES) if header.at(role)), None)
        if measured is None:
            raise BadRowError(_no_time(header))
        times = header.at(measured)
        self._rate = "" if measured == "time" else measured
        if self._rate:
            report.flag(FlagKind.NOTE, f"times are computed from {self._rate}", line)
        placed = self._placements(times, placements)
        self._groups = [
            {role: self._of_group(role, at, len(times), placed[at]) for role in _GROUP[1:]}
            | {"time": times[at]}
            for at in range(len(times))
        ]
        self.layout = TableColumns(_LABELS + _GROUP * len(times), placed)
        self.layout.errors = bool(header.at("error"))
        self.layout.from_busbw = self._rate == "busbw"
        self._named_as_printed = bool(self._left["count"] or self._left["type"])
        self._filled: set[str] = set()
        self._thousands = self._ended = False
        self._open: list[tuple[list[str], str, int]] = []
        self._rows: list[_Row] = []
        self._differing = DifferingColumns(header, RAW | {"channels"})
        self._mixed = ""
        self._scales: set[tuple[str, ...]] = set()

    @property
    def left(self) -> frozenset[str]:
        """Return the columns before the times that have values."""
        return frozenset(self._filled)

    @property
    def stated(self) -> tuple[int | None, int | None]:
        """Return the nodes and ranks in columns of those; None for what the rows do not state."""
        cells = dict(zip(self._scaled, min(self._scales, default=()), strict=False))
        nodes, ranks, each = (
            int(cell) if (cell := cells.get(role, "")).isdecimal() else None for role in _SCALE
        )
        if not each:
            return nodes, ranks
        if nodes is None and ranks and ranks % each == 0:
            nodes = ranks // each
        return nodes, ranks or (nodes * each if nodes else None)

    def _placements(self, times: list[int], above: list[str]) -> list[str]:
        named = [self._columns[at].placement for at in times]
        if len(times) == 1:
            return [named[0] or (above[0] if len(above) == 1 else PLACEMENTS[0])]
        if all(named) and len(set(named)) == len(named) == len(PLACEMENTS):
            return named
        repeated = any(len(self.header.at(role)) == len(times) for role in ("algbw", "busbw"))
        same = len({self._columns[at].name.lower() for at in times}) == 1
        if len(times) != len(PLACEMENTS) or any(named) or not (repeated or same):
            raise BadRowError(
                f"{len(times)} columns are times: {self._named(times)}; keep one, or name two of"
                " them 'out-of-place time (us)' and 'in-place time (us)'"
            )
        if len(above) == len(times):
            return above
        self.report.flag(FlagKind.NOTE, _ASSUMED, self._line)
        return list(PLACEMENTS)

    def _of_group(self, role: str, group: int, groups: int, placement: str) -> int | None:
        """Return the position of the column of a role in a group of columns; None without one."""
        places = self.header.at(role) or (self.header.at("error") if role == "#wrong" else [])
        named = [at for at in places if self._columns[at].placement == placement]
        if len(named) == 1:
            return named[0]
        if len(places) == groups and not any(self._columns[at].placement for at in places):
            return places[group]
        if not places or role == "#wrong" or all(self._columns[at].placement for at in places):
            return None
        raise BadRowError(
            f"{len(places)} columns are {role} and {groups} are times: {self._named(places)}; name"
            " them 'out-of-place' and 'in-place'"
        )

    def _named(self, places: list[int]) -> str:
        return ", ".join(f"column {at + 1} {self._columns[at].name!r}" for at in places)

    def feed(self, text: str, number: int) -> bool:
        """Read a line below the header; return whether it belongs to the table."""
        cells = cells_of(text, self.header.separator)
        size_at = self.header.at("size")[0]
        if not cells and self._rows and "|" in text and "-" in text:
            self._ended = True  # the rule below the names of another table
        if not cells or self._ended or len(self._rows) >= _MOST_ROWS:
            return False
        if len(cells) != len(self._columns):
            split = text.split()
            if self.header.separator == " " and len(split) == len(self._columns):
                cells = split
            elif len(cells) > len(self._columns) and self._checkable:
                # Size, time and bandwidth of each row must agree, so that none is in another place.
                self.report.flag(FlagKind.NOTE, _WIDER, number)
                cells = cells[: len(self._columns)]
            elif len(cells) > size_at and cells[size_at][:1].isdigit() and self._numbers(cells):
                few = f"{len(cells)} cells where the header names {len(self._columns)}"
                self.report.cannot_read(number, text, few)
                return True
            else:
                return False
        if (united := with_units(self._columns, cells)) is not None:
            self._columns = list(united)
            return True
        if not any(char.isdigit() for char in cells[size_at]):
            return self.header.separator == "|"
        try:
            measured = self._groups[0]["time"]
            if self.header.at(OTHER_RUN) and cells[measured or 0].lower() in _NONE:
                return True
            cells = single_values(self.header.columns, cells)
            self._add(cells, text, number)
        except AmbiguousCellError:
            self._open.append((cells, text, number))
        except CellError as error:
            self._refuse(error, text, number)
        return True

    def _add(self, cells: list[str], text: str, number: int) -> None:
        row = self._row(cells, text, number)
        self._rows.append(row)
        self._scales.add(tuple(cells[at] for at in self._scaled.values()))
        if len(self._scales) > 1:
            names = [self._columns[at].name for at in self._scaled.values()]
            self._mixed = self._mixed or " and ".join(names)
        if row.sizes.binary or row.sizes.decimal:
            key = row.sizes, row.dtype, row.redop, row.root
            self._mixed = self._mixed or self._differing.add(key, cells)

    def _refuse(self, error: CellError, text: str, number: int) -> None:
        hint = f" ({error.hint})" if error.hint else ""
        self.report.cannot_read(number, text, f"{error.message}{hint}")

    @property
    def _checkable(self) -> bool:
        """Return whether each time has an algbw, which no other size and time have."""
        return not self._rate and all(group["algbw"] is not None for group in self._groups)

    def _numbers(self, cells: list[str]) -> bool:
        return sum(cell[:1].isdigit() for cell in cells) >= min(3, len(self._columns))

    def _row(self, cells: list[str], text: str, number: int) -> _Row:
        def cell(role: str) -> str:
            places = self._left[role]
            value = cells[places[0]] if places else ""
            if value:
                self._filled.add(role)
            return value

        name = "size"
        try:
            sizes = size_of(cell("size"), self._columns[self._left["size"][0]].unit)
            name = "count"
            count = whole_of(cell("count"), "a count") if self._left["count"] else 0
            name = "redop"
            redop = cell("redop").lower()
            if redop not in REDOPS and redop not in _NONE:
                raise CellError(f"{visible(redop, 20)!r} is not a reduction", None)
            name = "root"
            root = None if cell("root").lower() in _NONE else whole_of(cell("root"), "a root")
        except CellError as error:
            raise CellError(f"{name}: {error.message}", error.hint) from None
        dtype = cell("type").lower()
        timings = tuple(self._timing(group, cells) for group in self._groups)
        if not any(timings):
            raise CellError("the row has no time", None)
        reduction = None if redop in _NONE else redop
        dtype = _DTYPES.get(dtype, dtype)
        return _Row(number, text, sizes, count, dtype, reduction, root, timings)

    def _timing(self, group: dict[str, int | None], cells: list[str]) -> _Timing | None:
        values = {role: "" if at is None else cells[at] for role, at in group.items()}
        if values["time"].lower() in _NONE:
            return None
        at = group["time"]
        assert at is not None
        algbw, busbw = (
            bandwidth_of(values[role], self._factor(group[role])) for role in ("algbw", "busbw")
        )
        if self._rate:
            rate = algbw if self._rate == "algbw" else busbw
            if rate is None or not rate.gives_time:
                raise CellError("no time, and a bandwidth of too few digits for one", None)
            return _Timing(Number(0.0, 0.0, True), algbw, busbw, None, False)
        # A bandwidth shows whether the comma of `1,234` is one between thousands.
        checked = any(each is not None and each.value >= _CHECKS for each in (algbw, busbw))
        self._thousands = self._thousands or any(map(_THOUSANDS.fullmatch, cells))
        time, united = time_of(
            values["time"], self._columns[at].factor, thousands=checked or self._thousands
        )
        if not 0 < time.value < 1e13:
            raise CellError(f"a time of {time.value:g} us cannot be", None)
        if not (united or self._named_as_printed or algbw or busbw):
            name = self._columns[at].name
            raise CellError(f"{name!r} names no unit of time", f"name the column '{name} (us)'")
        wrong = values["#wrong"].lower()
        count: float | None = None
        if wrong not in _NONE and self.layout.errors:
            count = float(wrong) if _ERROR.fullmatch(wrong) else None
        elif wrong not in _NONE and "e" not in wrong:
            count = whole_of(wrong, "a number of errors")
        return _Timing(time, algbw, busbw, count, not time.converted and _printed(time))

    def _factor(self, at: int | None) -> Decimal | None:
        return None if at is None else self._columns[at].factor

    def rows(self) -> list[FlatRow]:
        """Return the rows; rows whose numbers disagree are reported and left out."""
        for cells, text, number in self._open:
            try:
                self._add(cells, text, number)
            except CellError as error:
                self._refuse(error, text, number)
        rows = sorted(self._rows, key=lambda row: row.line)
        self._rows, self._open = [], []
        if self._mixed:
            mixed = (
                f"rows differ in the column {self._mixed!r}: split the table by it, because a table"
                " is one run"
            )
            self.report.cannot_read(rows[0].line, rows[0].text, mixed, len(rows))
            return []
        binary = self._prefixes(rows)
        slack = max((row.sizes.slack for row in rows), default=0.0)
        printed = self._as_printed(rows, binary=binary)
        first = next((row for row in rows if row.sizes.rounded or printed), None)
        if first is not None:
            note = rounded_sizes(slack) if printed else ROUNDED_SIZES
            self.report.flag(FlagKind.NOTE, note, first.line)
        found, lost = [], 0
        rough: list[tuple[Number, Number]] = []
        for row in rows:
            size = row.sizes.of(binary=binary, printed=printed)
            if size is None or (fault := self._fault(row, size)) is not None:
                reason = fault if size is not None else "its size is no whole number of bytes"
                self.report.cannot_read(row.line, row.text, reason or "")
                lost += 1
                continue
            found.append(self._flat(row, size, rough))
        if not any(cell is not None for row in found for cell in row[8::3]):
            for busbw, rate in rough:
                self._add_ratio(busbw, rate)
        if 2 * lost > len(rows) and found:
            # Times so short or so long that rounding hides the disagreement are no evidence.
            reason = "most rows of the table disagree: which column is which is not known"
            self.report.cannot_read(found[0][0], "", reason, len(found))
            return []
        if self.header.unknown and found:
            listed = ", ".join(visible(name, 24) for name in self.header.unknown[:5])
            said = f"columns not known and not read: {listed}"
            self.report.flag(FlagKind.COLUMNS_UNKNOWN, said, self._line)
        return found

    def _flat(self, row: _Row, size: int, rough: list[tuple[Number, Number]]) -> FlatRow:
        """Return a row of `size` bytes.

        Bandwidths of fewer digits than nccl-tests prints are not returned. They are added to
        `rough`, with size / time.
        """
        flat: list[Any] = [row.line, size, row.elements, row.dtype, row.redop, row.root, None]
        for timing in row.timings:
            if timing is None:
                flat += [None, None, None]
                continue
            busbw = timing.busbw
            time_us: float | None = timing.time.value
            exact = busbw is not None and timing.exact and busbw.half <= 0.00501
            if timing.rounded and timing.algbw is not None:
                self.report.flag(FlagKind.NOTE, _COARSE, row.line)
                time_us = size / (timing.algbw.value * 1e3)
                if busbw is not None:
                    rough.append((busbw, timing.algbw))
            elif self._rate == "algbw" and timing.algbw is not None:
                time_us = size / (timing.algbw.value * 1e3)
                if busbw is not None:
                    self._add_ratio(busbw, timing.algbw)
            elif self._rate:
                time_us, exact = None, True
            elif busbw is not None and not exact:
                rough.append((busbw, _rate_of(size, timing.time)))
            wrong = timing.wrong
            if wrong is not None and self.layout.errors:
                wrong = excess(wrong, row.dtype)
            flat += [time_us, busbw.value if busbw and exact else None, wrong]
        return tuple(flat)

    def _add_ratio(self, busbw: Number, algbw: Number) -> None:
        """Narrow what busbw / algbw may be, which shows the number of ranks."""
        low, high = self.layout.ratio or (0.0, inf)
        low = max(low, (busbw.value - busbw.half) / max(1e-9, algbw.value + algbw.half))
        high = min(high, (busbw.value + busbw.half) / max(1e-9, algbw.value - algbw.half))
        self.layout.ratio = low, high

    def _prefixes(self, rows: list[_Row]) -> bool:
        """Return whether prefixes of sizes are binary: the counts and bandwidths show it."""
        open_rows = [row for row in rows if row.sizes.binary != row.sizes.decimal]
        if not open_rows:
            return True

        def fits(*, binary: bool) -> tuple[int, int, bool]:
            whole = all(row.sizes.of(binary=binary) is not None for row in open_rows)
            printed = self._as_printed(open_rows, binary=binary)
            sizes = [(row, row.sizes.of(binary=binary, printed=printed)) for row in open_rows]
            fit = [(row, size) for row, size in sizes if size and self._fault(row, size) is None]
            checked = sum(self._is_checked(row) for row, _ in fit)
            # Sizes that programs measure are powers of two, or few of those.
            plain = sum(size.bit_count() <= 2 for _, size in fit)
            return checked, plain * (2 * plain >= len(open_rows)), whole

        as_binary, as_decimal = fits(binary=True), fits(binary=False)
        if as_binary[0] == as_decimal[0]:
            note = BINARY_PREFIXES if as_binary >= as_decimal else DECIMAL_PREFIXES
            self.report.flag(FlagKind.NOTE, note, open_rows[0].line)
        return as_binary >= as_decimal

    @staticmethod
    def _as_printed(rows: list[_Row], *, binary: bool) -> bool:
        """Return whether a size is neither whole nor a power of two, so that all are rounded.

        With decimal prefixes all digits are whole bytes, also those of rounded sizes.
        """
        sizes = ((row.sizes.of(binary=binary), row.sizes.slack) for row in rows)
        return any(
            size is None or (not binary and slack > _ROUGH and size.bit_count() > 1)
            for size, slack in sizes
        )

    def _is_checked(self, row: _Row) -> bool:
        """Return whether a count or a bandwidth shows what the size of a row is."""
        rates = (timing and (timing.algbw or timing.busbw) for timing in row.timings)
        return row.elements > 0 or (not self._rate and any(rates))

    def _fault(self, row: _Row, size: int) -> str | None:
        """Return why the numbers of a row disagree; None if they agree."""
        each = row.elements * DTYPE_BYTES.get(row.dtype, 0)
        if each and size % each:
            return f"a size of {size} bytes is no multiple of {row.elements} {row.dtype}"
        for timing in row.timings:
            if timing is None or not size or self._rate:
                continue
            time, rate = timing.time, size / (timing.time.value * 1e3)
            rounding = row.sizes.slack * (size.bit_count() > 1)
            slack = (1.02 * (time.half / time.value + rounding) + 1e-3) * rate
            if timing.algbw is not None:
                gap = abs(rate - timing.algbw.value)
                share = timing.algbw.value / rate
                # Before nccl-tests 2.9, which printed `error`, all-gather had (n-1)/n of it.
                older = bool(self.header.at("error")) and any(
                    abs(share - (n - 1) / n) < 0.004 for n in range(2, 65)
                )
                # nccl-tests rounded to 0.01 GB/s, whatever unit the copy has.
                if gap > slack + max(timing.algbw.half, 0.005) * 1.01 and not older:
                    return _disagree(size, time.value, rate, "algbw", timing.algbw.value)
            elif timing.busbw is not None:
                most, half = timing.busbw.value, timing.busbw.half
                if not 0.5 * (rate - slack) - half <= most <= 2 * (rate + slack) + half:
                    return _disagree(size, time.value, rate, "busbw", most)
        return None


def _with_time(header: Header) -> Header:
    """Return a header whose only column named like a time is the time, if algbw can check it."""
    likely = [at for at, column in enumerate(header.columns) if _TIME.search(column.name)]
    if header.at("time") or not header.at("algbw") or len(likely) != 1:
        return header
    columns = list(header.columns)
    columns[likely[0]] = columns[likely[0]]._replace(role="time")
    return header._replace(columns=tuple(columns))


def _with_one_size(header: Header) -> Header:
    """Return a header whose size is the column in bytes, if others have it in other units, too."""
    places = header.at("size")
    whole = [at for at in places if header.columns[at].unit == "B"]
    if len(whole) != 1:
        return header
    others = set(places) - set(whole)
    return header._replace(
        columns=tuple(
            column._replace(role=OTHER_RUN) if at in others else column
            for at, column in enumerate(header.columns)
        )
    )


def _no_time(header: Header) -> str:
    names = header.times_named or header.unknown
    listed = f" (not known: {', '.join(names[:5])})" if names else ""
    keep = "keep one of them and name it" if len(names) > 1 else "name it"
    rates = [re.search(r"bw|bandwidth|GB/?s", name, re.IGNORECASE) for name in names]
    if names and all(rates):
        which = "which bandwidth a column is, is not known"
        return f"{which}{listed}: name it 'algbw (GB/s)' or 'busbw (GB/s)', as 'NAME busbw (GB/s)'"
    other = ", or name bandwidths 'algbw (GB/s)' or 'busbw (GB/s)'" if any(rates) else ""
    return f"no column is known to be the time of a call{listed}: {keep} 'time (us)'{other}"


def _rate_of(size: int, time: Number) -> Number:
    """Return the algorithm bandwidth in GB/s by a size and a time."""
    rate = size / (time.value * 1e3)
    return Number(rate, rate * time.half / time.value, True)


def _disagree(size: int, time_us: float, rate: float, what: str, printed: float) -> str:
    return (
        f"{size} bytes in {time_us:g} us are {rate:.3g} GB/s, but {what} is {printed:g}: a column"
        " has another unit or meaning than its name (name units, as in 'time (ms)')"
    )


def _printed(time: Number) -> bool:
    """Return whether a time has the digits that nccl-tests prints."""
    limit = 0.0051 if time.value <= 100 else 0.051 if time.value <= 10_000 else 0.51
    return time.half <= limit
