# SPDX-License-Identifier: Apache-2.0
"""Convert the rows of one nccl-tests table to samples: collective, scale, choice, times."""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from nccltune.formats.nccl_log.messages import RanCall
from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.nccl_tests.checks import (
    OTHER_BANDWIDTH,
    BandwidthCheck,
    bus_factor_of,
    excess,
    flag_algbw,
)
from nccltune.formats.nccl_tests.collective_evidence import (
    UNCHECKED,
    Shape,
    contradiction,
    find_collective,
)
from nccltune.formats.nccl_tests.columns import DTYPE_BYTES, FlatRow, Row, TableColumns, Timing
from nccltune.formats.nccl_tests.conditions import replacements
from nccltune.formats.nccl_tests.process_logs import RunLogs, process_key
from nccltune.formats.nccl_tests.rank_bounds import bounds_by_count, bounds_of_ratio, rank_bounds
from nccltune.formats.nccl_tests.rows import (
    MIXED,
    are_mixed,
    judged_rows,
    possible_rows,
    rows_with_times,
)
from nccltune.formats.nccl_tests.run import MAX_RANKS, NcclTestsRun
from nccltune.formats.nccl_tests.scale import ScaleEvidence, ScaleFound, find_scale
from nccltune.formats.reading.choice_evidence import (
    CHANNEL_LIMITS,
    Label,
    find_label,
    label_of_row,
    pinned_channels,
    tuner_of,
)
from nccltune.formats.reading.collective_names import collective_of_title, only_collective
from nccltune.formats.reading.command_lines import CommandFound
from nccltune.formats.reading.context import Context
from nccltune.formats.reading.file_names import scale_of_heading, scale_of_name
from nccltune.formats.reading.file_report import FlagKind
from nccltune.formats.reading.named_version import version_of_heading
from nccltune.formats.reading.platform_facts import SHARED_GPUS
from nccltune.formats.reading.runs import ROWS_KEPT, RunFound, RunSamples, printed_time, text_id
from nccltune.formats.text.redact import host_hash
from nccltune.formats.text.stamps import stamp_of
from nccltune.model.choice import (
    DEFAULT,
    AnyChoice,
    Choice,
    choice_label,
    parse_algorithm,
    parse_protocol,
)
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.sample import Sample, Source

BATCH_ROWS = 8192
TOOL = "nccl-tests"
_WITHOUT = re.compile(r"(?i)(?<![a-z])(?:w/?o|without|no|off|before|default|baseline)(?![a-z])")


class _Point:
    """The choice and the passes of all rows of one size, type, operation and root.

    `choice` is the choice that the samples get. `ran` is the choice in NCCL's log. `passes` counts
    the passes of the program (option `-N`) so far: one number for out of place, one for in place.
    `counted` is the number of passes that are already in the report.
    """

    __slots__ = ("choice", "counted", "passes", "ran")

    def __init__(self, choice: AnyChoice, ran: Choice | None, passes: list[int]) -> None:
        self.choice = choice
        self.ran = ran
        self.passes = passes
        self.counted = sum(passes)


class TableReader:
    """A table that is being read.

    Rows are collected with `keep` or `add`, and become samples in `emit`. `emit` is called as late
    as bounded memory allows, because log lines after a row can still show which choice ran.
    """

    def __init__(
        self,
        run: NcclTestsRun,
        layout: TableColumns,
        context: Context,
        line: int,
        logs: RunLogs | None = None,
    ) -> None:
        self.run = run
        self.layout = layout
        self.line = line
        self.rows: list[FlatRow] = []
        self.keep = self.rows.append
        self.footer = False
        self.left = frozenset(("count", "type", "redop", "root"))
        self.copies = False
        self.share: float | None = None
        self._most_algbw = 1.0
        self.apart = False
        self.nccl: str | None = None
        self.stated: tuple[int | None, int | None] = (None, None)
        self.counts_rows = True
        self.sound = True
        self.found = RunFound()
        self.found.line, self.found.title = line, run.title
        self._passes: dict[tuple[object, ...], list[int]] = {}
        self.average: tuple[float, int] | None = None
        self._context = context
        self._empty = 0
        self._collective: Collective | None = None
        self._label = Label(None)
        self._scale = ScaleFound(None, None, False)
        self._source = Source(tool=TOOL)
        self._logs = logs
        self._log = run.log
        self._log_lines = 0
        self._check: BandwidthCheck | None = None

    def add(self, row: Row) -> None:
        """Add a row. A row of size 0 is only counted. CPU times are converted to call times."""
        if row.size == 0:
            self.count_empty(len(row.timings))
            return
        if row.ran is not None and self._logs is not None and (choice := _choice(*row.ran)):
            self._logs.rest.take(RanCall(None, row.size, per_rank=False, ran=choice))
        left = (row.line, row.size, row.elements, row.dtype, row.redop, row.root, row.at)
        for timing in row.timings:
            self.check_algbw(row.line, row.size, timing.time_us, timing.algbw)
        timings = [self._usable(row, timing) for timing in row.timings]
        missing = (None, 0.0, None) * (len(self.layout.in_place) - len(timings))
        self.keep(left + tuple(value for timing in timings for value in timing) + missing)

    def check_algbw(self, line: int, size: int, time_us: float, algbw: float) -> None:
        """Flag a printed algorithm bandwidth that contradicts size and time."""
        if not self.layout.cpu_time and self.run.collective not in OTHER_BANDWIDTH:
            flag_algbw(size, time_us, algbw, self.run.ranks, self._context.report, line)
            if algbw > self._most_algbw:
                self.share, self._most_algbw = algbw * time_us * 1e3 / size, algbw

    def count_empty(self, timings: int) -> None:
        """Count a row of size 0 and its timings: nccl-tests includes them in its average."""
        self._context.report.rows += 1
        self._context.report.rows_size_0 += 1
        self._empty += timings

    def _usable(self, row: Row, timing: Timing) -> tuple[float, float, float | None]:
        """Return time, busbw and wrong elements of a timing; of an old table its `excess`.

        The time is 0 if the column has a CPU time that cannot be converted to a call time. The
        number of wrong elements is None if it was not checked, or cannot be derived.
        """
        wrong: float | None = timing.wrong
        if timing.delta is not None:
            wrong = excess(timing.delta, row.dtype)
        if not self.layout.cpu_time:
            return timing.time_us, timing.busbw, wrong
        # -C prints the CPU time, and the bandwidth of the call. A bandwidth with three digits gives
        # the time of the call.
        exact = timing.algbw >= 1.0 and self.run.collective not in OTHER_BANDWIDTH
        return row.size / (timing.algbw * 1e3) if exact else 0.0, timing.busbw, wrong

    def emit(self) -> Iterator[RunSamples]:
        """Yield the samples of the rows so far, and drop these rows."""
        if not self.rows:
            return
        rows = self.rows.copy()
        self.rows.clear()
        if self._check is None:
            self._check = self._prepare(rows)
            if are_mixed(rows):
                self._context.report.flag(FlagKind.NOTE, MIXED, self.line, doubtful=True)
        elif self._logs is not None and self._logs.lines != self._log_lines:
            self._log = self._joined_log()
        report = self._context.report
        report.rows += len(rows) if self.counts_rows else 0
        if self.layout.errors:
            rows = judged_rows(rows, self._scale.ranks, self._unchecked)
        if self.layout.from_busbw and not (rows := self._with_times(rows)):
            return
        self._check.feed(rows, report)
        self._note_rows(rows)
        if self._scale.ranks != 1:
            rows = possible_rows(rows, report)
        if self._collective is not None and (samples := self._samples(rows, self._collective)):
            yield RunSamples(self.found, samples)

    @property
    def _unchecked(self) -> frozenset[int]:
        """Return the placements of an old table whose errors say nothing.

        NCCL has no such collective in place, and these releases compared its results anyway.
        """
        places = enumerate(self.layout.in_place) if self._collective in UNCHECKED else ()
        return frozenset(at for at, in_place in places if in_place)

    def _with_times(self, rows: list[FlatRow]) -> list[FlatRow]:
        """Return the rows with times by their busbw; none if its factor is unknown."""
        collective, ranks = self._collective, self._scale.ranks
        if collective is not None and collective.bus_factor(2) == collective.bus_factor(MAX_RANKS):
            ranks = ranks or 2
        if ranks is None:
            sentence = "the time of a busbw needs the number of ranks: give --ranks"
            self._context.report.flag(FlagKind.RANKS_NEEDED, sentence, self.line)
        if ranks is None or collective is None:
            return []
        return rows_with_times(rows, collective.bus_factor(ranks))

    def _note_rows(self, rows: list[FlatRow]) -> None:
        """Add the rows to the hashes that identify the run, and their times to its run time."""
        found, columns = self.found, range(7, len(rows[0]), 3)
        total = sum(row[column] or 0.0 for row in rows for column in columns)
        found.seconds += total * self.run.calls * 1e-6
        for row in rows[: max(0, ROWS_KEPT - found.rows)]:
            times = [
                printed_time(row[column]) if row[column] else row[column] for column in columns
            ]
            wrong = [row[column + 2] for column in columns]
            found.add_row([*row[1:6], *times, *wrong], times)
            if row[6] is not None:
                found.stamps.add(stamp_of(row[6]))
        found.rows += max(0, len(rows) - ROWS_KEPT)

    def finish(self) -> Iterator[RunSamples]:
        """Yield the last samples, and check the whole table."""
        yield from self.emit()
        self._note_platform()
        if self.found.rows and not self.found.samples:
            # Rows of an unknown choice give no samples. The run is still yielded, because it may be
            # a duplicate of a known run.
            yield RunSamples(self.found, [])
        any_rows = self._empty or (self._check is not None and self._check.any_rows)
        if not self.footer and not self.copies and any_rows:
            self._context.report.flag(
                FlagKind.ABORTED,
                "a table ends without its footer: the run was aborted, or the file is cut",
                self.line,
            )
        if self.average is not None and self._check is not None and self.sound and not self.copies:
            self._check.count_empty(self._empty)
            self._check.compare(*self.average, self._context.report)

    def _note_platform(self) -> None:
        """Record the platform facts of header and log. The log may continue after the rows."""
        found, run = self.found, self.run
        if self._logs is not None and self._logs.lines != self._log_lines:
            self._log = self._joined_log()
        processes = sorted({(device.host, device.pid) for device in run.devices})
        found.pids = text_id(str(processes))[:8] if processes else ""
        found.stamps.fill(run.stamps)
        found.stamps.fill(self._log.stamps)
        free = self._label.choice == DEFAULT
        conditions = *run.conditions, *(f"{name} preloaded" for name in replacements(run.preloaded))
        if self._scale.shared:
            conditions = *conditions, SHARED_GPUS
        if self.apart:
            conditions = *conditions, f"column {self.found.heading!r}"
        facts = run.facts(self._log, emulated=self._scale.emulated, restricted=free)
        if self.apart and facts.settings_by == "command" and _WITHOUT.search(self.found.heading):
            # What the text sets may be what this column is without.
            facts = replace(facts, settings={}, settings_by=None, commanded=None)
        version = version_of_heading(self.found.heading)
        facts = replace(facts, nccl=version or facts.nccl or self.nccl)
        if isinstance(self._label.choice, Choice) and pinned_channels(facts.settings) is not None:
            # They force a part of the choice, as NCCL_ALGO and NCCL_PROTO do.
            limits = {name for pair in CHANNEL_LIMITS for name in pair}
            settings = {key: facts.settings[key] for key in facts.settings.keys() - limits}
            commanded = facts.commanded and tuple(set(facts.commanded) - limits)
            facts = replace(facts, settings=settings, commanded=commanded)
        tuner = tuner_of(self._log, run.command) or ""
        found.facts = replace(facts, conditions=conditions, tuner=tuner)

    def _prepare(self, rows: list[FlatRow]) -> BandwidthCheck:
        """Find collective, scale and choice of the table.

        This is called once, when the first rows are emitted.
        """
        run, context = self.run, self._context
        report, options = context.report, context.options
        log = self._log = self._joined_log()
        host = run.first_host
        self._source = Source(
            tool=TOOL,
            version=run.tool_version,
            nccl_version=log.version or run.nccl_version,
            host_hash=host_hash(host) if host else None,
            file_hash=report.file_hash or None,
        )
        known_ranks = run.ranks or log.ranks or options.ranks
        columns = self.left | ({"error"} & set(self.layout.labels))
        checked = zip(self.layout.in_place, rows[0][9::3], strict=False)
        checks = frozenset(in_place for in_place, wrong in checked if wrong is not None)
        # Without both placements N/A says nothing, nor without their order if it is of the first.
        is_ordered = not self.layout.placements_assumed or checks == {False}
        known = len(self.layout.in_place) == 2 and is_ordered
        shape = Shape(*rows[0][1:6])._replace(columns=columns)
        shape = shape._replace(checked=checks) if known else shape
        factor = None if self.layout.cpu_time else bus_factor_of(rows) or self.layout.ratio
        named = collective_of_title(self.found.heading) or find_collective(
            run.collective,
            shape,
            log,
            options,
            context.name,
            known_ranks,
            factor,
            self.share,
            run.command.collective if run.command is not None else None,
            directly=run.command is not None and run.command.ranks is not None,
        )
        titled = collective_of_title(self.found.title)
        only = None if isinstance(named, Collective) else titled or context.collective
        if only and not contradiction(only, shape, factor, self.share, known_ranks):
            if only is not titled:
                report.flag(FlagKind.NOTE, only_collective(only), self.line)
            named = only
        self._scale = find_scale(report, self.line, self._scale_evidence(rows, named, log))
        self._fill_report()
        found = self.found
        found.source, found.registered = self._source, run.registration is not None or run.graph > 0
        found.nodes, found.ranks, found.graph = self._scale.nodes, self._scale.ranks, run.graph > 0
        if isinstance(named, Collective):
            if named is options.collective and (
                words := contradiction(named, shape, factor, self.share, known_ranks)
            ):
                report.flag(FlagKind.NOTE, words, self.line, doubtful=True)
            self._collective = found.collective = named
            self._label = self._find_label(named, log)
        else:
            report.flag(FlagKind.COLLECTIVE_UNKNOWN, f"{named}: give --collective", self.line)
        return BandwidthCheck(self._collective, self._scale.ranks, self.layout.cpu_time)

    def _find_label(self, collective: Collective, log: NcclLog) -> Label:
        """Return the choice of the table; no row of a device kernel gets one."""
        run, context = self.run, self._context
        kernel = run.options.get("D", 0)
        if kernel and not context.options.started_here:
            sentence = (
                f"-D {kernel} runs a kernel of nccl-tests, not a collective of NCCL: its rows are"
                " left out"
            )
            context.report.flag(FlagKind.DEVICE_KERNEL, sentence, self.line)
            return Label(None, sentence, FlagKind.DEVICE_KERNEL, True)
        report, options = context.report, context.options
        label = find_label(
            collective,
            log,
            run.command,
            options,
            context.name,
            report,
            self.line,
            self.found.heading,
        )
        others = ", ".join(map(repr, replacements(run.preloaded)))
        if others:
            is_default = label.choice == DEFAULT
            effect = ": what is called default here may not be NCCL's" if is_default else ""
            sentence = f"LD_PRELOAD loads {others}, which may replace NCCL{effect}"
            report.flag(FlagKind.LIBRARY_PRELOADED, sentence, self.line, doubtful=is_default)
        return label

    def _scale_evidence(
        self, rows: list[FlatRow], found: Collective | str, log: NcclLog
    ) -> ScaleEvidence:
        run, options = self.run, self._context.options
        command = run.command or CommandFound(None, None, 0)
        stated = next(filter(any, (self.stated, run.stated)), scale_of_heading(self.found.heading))
        titled, headed = (command.titled or (None, 0))[0], command.headed
        if command.each and (stated[0] or titled):
            headed = command.each * (stated[0] or titled or 1)
        elif titled and stated[0] not in (None, titled):
            headed = None  # of the nodes in the heading, not of these
        bounds = None
        if isinstance(found, str) and rows[0][1] != rows[0][2] * DTYPE_BYTES.get(rows[0][3], 0):
            counted = bounds_by_count(rows)
            bounds = counted if counted is not None and counted.exact else None
        if isinstance(found, Collective) and not self.layout.cpu_time:
            bounds = rank_bounds(rows, found)
            if self.layout.ratio is not None:
                bounds = bounds_of_ratio(*self.layout.ratio, found)
        return ScaleEvidence(
            listed=run.ranks,
            listed_hosts=run.hosts,
            machines=run.machines,
            last_rank=None if run.list_complete else run.last_rank,
            last_device=0 if run.list_complete else run.last_device,
            logged=(log.nodes, log.ranks),
            logged_hosts=None if self._logs is None else self._logs.hosts(log.ranks),
            given=(options.nodes, options.ranks),
            stated=stated,
            commanded=command.ranks,
            commanded_nodes=command.nodes,
            titled=command.titled,
            worded=command.worded,
            headed=headed,
            earlier=command.earlier,
            named=scale_of_name(self._context.name),
            bounds=bounds,
            processes=len({(device.host, device.pid) for device in run.group}),
            one_visible=run.one_visible,
        )

    def _joined_log(self) -> NcclLog:
        """Return the log in the output, merged with log files of processes in the device list."""
        run = self.run
        if self._logs is None:
            own = run.log
        else:
            own, self._log_lines = self._logs.merged(run.group), self._logs.lines
        keys = dict.fromkeys(process_key(item.host, item.pid) for item in sorted(run.group))
        others = {key: self._context.logs[key] for key in keys if key in self._context.logs}
        if not others:
            return own
        joined = NcclLog()
        joined.merge(own, "the output")
        for (host, pid), log in others.items():
            joined.merge(log, f"{host}:{pid}")
        return joined

    def _fill_report(self) -> None:
        report, run, log, scale = self._context.report, self.run, self._log, self._scale
        report.tool_version = report.tool_version or run.tool_version
        report.nccl_version = report.nccl_version or self._source.nccl_version
        if report.gpu is None:
            gpus = {device.gpu for device in run.devices}
            report.gpu = gpus.pop() if len(gpus) == 1 else None
        if scale.ranks:
            report.gpus = max(report.gpus or 0, scale.ranks)
        if scale.nodes:
            report.nodes = max(report.nodes or 0, scale.nodes)
        report.emulated_nodes = report.emulated_nodes or scale.emulated
        report.network = report.network or log.network
        report.settings.update(log.settings)
        if run.aggregated > 1:
            report.flag(
                FlagKind.AGGREGATED,
                f"{run.aggregated} operations were grouped (-m): NCCL chooses by their sum",
                self.line,
            )
        commanded = run.command.settings if run.command is not None else None
        profiler = {**(commanded or {}), **log.settings}.get("NCCL_PROFILER_PLUGIN", "none")
        if profiler.lower() not in ("", "none"):
            sentence = f"the profiler plugin {profiler!r} was loaded: its cost is part of the times"
            report.flag(FlagKind.NOTE, sentence, self.line)
        for condition in run.conditions:
            if not condition.startswith("-m "):
                sentence = f"{condition}: not the time of plain calls, kept apart from those"
                report.flag(FlagKind.CONDITION, sentence, self.line)
        if self.layout.cpu_time:
            report.flag(
                FlagKind.CPU_TIME,
                "-C printed CPU times: times are taken from the bandwidth where it has 3 digits",
                self.line,
            )

    def _point(self, collective: Collective, head: tuple[object, ...]) -> _Point | None:
        """Return the choice and the passes of the rows that start with `head` (size to root).

        None if it is unknown which choice ran.
        """
        size = head[0]
        assert isinstance(size, int)
        scale = self._scale
        if self._label.refused:
            return None
        choice, ran = label_of_row(
            self._label.choice,
            self._log.ran(collective, size, scale.ranks),
            self._context.report,
            self.line,
        )
        if choice is None:
            return None
        passes = self._passes.setdefault((choice, *head), [0] * len(self.layout.in_place))
        return _Point(choice, ran, passes)

    def _samples(self, rows: list[FlatRow], collective: Collective) -> list[Sample]:
        study, source = self._context.options.study, self._source
        nodes, ranks, iterations = self._scale.nodes, self._scale.ranks, self.run.iterations
        graph = self.run.graph > 0
        registered = self.run.registration is not None or graph
        rare = registered or self.layout.stamped or rows[0][6] is not None
        points: dict[tuple[object, ...], _Point | None] = {}
        samples: list[Sample] = []
        append = samples.append
        placements = [(7 + 3 * at, at, place) for at, place in enumerate(self.layout.in_place)]
        lost = 0
        wrong_lines: list[int] = []
        for row in rows:
            head = row[1:6]
            try:
                point = points[head]
            except KeyError:
                point = points[head] = self._point(collective, head)
            if point is None:
                lost += 1
                continue
            size, _, dtype, redop, root = head
            next_pass, choice = point.passes, point.choice
            for column, at, in_place in placements:
                time_us = row[column]
                if not time_us:
                    self._no_time(row[0], time_us)
                    continue
                wrong = row[column + 2]
                if wrong:
                    wrong_lines.append(row[0])
                cycle = next_pass[at]
                next_pass[at] = cycle + 1
                # A call with more than 15 keywords is twice as slow (CPython 3.11 to 3.13).
                sample = Sample(
                    study=study,
                    collective=collective,
                    bytes=size,
                    dtype=dtype or None,
                    redop=redop,
                    nodes=nodes,
                    ranks=ranks,
                    in_place=in_place,
                    choice=choice,
                    ran=point.ran,
                    round=cycle,
                    iterations=iterations,
                    time_us=time_us,
                    wrong=wrong,
                    source=source,
                )
                if rare or root is not None:
                    sample = replace(
                        sample, root=root, registered=registered, graph=graph, at=row[6]
                    )
                append(sample)
        self._account(points, collective, lost, rows[0][0], wrong_lines)
        return samples

    def _no_time(self, line: int, time_us: float | None) -> None:
        if time_us is not None:
            reason = "CPU time only: the bandwidth has too few digits to compute the time"
            self._context.report.cannot_read(line, "", reason)

    def _account(
        self,
        points: dict[tuple[object, ...], _Point | None],
        collective: Collective,
        lost: int,
        line: int,
        wrong_lines: list[int],
    ) -> None:
        """Count the samples and the rows without a known choice in the report."""
        report, scale = self._context.report, self._scale
        for head, point in points.items():
            if point is None:
                continue
            number = sum(point.passes) - point.counted
            if number and isinstance(head[0], int):
                self.found.saw(choice_label(point.choice), number)
                report.saw_many(collective, point.choice, scale.nodes, scale.ranks, number, head[0])
        if wrong_lines:
            by = "error above what nccl-tests allows" if self.layout.errors else "#wrong above 0"
            report.flag(
                FlagKind.WRONG_RESULTS,
                f"elements came out wrong ({by}): those timings are kept but not used",
                wrong_lines[0],
            )
        if lost and self._label.problem_kind is not FlagKind.DEVICE_KERNEL:
            label = self._label
            report.flag(label.problem_kind, label.problem, line)
            reason = "it cannot be decided which algorithm or protocol ran"
            report.cannot_read(line, "", reason, lost)


def _choice(algorithm: str, protocol: str, channels: str) -> Choice | None:
    """Return the choice that rccl-tests names in a row; None if it names none that is known."""
    try:
        names = parse_algorithm(algorithm.lower()), parse_protocol(protocol.lower())
    except InputError:
        return None
    return Choice(*names, int(channels) if channels.isdecimal() and int(channels) else None)
