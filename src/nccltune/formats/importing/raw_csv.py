# SPDX-License-Identifier: Apache-2.0
"""Read NVIDIA's raw CSV of measurements, the input of its `optimize_config.py`.

Columns are found by name and may have any order. Reading is strict: one invalid cell makes the
whole file an error. The error names the line, the column and the nearest valid word.
"""

import re
from collections.abc import Iterator
from math import inf
from typing import BinaryIO

from nccltune.formats.reading.context import Context
from nccltune.formats.reading.file_report import FileKind, FlagKind
from nccltune.formats.reading.runs import RunFound, RunSamples
from nccltune.formats.text.cells import (
    MAX_INT,
    CellError,
    Problem,
    name_of,
    number_of,
    size_of,
)
from nccltune.formats.text.lines import line_blocks, visible
from nccltune.model.choice import (
    ALGORITHMS,
    DEFAULT,
    MAX_CHANNELS,
    PROTOCOLS,
    AnyChoice,
    Choice,
    choice_label,
    parse_algorithm,
    parse_protocol,
)
from nccltune.model.collective import Collective
from nccltune.model.names import nearest
from nccltune.model.sample import Sample, Source

TOOL = "raw-csv"
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
OPTIONAL = ("pipeOps", "regBuff", "cost_metric", "bandwidth_gbps")
_COLLECTIVES = [item.value for item in Collective]
_ALGORITHMS = [item.value for item in ALGORITHMS] + [DEFAULT]
_PROTOCOLS = [item.value for item in PROTOCOLS]
_BANDWIDTH_SLACK = 0.05
_BATCH = 4096


def header_of(line: str) -> list[str] | None:
    """Return the columns of a header line, or None if it is not the header of a raw CSV."""
    cells = [cell.strip() for cell in re.split(r"[,;\t]", line)]
    lowered = {cell.lower() for cell in cells}
    known = lowered & {name.lower() for name in (*REQUIRED, *OPTIONAL)}
    return cells if len(known) >= 4 and ("collective" in known or "size_bytes" in known) else None


def read_raw_csv(file: BinaryIO, context: Context) -> Iterator[RunSamples]:
    """Yield the measurements in batches (see `context.Reader`).

    Raises InputError at the first problem.
    """
    context.report.kind = FileKind.RAW_CSV
    reader: _Rows | None = None
    name = context.report.name

    def too_long(number: int, text: str) -> None:
        raise Problem(number, f"more than 1 MiB in a line: {visible(text, 40)}").error(name)

    batches: dict[RunFound, list[Sample]] = {}
    waiting = 0
    for number, lines in line_blocks(file, too_long=too_long, progress=context.progress):
        for at, line in enumerate(lines, number):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                if reader is None:
                    reader = _Rows(_columns(line, context), context)
                else:
                    for sample in reader.sample(line, at):
                        batches.setdefault(reader.run_of(sample), []).append(sample)
                        waiting += 1
            except CellError as error:
                raise Problem(at, error.message, error.hint).error(name) from None
        if waiting >= _BATCH:
            yield from map(RunSamples, batches, batches.values())
            batches, waiting = {}, 0
    yield from map(RunSamples, batches, batches.values())


def _columns(line: str, context: Context) -> dict[str, int]:
    for mark, noun in ((";", "semicolons"), ("\t", "tabs")):
        if mark in line and "," not in line:
            raise CellError(f"columns are separated by {noun}", "commas are needed")
    cells = [cell.strip() for cell in line.split(",")]
    columns: dict[str, int] = {}
    for index, cell in enumerate(cells):
        if cell in columns:
            raise CellError(f"the column {cell!r} is there twice", "delete one")
        columns[cell] = index
        lowered = cell.lower()
        for name in (*REQUIRED, *OPTIONAL):
            if cell != name and lowered == name.lower():
                raise CellError(f"column {index + 1}: {cell!r} is not a column", f"write {name}")
    for name in REQUIRED:
        if name not in columns:
            close = nearest(name, [cell for cell in cells if cell])
            raise CellError(
                f"the column {name!r} is missing",
                f"{close.partition('?')[0]}? rename it" if "did you mean" in close else _need(name),
            )
    unknown = [cell for cell in cells if cell not in REQUIRED and cell not in OPTIONAL]
    if unknown:
        listed = ", ".join(visible(cell, 24) for cell in unknown[:5])
        context.report.flag(FlagKind.NOTE, f"columns not known and not read: {listed}", 1)
    return columns


def _need(name: str) -> str:
    return f"a raw CSV needs {', '.join(REQUIRED)}" + (
        "; the time cannot be computed from bandwidth alone" if name == "latency_us" else ""
    )


class _Rows:
    """A parser of rows. The header gives the position of each column."""

    def __init__(self, columns: dict[str, int], context: Context) -> None:
        self.columns = columns
        self.context = context
        self.report = context.report
        self.report.tables += 1
        if context.options.choice is not None:
            self.report.flag(FlagKind.NOTE, "rows name their choice: --choice is not applied")
        self.source = Source(tool=TOOL, file_hash=self.report.file_hash or None)
        self._runs: dict[tuple[object, ...], RunFound] = {}
        self._passes: dict[tuple[object, ...], int] = {}

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
        )
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = RunFound(self.source)
            run.collective, run.registered = sample.collective, sample.registered
            run.nodes, run.ranks = sample.nodes, sample.ranks
            run.pipe_ops = sample.pipe_ops
        label = choice_label(sample.choice)
        run.add_row([sample.bytes, label, sample.collective, sample.time_us], [sample.time_us])
        run.saw(label, 1)
        return run

    def sample(self, line: str, number: int) -> list[Sample]:
        """Return the sample of a row as a list; empty for size 0.

        Raises CellError at the first invalid cell.
        """
        cells = [cell.strip(" \t") for cell in line.split(",")]
        if len(cells) != len(self.columns):
            few = "few" if len(cells) < len(self.columns) else "many"
            raise CellError(
                f"{len(cells)} fields where the header has {len(self.columns)}: too {few}",
                "every row needs a field for every column",
            )
        cell = {name: cells[index] for name, index in self.columns.items()}
        name = ""
        try:
            name = "collective"
            collective = Collective(name_of(cell[name], _COLLECTIVES, "a collective"))
            name = "size_bytes"
            size = size_of(cell[name])
            name = "algorithm"
            algorithm = name_of(cell[name], _ALGORITHMS, "an algorithm")
            name = "protocol"
            protocols = [DEFAULT] if algorithm == DEFAULT else _PROTOCOLS
            protocol = name_of(cell[name], protocols, "a protocol")
            name = "channels"
            channels = number_of(
                cell[name], "a number of channels", 1, MAX_CHANNELS, "is NCCL's own number"
            )
            name = "nodes"
            nodes = number_of(cell[name], "a number of nodes", 1, MAX_INT, "is unknown")
            name = "ranks"
            ranks = number_of(cell[name], "a number of ranks", 1, MAX_INT, "is unknown")
            name = "latency_us"
            time_us = _positive(cell[name], "a time")
            name = "pipeOps"
            pipe = number_of(cell.get(name, "-1"), "a number of operations", 0, MAX_INT, "is any")
            name = "regBuff"
            registered = number_of(cell.get(name, "-1"), "a registration", 0, 1, "is any")
            name = "bandwidth_gbps"
            bandwidth = _positive(cell[name], "a bandwidth", zero=True) if name in cell else None
        except CellError as error:
            at = self.columns[name] + 1
            raise CellError(f"column {at} ({name}): {error.message}", error.hint) from None
        self.report.rows += 1
        if size == 0:
            self.report.rows_size_0 += 1
            return []
        choice: AnyChoice = DEFAULT
        if algorithm != DEFAULT:
            choice = Choice(parse_algorithm(algorithm), parse_protocol(protocol), channels)
        options = self.context.options
        sample = self._sample(
            collective,
            size,
            choice,
            nodes or options.nodes,
            ranks or options.ranks,
            bool(registered),
            max(pipe or 1, 1),
            time_us,
        )
        self._check(sample, bandwidth, number)
        self.report.saw(sample)
        return [sample]

    def _sample(
        self,
        collective: Collective,
        size: int,
        choice: AnyChoice,
        nodes: int | None,
        ranks: int | None,
        registered: bool,
        pipe_ops: int,
        time_us: float,
    ) -> Sample:
        key = (collective, size, choice, nodes, ranks, registered, pipe_ops)
        cycle = self._passes.get(key, 0)
        self._passes[key] = cycle + 1
        return Sample(
            study=self.context.options.study,
            collective=collective,
            bytes=size,
            nodes=nodes,
            ranks=ranks,
            registered=registered,
            pipe_ops=pipe_ops,
            choice=choice,
            round=cycle,
            time_us=time_us,
            source=self.source,
        )

    def _check(self, sample: Sample, bandwidth: float | None, number: int) -> None:
        """Flag an unknown scale, a single rank, and a bandwidth that contradicts the time.

        The bandwidth column may be the algorithm bandwidth or the bus bandwidth.
        """
        if sample.nodes is None or sample.ranks is None:
            self.report.flag(FlagKind.SCALE_UNKNOWN, "nodes or ranks are -1 (unknown)", number)
        if sample.ranks == 1:
            self.report.flag(FlagKind.ONE_RANK, "one rank only: nothing was communicated", number)
        if not bandwidth:
            return
        algorithm_bandwidth = sample.bytes / (sample.time_us * 1e3)
        factor = sample.collective.bus_factor(sample.ranks) if sample.ranks else 1.0
        for expected in (algorithm_bandwidth, algorithm_bandwidth * factor):
            # The addition of 0.01 allows for rounding: the column has at least two decimals.
            if abs(bandwidth - expected) <= _BANDWIDTH_SLACK * expected + 0.01:
                return
        self.report.flag(
            FlagKind.BANDWIDTH_MISMATCH,
            f"bandwidth_gbps is {bandwidth:g}, but {sample.bytes} bytes in {sample.time_us:g} us"
            f" are {algorithm_bandwidth:.3g} GB/s: latency_us is what counts",
            number,
        )


def _positive(cell: str, noun: str, *, zero: bool = False) -> float:
    """Return a finite number above 0, or 0 if `zero` is set. Raises CellError otherwise."""
    if not cell:
        raise CellError(f"empty where {noun} belongs", "write a number")
    try:
        value = float(cell) if "_" not in cell else -1.0
    except ValueError:
        raise CellError(f"{visible(cell, 40)!r} is not {noun}", "write a number above 0") from None
    if not (0 < value < inf or (zero and value == 0)):
        raise CellError(f"{cell} is not {noun}", "write a number above 0")
    return value
