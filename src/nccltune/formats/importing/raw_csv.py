# SPDX-License-Identifier: Apache-2.0
"""Read NVIDIA's raw CSV of measurements, the input of its `optimize_config.py`, and its variants.

Columns are found by name and may have any order, any separator and units. Reading is strict: one
invalid cell makes the whole file an error, which names the line, the column and the way out.
"""

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

from nccltune.formats.importing.raw_header import is_row, no_header, with_collective, with_gpus
from nccltune.formats.importing.raw_row import RawColumn, RawRow
from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.reading.cell_lists import plain_rows
from nccltune.formats.reading.choice_evidence import Label, find_label
from nccltune.formats.reading.collective_names import collective_of_title, only_collective
from nccltune.formats.reading.context import Context
from nccltune.formats.reading.file_names import conditions_of, scale_of_heading
from nccltune.formats.reading.file_report import FileKind, FlagKind
from nccltune.formats.reading.platform_facts import PlatformFacts
from nccltune.formats.reading.quantities import (
    BINARY_PREFIXES,
    ROUNDED_SIZES,
    Number,
    PossibleBytes,
    rounded_sizes,
    size_of,
)
from nccltune.formats.reading.runs import RunFound, RunSamples
from nccltune.formats.reading.table_header import (
    NAME_CHOICE,
    OTHER_RUN,
    DifferingColumns,
    Header,
    header_of,
    part_of,
    single_values,
    variants_of,
    with_units,
)
from nccltune.formats.text.cells import CellError, Problem
from nccltune.formats.text.delimited import cells_of
from nccltune.formats.text.lines import encoding_of, line_blocks, visible
from nccltune.model.choice import DEFAULT, AnyChoice, Choice, choice_label
from nccltune.model.collective import Collective
from nccltune.model.sample import Sample, Source

TOOL = "raw-csv"
_NETWORK = re.compile(r"transport|network|net|fabric|interconnect", re.IGNORECASE)
_TCP = re.compile(r"(?<![a-z])(?:tcp|sockets?)(?![a-z])", re.IGNORECASE)
REQUIRED = (
    "collective",
    "size_bytes",
    "algorithm",
    "protocol",
    "channels",
    "nodes",
    "ranks",
    "latency_us",
)
_NAMES = {"size": "size_bytes", "time": "latency_us", "bandwidth": "bandwidth_gbps"}
_CHOSEN = frozenset({"algorithm", "protocol", "channels"})
_BANDWIDTHS = ("algbw", "busbw", "bandwidth")
_BANDWIDTH_SLACK = 0.05
_MOST_SHOWN = 256
"""Rows below a header that show what a column is."""
_BATCH = 4096
_HEAD = 1 << 16
_ASSUMED = "no column names the choice that it was made with: taken as the default"


def read_raw_csv(file: BinaryIO, context: Context) -> Iterator[RunSamples]:
    """Yield the measurements in batches (see `context.Reader`).

    Raises InputError at the first problem.
    """
    context.report.kind = FileKind.RAW_CSV

    def too_long(number: int, text: str) -> None:
        problem = Problem(number, f"more than 1 MiB in a line: {visible(text, 40)}")
        raise problem.error(context.report.name)

    head = file.read(_HEAD)
    file.seek(0)
    blocks = line_blocks(file, too_long=too_long, progress=context.progress)
    head_text = head.decode(encoding_of(head[:4]), errors="replace")
    yield from read_raw_blocks(plain_rows(blocks, head_text), context)


def read_raw_blocks(
    blocks: Iterable[tuple[int, list[str]]], context: Context
) -> Iterator[RunSamples]:
    """Yield the measurements in blocks of lines, each with the number of its first line."""
    readers: list[_Rows] = []
    batches: dict[RunFound, list[Sample]] = {}
    waiting, ended, title = 0, False, ""
    for number, lines in blocks:
        for at, line in enumerate(lines, number):
            try:
                if readers and readers[0].ends_at(line):
                    readers, ended = [], True
                below = lines[at - number + 1 : at - number + 4]
                if (found := _section(line, below)) is not None:
                    title = found
                    continue
                header = (
                    _raw_header(line) if not readers or not any(map(str.isdigit, line)) else None
                )
                if readers and header is not None and readers[0].repeats(header, title):
                    continue
                if header is not None:
                    rows = lines[at - number + 1 : at - number + 1 + _MOST_SHOWN]
                    header = with_gpus(header, rows)
                    readers = _readers(header, context, at, title, below)
                    title = ""
                    continue
                if not readers:
                    if is_row(line) and not ended:
                        raise no_header(line)
                    continue
                for reader in readers:
                    for sample in reader.samples(line, at):
                        batches.setdefault(reader.run_of(sample), []).append(sample)
                        waiting += 1
            except CellError as error:
                problem = Problem(at, error.message, error.hint)
                raise problem.error(context.report.name) from None
        if waiting >= _BATCH:
            yield from map(RunSamples, batches, batches.values())
            batches, waiting = {}, 0
    yield from map(RunSamples, batches, batches.values())


def _raw_header(line: str) -> Header | None:
    header = header_of(line)
    return header if header is not None and header.raw else None


def _section(line: str, below: list[str]) -> str | None:
    """Return the title of a section: a line of one cell above the names of its columns."""
    separator = next((mark for mark in "|\t;," if mark in line), "")
    cells = cells_of(line, separator) if separator else [line.strip("#*= \r\n")]
    words = [cell for cell in cells if cell]
    if len(words) != 1 or not any(map(str.isalpha, words[0])):
        return None
    after = next((other for other in below if other.strip(" ,;\t\r`")), "")
    return words[0] if _raw_header(after) is not None else None


def _readers(
    header: Header, context: Context, line: int, title: str, below: list[str]
) -> list["_Rows"]:
    """Return a reader of the rows; one for each column of times, if each is a run.

    `title` is that of a section of the file. It names the choice of rows that do not. Raises
    CellError, also for several values in a cell of the rows `below`.
    """
    header = with_collective(header, below)
    for row in below:
        single_values(header.columns, cells_of(row, header.separator))
    runs = header.runs()
    if title and not runs and not header.roles & {"algorithm", "protocol", "choice"}:
        runs = [(title, header)]
    headings = [heading for heading, _ in runs]
    apart = conditions_of(headings, comparing=context.options.comparing)
    context.report.tables += 1
    context.report.heads.add(line)
    readers = [
        _Rows(each, context, line, heading, title, apart=heading in apart - {title})
        for heading, each in runs or [("", header)]
    ]
    for reader in readers[1:]:
        reader.counts_rows = False
    return readers


class _Rows:
    """A parser of rows. The header gives the position of each column."""

    def __init__(
        self, header: Header, context: Context, line: int, heading: str, title: str, *, apart: bool
    ) -> None:
        """Find the columns. Raises CellError if a needed one is missing or is there twice.

        `heading` is that of the column of times, if each is a run; `apart`: of other conditions.
        `title` is that of the section.
        """
        self.header = header
        self.context = context
        self.report = context.report
        self.line = line
        self.heading, self.title = heading, title
        self._names = [column.name for column in header.columns]
        self._collective = (
            collective_of_title(heading)
            or collective_of_title(title)
            or context.options.collective
            or context.collective
        )
        stated = {"collective", "op"} & header.roles or context.options.collective
        if not stated and self._collective is context.collective is not None:
            self.report.flag(FlagKind.NOTE, only_collective(context.collective), line)
        self._scale = scale_of_heading(heading), scale_of_heading(title)
        self.counts_rows = True
        self._facts = PlatformFacts(
            nccl=context.nccl, conditions=(f"column {heading!r}",) if apart else None
        )
        self._labels: dict[Collective, Label] = {}
        options = context.options
        if options.choice is not None and header.roles & {"algorithm", "choice"}:
            self.report.flag(FlagKind.NOTE, "rows name their choice: --choice is not applied")
        self.source = Source(tool=TOOL, file_hash=self.report.file_hash or None)
        self._runs: dict[tuple[object, ...], RunFound] = {}
        self._passes: dict[tuple[object, ...], int] = {}
        self._binary: bool | None = None
        self._variant = ""
        self._network: str | None = None
        self._networks = [at for at, name in enumerate(self._names) if _NETWORK.fullmatch(name)]
        # rccl-tests names what ran, which was not forced.
        self._of_rccl = {"redop", "algo", "proto", "nchannels"} <= set(self._names)
        reads_choice = "algorithm" in header.roles and not self._of_rccl
        self._differing = DifferingColumns(header, set() if reads_choice else _CHOSEN)
        self.places: dict[str, RawColumn] = {}
        for role in sorted(header.roles - {"time", "spread", OTHER_RUN}):
            self.places[role] = self._only(role)
        if "op" in self.places and "collective" not in self.places:
            self.places["collective"] = self.places.pop("op")
        self._times = self._time_columns()
        needed = {"size"}
        if self._collective is None and not {"algbw", "busbw", "ranks"} <= header.roles:
            needed.add("collective")
        if {"algorithm", "protocol"} & header.roles:
            needed |= {"algorithm", "protocol"}
        elif not heading and options.choice is None and "choice" not in self.places:
            if header.unread_choice:
                raise CellError(header.unread_choice, NAME_CHOICE)
            self.report.flag(FlagKind.CHOICE_ASSUMED, _ASSUMED, line)
        for role in ("collective", "size", "algorithm", "protocol"):
            if role in needed and role not in self.places:
                raise self._missing(role)
        if unknown := [name for name in header.unknown if not _NETWORK.fullmatch(name)]:
            listed = ", ".join(visible(name, 24) for name in unknown[:5])
            said = f"columns not known and not read: {listed}"
            self.report.flag(FlagKind.COLUMNS_UNKNOWN, said, line)

    def _only(self, role: str) -> RawColumn:
        places = self.header.at(role)
        names = [self.header.columns[at].name for at in places]
        if len(places) > 1:
            numbers = " and ".join(
                f"{at + 1} {name!r}" for at, name in zip(places, names, strict=True)
            )
            raise CellError(
                f"columns {numbers} are both the {_NAMES.get(role, role)}: one is there twice",
                "delete or rename one",
            )
        return RawColumn(places[0], names[0])

    def _time_columns(self) -> list[tuple[bool, RawColumn | None]]:
        """Return the columns of times, each with whether it is in place.

        The column is None if the times are computed from bandwidths.
        """
        places = self.header.at("time")
        if not places:
            if {"algbw", "busbw"} & self.header.roles:
                return [(False, None)]
            raise self._missing("time")
        columns = [self.header.columns[at] for at in places]
        placed = {column.placement for column in columns}
        if len(placed) < len(places) or (len(placed) > 1 and "" in placed):
            self._only("time")
        return [
            (column.placement == "in-place", RawColumn(at, column.name))
            for at, column in zip(places, columns, strict=True)
        ]

    def _missing(self, role: str) -> CellError:
        name = _NAMES.get(role, role)
        unknown = ", ".join(visible(item, 24) for item in self.header.unknown[:8])
        need = f"a raw CSV needs {', '.join(REQUIRED)}"
        if role == "time":
            need += "; the time can be computed from a column algbw or busbw"
        if unknown:
            need = f"rename the column that holds it to {name} (not known: {unknown}); {need}"
        if role == "collective":
            rates = self.header.roles & {"time", "algbw", "busbw", "ranks"} == {"busbw"}
            needed = " and --ranks (busbw depends on it)" if rates else ""
            need = f"give --collective{needed}, or {need}"
        return CellError(f"the column {name!r} is missing", need)

    def run_of(self, sample: Sample) -> RunFound:
        """Return the run of a sample.

        The format does not name runs. Rows of one collective, scale, registration, pipe ops and
        choice count as one run, so that they are not taken as independent repeats.
        """
        key = (
            sample.collective,
            sample.nodes,
            sample.ranks,
            sample.registered,
            sample.pipe_ops,
            sample.choice,
            self._variant,
            self._network,
        )
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = RunFound(self.source)
            # The titles of all sections together say which are repeats.
            run.heading = self.heading if self.heading != self.title else ""
            run.facts = msgspec.structs.replace(self._facts, network=self._network)
            run.title = ", ".join(filter(None, (self.title.rstrip(": "), self._variant)))
            run.line = self.line if run.heading else 0
            run.collective, run.registered = sample.collective, sample.registered
            run.nodes, run.ranks = sample.nodes, sample.ranks
            run.pipe_ops = sample.pipe_ops
        label = choice_label(sample.choice)
        run.add_row([sample.bytes, label, sample.collective, sample.time_us], [sample.time_us])
        run.saw(label, 1)
        return run

    def repeats(self, header: Header, title: str) -> bool:
        """Return whether a line has the names of these columns again, without another title."""
        return not title and [column.name for column in header.columns] == self._names

    def ends_at(self, line: str) -> bool:
        """Return whether a line ends the table: the end of a block, or one without its bars."""
        if line.startswith("```"):
            return True
        return self.header.separator == "|" and not cells_of(line, "|") and line.count("|") < 2

    def samples(self, line: str, number: int) -> list[Sample]:
        """Return the samples of a line; empty for size 0, a comment and the rule of a table.

        Raises CellError at the first invalid cell.
        """
        separator = self.header.separator
        drawn = separator == "|"
        if not line.strip() or line.startswith("#") or (drawn and "|" not in line):
            return []
        cells = cells_of(line, separator)
        if drawn and not any(char.isalnum() for char in line):
            return []
        if len(cells) != len(self.header.columns):
            few = "few" if len(cells) < len(self.header.columns) else "many"
            raise CellError(
                f"{len(cells)} fields where the header has {len(self.header.columns)}: too {few}",
                "every row needs a field for every column",
            )
        if not self._runs and (united := with_units(self.header.columns, cells)) is not None:
            self.header = self.header._replace(columns=united)
            return []
        self.report.rows += self.counts_rows
        cells = single_values(self.header.columns, cells)
        self._variant = ", ".join(variants_of(self.header, cells).values())
        self._network = "Socket" if any(_TCP.search(cells[at]) for at in self._networks) else None
        samples = self._row(RawRow(self.header, self.places, cells), number)
        for sample in samples[:1]:
            name = self._differing.add((*_key(sample), self._variant), cells)
            if name:
                raise CellError(
                    f"the column {name!r} differs from an earlier row of the same size and choice,"
                    " and it is not read",
                    "rename it if it is one of the columns (algorithm, protocol, channels, nodes,"
                    " ranks), or split the file by it",
                )
        return samples

    def _row(self, read: RawRow, number: int) -> list[Sample]:
        options = self.context.options
        collective = read.collective() if "collective" in self.places else self._collective
        collective = collective or self._by_bandwidths(read)
        sizes = read.of("size", lambda cell: size_of(cell, self._unit("size")))
        assert sizes is not None
        if self.heading and not any(read.cells(*_BANDWIDTHS, "time")):
            return []
        named = read.choice()
        ran = named if self._of_rccl and isinstance(named, Choice) else None
        choice = (named if ran is None else None) or self._choice(collective)
        if choice is None:
            self.report.cannot_read(number, "", self._labels[collective].problem)
            return []
        stated = [next(filter(None, own), None) for own in zip(*self._scale, strict=True)]
        nodes = read.number("nodes", "a number of nodes", 1, "is unknown") or options.nodes
        ranks = read.number("ranks", "a number of ranks", 1, "is unknown") or options.ranks
        nodes, ranks = nodes or stated[0], ranks or stated[1]
        each = read.number("per_node", "a number of ranks", 1, "is unknown")
        ranks = ranks or (nodes * each if nodes and each else None)
        nodes = nodes or (ranks // each if ranks and each and ranks % each == 0 else None)
        pipe = read.number("pipeOps", "a number of operations", 0, "is any") or 1
        registered = read.number("regBuff", "a registration", 0, "is any", 1)
        wrong = read.wrong()
        bandwidths = [
            (role, found) for role in _BANDWIDTHS if (found := read.bandwidth(role)) is not None
        ]
        samples = []
        for in_place, column in self._times:
            if column is None:
                time_us = self._computed(sizes, bandwidths, collective, ranks, number)
            else:
                time_us = read.time(column, checked=bool(bandwidths))
            if time_us is None:
                return []
            size = self._size(sizes, time_us, bandwidths, number)
            if part_of(self.header.columns[self.places["size"].at]) is collective:
                if ranks is None:
                    self.report.cannot_read(number, "", "the ranks that share the size are unknown")
                    return []
                size *= ranks
            if size == 0:
                self.report.rows_size_0 += 1
                return []
            sample = Sample(
                study=options.study,
                collective=collective,
                bytes=size,
                dtype=read.word("type"),
                redop=read.word("redop"),
                nodes=nodes,
                ranks=ranks,
                registered=bool(registered),
                pipe_ops=max(pipe, 1),
                in_place=in_place,
                choice=choice,
                ran=ran,
                time_us=time_us,
                wrong=wrong,
                source=self.source,
            )
            sample = self._numbered(sample)
            if len(self._times) == 1:
                self._check(sample, bandwidths, number)
            self.report.saw(sample)
            samples.append(sample)
        if not samples:
            raise CellError("the row has no time", "write a number above 0")
        return samples

    def _by_bandwidths(self, read: RawRow) -> Collective:
        """Return the only collective with such bandwidths: all-reduce has the largest busbw.

        Raises CellError if it is another, or cannot be known.
        """
        ranks = read.number("ranks", "a number of ranks", 1, "is unknown") or 0
        rates = [read.bandwidth(role) for role in ("algbw", "busbw")]
        algbw, busbw = (rate.value if rate is not None else 0.0 for rate in rates)
        if ranks > 2 and abs(busbw - algbw * Collective.ALLREDUCE.bus_factor(ranks)) < 0.02 * busbw:
            self._collective = Collective.ALLREDUCE
            return Collective.ALLREDUCE
        raise self._missing("collective")

    def _choice(self, collective: Collective) -> AnyChoice | None:
        """Return the choice of rows that name none: by the options or the heading."""
        if not self.heading:
            return self.context.options.choice or DEFAULT
        if collective not in self._labels:
            self._labels[collective] = find_label(
                collective,
                NcclLog(),
                None,
                self.context.options,
                self.context.name,
                self.report,
                self.line,
                self.heading,
            )
        return self._labels[collective].choice

    def _computed(
        self,
        sizes: PossibleBytes,
        bandwidths: list[tuple[str, Number]],
        collective: Collective,
        ranks: int | None,
        number: int,
    ) -> float | None:
        """Return the time in us by the bandwidth; None if that has too few digits for one."""
        size = sizes.binary
        found = dict(bandwidths)
        if size is None:
            raise CellError("the size is no whole number of bytes", "write sizes as whole bytes")
        if size != sizes.decimal:
            self.report.flag(FlagKind.NOTE, BINARY_PREFIXES, number)
        if "algbw" not in found and ranks is None:
            raise CellError("the time of a busbw needs the number of ranks", "give --ranks")
        factors = {"algbw": 1.0, "busbw": collective.bus_factor(ranks) if ranks else 1.0}
        for role, factor in factors.items():
            rate = found.get(role)
            if factor and rate is not None and rate.gives_time:
                self.report.flag(FlagKind.NOTE, f"times are computed from {role}", number)
                return size * factor / (rate.value * 1e3)
        self.report.cannot_read(number, "", "no time, and a bandwidth of too few digits for one")
        return None

    def _unit(self, role: str) -> str:
        return self.header.columns[self.places[role].at].unit

    def _numbered(self, sample: Sample) -> Sample:
        """Return the sample with its round: how many rows of its conditions came before it."""
        key = *_key(sample), self._variant
        cycle = self._passes.get(key, 0)
        self._passes[key] = cycle + 1
        return msgspec.structs.replace(sample, round=cycle) if cycle else sample

    def _size(
        self,
        sizes: PossibleBytes,
        time_us: float,
        bandwidths: list[tuple[str, Number]],
        number: int,
    ) -> int:
        """Return the bytes of a size: the bandwidths decide what its prefix means."""
        if sizes.rounded:
            self.report.flag(FlagKind.NOTE, ROUNDED_SIZES, number)
        if sizes.binary is not None and sizes.binary == sizes.decimal:
            return sizes.binary
        rates = [found.value * time_us * 1e3 for role, found in bandwidths if role != "busbw"]
        fits = {
            binary: size is not None and any(abs(rate / size - 1) < 0.012 for rate in rates)
            for binary, size in ((True, sizes.binary), (False, sizes.decimal))
        }
        decided = fits[True] if fits[True] != fits[False] else None
        if self._binary is None:
            self._binary = decided is not False
            if decided is None:
                self.report.flag(FlagKind.NOTE, BINARY_PREFIXES, number)
        elif decided is not None and decided is not self._binary:
            raise CellError(
                "the prefix of the size is a power of 1000 by the bandwidth of one row, and of 1024"
                " by another",
                "write sizes as whole bytes",
            )
        size = sizes.of(binary=self._binary)
        if size is None:
            size = sizes.of(binary=self._binary, printed=True)
            self.report.flag(FlagKind.NOTE, rounded_sizes(sizes.slack), number)
        if size is None:
            raise CellError("the size is no whole number of bytes", "write sizes as whole bytes")
        return size

    def _check(self, sample: Sample, bandwidths: list[tuple[str, Number]], number: int) -> None:
        """Flag an unknown scale, a single rank, and a bandwidth that contradicts the time.

        A column `bandwidth` may hold the algorithm bandwidth or the bus bandwidth.
        """
        if sample.nodes is None or sample.ranks is None:
            self.report.flag(FlagKind.SCALE_UNKNOWN, "nodes or ranks are unknown", number)
        if sample.ranks == 1:
            self.report.flag(FlagKind.ONE_RANK, "one rank only: nothing was communicated", number)
        rate = sample.bytes / (sample.time_us * 1e3)
        for role, found in bandwidths:
            factor = sample.collective.bus_factor(sample.ranks) if sample.ranks else 1.0
            expected = {"algbw": (rate,), "busbw": (rate * factor,)}.get(
                role, (rate, rate * factor)
            )
            if role == "busbw" and not sample.ranks:
                continue
            # The addition of 0.01 allows for rounding: the column has at least two decimals.
            if not found.value or any(
                abs(found.value - each) <= _BANDWIDTH_SLACK * each + max(0.01, found.half)
                for each in expected
            ):
                continue
            name, time = self.places[role].name, self._times[0][1]
            if time is None:
                continue
            if self.header.columns[time.at].factor is None:
                raise CellError(
                    f"column {time.at + 1} ({time.name}): {sample.bytes} bytes in"
                    f" {sample.time_us:g} us are {rate:.3g} GB/s, but {name} is {found.value:g}",
                    f"name its unit, as in '{time.name} (ms)'",
                )
            self.report.flag(
                FlagKind.BANDWIDTH_MISMATCH,
                f"{name} is {found.value:g}, but {sample.bytes} bytes in {sample.time_us:g} us"
                f" are {rate:.3g} GB/s: {time.name} is what counts",
                number,
            )


def _key(sample: Sample) -> tuple[object, ...]:
    """Return what rows have in common that are repeats of one test."""
    calls = sample.nodes, sample.ranks, sample.registered, sample.pipe_ops, sample.in_place
    return sample.collective, sample.bytes, sample.choice, calls, sample.dtype, sample.redop
