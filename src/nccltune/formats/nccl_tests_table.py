# SPDX-License-Identifier: Apache-2.0
"""Rows of one nccl-tests table to samples, with the checks that a table allows."""

from collections.abc import Iterator
from typing import NamedTuple

from nccltune.formats.context import Context
from nccltune.formats.evidence import (
    Label,
    Shape,
    find_collective,
    find_label,
    is_forced,
    overridden,
)
from nccltune.formats.nccl_log import NcclLog
from nccltune.formats.nccl_tests_layout import FlatRow, Layout, Row, Timing
from nccltune.formats.nccl_tests_run import Run, ScaleFound, find_scale
from nccltune.formats.reading import FlagKind
from nccltune.formats.redact import host_hash
from nccltune.formats.rounds import Scope
from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective
from nccltune.model.sample import Sample, Source

BATCH_ROWS = 8192
TOOL = "nccl-tests"
# `error` (before 2.13) is a relative difference; a result is wrong above this times ranks - 1
# (DeltaMaxValue in common.cu, 2.0 to 2.11). Integers may not differ at all.
_WRONG_DELTA = {"half": 1e-2, "bfloat16": 1e-2, "float": 1e-5, "double": 1e-12}
# Their printed bandwidth is not of the printed size.
_OTHER_BANDWIDTH = frozenset({Collective.HYPERCUBE, Collective.ALLTOALLV})


class _Target(NamedTuple):
    """Where the samples of one choice go."""

    choice: AnyChoice
    ran: Choice | None
    scope: Scope


class Table:
    """A table being read. Rows are gathered with `keep` or `add` and become samples in `emit`,
    as late as bounded memory allows, so that log lines after a row still tell what ran."""

    def __init__(self, run: Run, layout: Layout, context: Context, line: int) -> None:
        self.run = run
        self.layout = layout
        self.line = line
        self.rows: list[FlatRow] = []
        self.keep = self.rows.append
        self.footer = False
        self.copies = False
        self.sound = True
        self.average: tuple[float, int] | None = None
        self._context = context
        self._ready = False
        self._collective: Collective | None = None
        self._label = Label(None, "")
        self._scale = ScaleFound(None, None, False)
        self._source = Source(tool=TOOL)
        self._log = NcclLog()
        self._targets: dict[tuple[AnyChoice, Choice | None], _Target] = {}
        self._busbw_sum = 0.0
        self._busbw_slack = 0.0
        self._busbw_count = 0

    def add(self, row: Row) -> None:
        """Take in a carefully read row: size 0 is only counted, CPU times are turned into times."""
        report = self._context.report
        report.rows += 1
        if row.size == 0:
            report.rows_size_0 += 1
            self.count_empty(len(row.timings))
            return
        timings = [self._usable(row, timing) for timing in row.timings]
        flat: list[object] = [
            row.line,
            row.size,
            row.elements,
            row.dtype,
            row.redop,
            row.root,
            row.at,
        ]
        for timing in timings:
            flat += [timing.time_us, timing.busbw, timing.wrong]
        self.rows.append(tuple(flat))
        report.rows -= 1  # counted with the others in emit

    def count_empty(self, timings: int) -> None:
        """Count the timings of a row of size 0 into the average: they are in the printed one."""
        self._busbw_count += timings

    def _usable(self, row: Row, timing: Timing) -> Timing:
        wrong = timing.wrong
        if timing.delta is not None:
            ranks = self.run.ranks
            limit = _WRONG_DELTA.get(row.dtype, 0.0)
            wrong = None if ranks is None else int(timing.delta > limit * (ranks - 1))
        if not self.layout.cpu_time:
            return timing._replace(wrong=wrong)
        # -C prints the CPU's time but the call's bandwidth: with three digits it tells the time.
        exact = timing.algbw >= 1.0 and self.run.collective not in _OTHER_BANDWIDTH
        time_us = row.size / (timing.algbw * 1e3) if exact else 0.0
        return timing._replace(time_us=time_us, wrong=wrong)

    def emit(self) -> Iterator[list[Sample]]:
        """The samples of the rows gathered so far, which are then forgotten."""
        if not self.rows:
            return
        rows, self.rows[:] = self.rows.copy(), []
        if not self._ready:
            self._prepare(rows[0])
        report = self._context.report
        report.rows += len(rows)
        self._check_bandwidth(rows)
        if self._collective is None:
            return
        samples = self._samples(rows, self._collective)
        if samples:
            yield samples

    def finish(self) -> Iterator[list[Sample]]:
        """The last samples, and the checks of a whole table."""
        yield from self.emit()
        if not self.footer and not self.copies and self._busbw_count:
            self._context.report.flag(
                FlagKind.ABORTED,
                "a table ends without its footer: the run was aborted, or the file is cut",
                self.line,
            )
        self._check_average()

    def _prepare(self, first: FlatRow) -> None:
        """Find out what the table is of; once, when its first rows become samples."""
        self._ready = True
        run, context = self.run, self._context
        report, options = context.report, context.options
        log = self._log = self._joined_log()
        group = run.group
        self._scale = find_scale(
            report,
            self.line,
            listed=(run.hosts, run.ranks),
            logged=(log.nodes, log.ranks),
            told=(options.nodes, options.ranks),
            processes=len({(device.host, device.pid) for device in group}),
        )
        self._fill_report()
        shape = Shape(*first[1:6])
        found = find_collective(
            run.collective, shape, log, options, context.name, self._scale.ranks == 1
        )
        if not isinstance(found, Collective):
            report.flag(FlagKind.COLLECTIVE_UNKNOWN, f"{found}: say --collective", self.line)
            return
        self._collective = found
        self._label = find_label(
            found,
            log.algorithms,
            log.protocols,
            log.would_tell,
            options,
            context.name,
            report,
            self.line,
            log.tuner,
        )
        host = run.first_host
        self._source = Source(
            tool=TOOL,
            version=run.tool_version,
            nccl_version=log.version or run.nccl_version,
            host_hash=host_hash(host) if host else None,
            file_hash=report.file_hash or None,
        )

    def _joined_log(self) -> NcclLog:
        """The log in the output itself, else one read from a file of its own that was written by
        one of the processes in the device list."""
        if self.run.log.lines or not self._context.logs:
            return self.run.log
        for device in sorted(self.run.group):
            log = self._context.logs.get((device.host, device.pid))
            if log is not None:
                return log
        return self.run.log

    def _fill_report(self) -> None:
        report, run, log = self._context.report, self.run, self._log
        report.tool_version = report.tool_version or run.tool_version
        report.nccl_version = report.nccl_version or log.version or run.nccl_version
        gpus = {device.gpu for device in run.devices}
        if report.gpu is None and len(gpus) == 1:
            report.gpu = gpus.pop()
        if self._scale.ranks:
            report.gpus = max(report.gpus or 0, self._scale.ranks)
        if self._scale.nodes:
            report.nodes = max(report.nodes or 0, self._scale.nodes)
        report.emulated_nodes = report.emulated_nodes or self._scale.emulated
        report.network = report.network or log.network
        report.settings.update(log.settings)
        if run.aggregated > 1:
            report.flag(
                FlagKind.AGGREGATED,
                f"{run.aggregated} operations were grouped (-m): NCCL chooses by their sum",
                self.line,
            )
        if self.layout.cpu_time:
            report.flag(
                FlagKind.CPU_TIME,
                "-C printed CPU times: times are taken from the bandwidth where it has 3 digits",
                self.line,
            )

    def _target(self, collective: Collective, size: int) -> _Target | None:
        """Label of one size: the table's, unless the log says that something else ran."""
        label, ran = self._label.choice, self._log.ran(collective, size, self._scale.ranks)
        report = self._context.report
        if isinstance(ran, str):
            report.flag(
                FlagKind.TUNER_BYPASSED,
                f"a {ran} ran, which NCCL chooses without algorithm, protocol or tuner",
                self.line,
            )
            label, ran = (DEFAULT if label is None or is_forced(label) else label), None
        choice = label
        if isinstance(ran, Choice):
            if choice is None:
                choice = ran.without_channels()
            elif isinstance(choice, Choice) and (
                choice.without_channels() != ran.without_channels()
            ):
                report.flag(
                    FlagKind.CHOICE_OVERRIDDEN,
                    overridden(choice, ran.without_channels().label),
                    self.line,
                )
                choice = ran.without_channels()
        if choice is None:
            return None
        key = (choice, ran)
        if key not in self._targets:
            scope = self._context.rounds.scope(
                collective,
                choice,
                self._scale.nodes,
                self._scale.ranks,
                self.run.registered or self.run.graph > 0,
                self.run.graph > 0,
            )
            self._targets[key] = _Target(choice, ran, scope)
        return self._targets[key]

    def _samples(self, rows: list[FlatRow], collective: Collective) -> list[Sample]:
        report, run, rounds = self._context.report, self.run, self._context.rounds
        study, source, scale = self._context.options.study, self._source, self._scale
        nodes, ranks, iterations = scale.nodes, scale.ranks, run.iterations
        graph = run.graph > 0
        registered = run.registered or graph
        targets: dict[int, _Target | None] = {}
        samples: list[Sample] = []
        placements = list(enumerate(self.layout.in_place))
        wrong_rows = lost = 0
        most = rounds.rounds
        first_wrong = 0
        for row in rows:
            size = row[1]
            if size in targets:
                target = targets[size]
            else:
                target = targets[size] = self._target(collective, size)
            if target is None:
                lost += 1
                continue
            line, _, _, dtype, redop, root, at = row[:7]
            scope = target.scope
            for index, in_place in placements:
                time_us = row[7 + 3 * index]
                if time_us is None:
                    continue
                if not time_us:
                    report.cannot_read(
                        line, "", "CPU time only: bandwidth too low to tell the time"
                    )
                    continue
                wrong = row[9 + 3 * index]
                if wrong:
                    first_wrong = first_wrong or line
                    wrong_rows += 1
                key = (size, dtype, redop, root, in_place)
                cycle = scope.get(key, 0)
                scope[key] = cycle + 1
                if cycle >= most:
                    most = cycle + 1
                samples.append(
                    Sample(
                        study=study,
                        collective=collective,
                        bytes=size,
                        dtype=dtype,
                        redop=redop,
                        root=root,
                        nodes=nodes,
                        ranks=ranks,
                        in_place=in_place,
                        registered=registered,
                        graph=graph,
                        choice=target.choice,
                        ran=target.ran,
                        round=cycle,
                        iterations=iterations,
                        time_us=time_us,
                        wrong=wrong,
                        source=source,
                        at=at,
                    )
                )
        rounds.rounds = most
        if wrong_rows:
            report.flag(
                FlagKind.WRONG_RESULTS,
                "elements came out wrong (#wrong above 0): those timings are kept but not used",
                first_wrong,
            )
        if lost:
            self._cannot_label(rows[0][0], lost)
        self._count(samples)
        return samples

    def _cannot_label(self, line: int, rows: int) -> None:
        report = self._context.report
        report.flag(
            FlagKind.CHOICE_UNKNOWN,
            f"{self._label.said_by} forced one of algorithm and protocol, nothing tells the other:"
            " say --choice, or log with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING",
            line,
        )
        report.cannot_read(line, "", "it cannot be told which protocol or algorithm ran", rows)

    def _count(self, samples: list[Sample]) -> None:
        report = self._context.report
        by_choice: dict[AnyChoice, list[Sample]] = {}
        for sample in samples:
            by_choice.setdefault(sample.choice, []).append(sample)
        for group in by_choice.values():
            sizes = [sample.bytes for sample in group]
            report.saw_many(group[0], len(group), min(sizes), max(sizes))

    def _check_bandwidth(self, rows: list[FlatRow]) -> None:
        """Sum up the printed bus bandwidth and hold it against time and size of each row."""
        collective, ranks = self._collective, self._scale.ranks
        checked = (
            collective is not None
            and collective not in _OTHER_BANDWIDTH
            and ranks is not None
            and ranks > 1
            and not self.layout.cpu_time
        )
        factor = collective.bus_factor(ranks) / 1e3 if checked and collective and ranks else 0.0
        total = slack = 0.0
        first_off, off, absent = 0, 0, 0
        placements = range(7, 7 + 3 * len(self.layout.in_place), 3)
        for row in rows:
            size = row[1]
            for place in placements:
                time_us, printed = row[place], row[place + 1]
                if time_us is None:
                    absent += 1
                    continue
                # The printed digits end at 0.01 below 1000, at 0.1 or 1 above (6 characters).
                half = 0.005 if printed < 1000 else 0.05 if printed < 10000 else 0.5
                total += printed
                slack += half
                if not checked:
                    continue
                # Times end at 0.01 below 100, at 0.05 % or better above; 2 digits from 10 s on.
                rough = 0.005 / time_us if time_us < 100 else 5.1e-4 if time_us < 1e7 else 0.06
                if abs(size * factor / time_us - printed) > half * 1.01 + 1.02 * rough * printed:
                    first_off = first_off or row[0]
                    off += 1
        self._busbw_sum += total
        self._busbw_slack += slack
        self._busbw_count += len(rows) * len(placements) - absent
        if off and collective is not None:
            self._context.report.flag(
                FlagKind.BANDWIDTH_MISMATCH,
                f"the printed busbw is not that of size and time for {collective.prose} of"
                f" {ranks} ranks: another collective or number of ranks, or edited",
                first_off,
            )

    def _check_average(self) -> None:
        if self.average is None or self.copies or not self.sound or not self._busbw_count:
            return
        printed, line = self.average
        mean = self._busbw_sum / self._busbw_count
        slack = self._busbw_slack / self._busbw_count + 1e-5 * printed + 1e-6
        if abs(mean - printed) > slack:
            self._context.report.flag(
                FlagKind.AVERAGE_MISMATCH,
                f"the printed average bus bandwidth is {printed:g} GB/s, that of the rows"
                f" {mean:.6g}: rows are missing, or something was edited",
                line,
            )
