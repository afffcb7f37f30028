# SPDX-License-Identifier: Apache-2.0
"""Run the processes of a trial: a program that prints tables of nccl-tests, or a job."""

import io
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.nccl_tests.process_logs import read_process_logs
from nccltune.formats.nccl_tests.text import read_text
from nccltune.formats.reading.context import Context, ReadOptions
from nccltune.formats.reading.file_report import FileReport, FlagKind
from nccltune.measure.bench.conversation import SCHEMA_VERSION, BenchGpu, Hello, Nccl
from nccltune.measure.bench.with_launcher import WithLauncher, program_command
from nccltune.measure.engine.program import InterruptedProgram, ProgramResult, run_program
from nccltune.measure.experiments.ab.experiment import ProcessResult
from nccltune.measure.experiments.ab.facts import LOG, logs_of_start, read_facts
from nccltune.measure.experiments.ab.settings import LIBRARY, PRELOAD, SettingChanges, applied
from nccltune.measure.experiments.ab.speed import JobSpeed, Metric, read_speed, unread, wall_speed
from nccltune.model.choice import DEFAULT
from nccltune.model.sample import Sample

TOOL = "nccl-tests"
LIMIT_S = 1800.0
"""A process that takes longer than this many seconds counts as hung and is killed."""


class JobReader:
    """Reads how fast a job is: by `metric`, else by a common form, else by its wall time.

    What was read of the first start, `used`, is read of all.
    """

    def __init__(self, metric: Metric | None = None) -> None:
        self._metric = metric
        self.used: str | None = None

    def read(self, ended: ProgramResult, seconds: float) -> JobSpeed:
        """Return the speed of a start that took so many seconds. Raises UnreadSpeedError."""
        output = [ended.output, ended.errors.encode()]
        found = read_speed(output, self._metric)
        if found is None and self._metric is None:
            found = wall_speed(seconds)
        if found is None:
            assert self._metric is not None
            raise unread(output, f"a start printed nothing that {self._metric.name!r} matches")
        if self.used is not None and found.metric != self.used:
            raise unread(output, f"a start printed no {self.used}, as the first one did")
        self.used = found.metric
        return found


class ProgramRunner:
    """Runs `program` with the environment `base`, for at most `limit_s` seconds.

    `tried` are the settings that `read_facts` searches for in NCCL's log. A process is killed after
    `limit_s` seconds. With `job`, the result of a process is its speed; else it is a table.
    """

    def __init__(
        self,
        program: Sequence[str],
        base: Mapping[str, str],
        tried: SettingChanges,
        *,
        with_launcher: WithLauncher | None = None,
        limit_s: float = LIMIT_S,
        job: JobReader | None = None,
    ) -> None:
        self._program = list(program)
        self._base = base
        self._tried = tried
        self._with_launcher = with_launcher
        self._limit_s = limit_s
        self._job = job

    def run(
        self,
        settings: SettingChanges,
        number: int,  # noqa: ARG002 - all processes run the same way
        keep: Callable[[Iterable[Sample]], None],
        *,
        choices: bool = False,
    ) -> ProcessResult:
        """Run one process. Raises PlatformError if it cannot be started, InputError for unknown
        nodes, LaunchError without pods."""
        with logs_of_start(self._with_launcher, choices=choices) as logs:
            variables = applied(self._base, settings) | logs.settings
            words, lines = self._command(variables, settings)
            began = time.monotonic()
            try:
                ended = run_program(words, variables, self._limit_s, lines=lines)
            except InterruptedProgram as stop:
                if self._job is None:
                    keep(_read(stop.output, {})[0])
                raise
            seconds = time.monotonic() - began
            logs.fetch()
            if self._job is not None:
                facts = read_facts(logs.folder, self._tried)
                if not ended.succeeded:
                    return ProcessResult(None, facts, ended.sentence())
                return ProcessResult(None, facts, speed=self._job.read(ended, seconds))
            samples, report = _read(ended.output, _logs(logs.folder))
            keep(samples)
            facts = read_facts(logs.folder, self._tried)
        error = None
        wrong = sum(bool(sample.wrong) for sample in samples)
        if wrong:
            error = f"gave wrong results: {wrong} timings with wrong elements"
        elif not ended.succeeded:
            error = ended.sentence()
        elif not samples or any(flag.kind is FlagKind.ABORTED for flag in report.flags):
            error = "ended with status 0, but printed no complete table of nccl-tests"
        return ProcessResult(_hello(report, samples), facts, error)

    def _command(
        self, variables: Mapping[str, str], settings: SettingChanges
    ) -> tuple[list[str], list[bytes]]:
        if self._with_launcher is None:
            return self._program, []
        names = {PRELOAD if name == LIBRARY else name for name in (*self._tried, *settings)}
        return program_command(self._program, self._with_launcher, variables, also=names)


def _read(
    output: bytes, logs: Mapping[tuple[str, int], NcclLog]
) -> tuple[list[Sample], FileReport]:
    """Return the samples of one process, whose tables are one round, and the report."""
    report = FileReport(name=TOOL)
    context = Context(
        name=TOOL,
        options=ReadOptions(study="", choice=DEFAULT, started_here=True),
        report=report,
        logs=dict(logs),
    )
    samples = []
    repeats: Counter[tuple[object, ...]] = Counter()
    for batch in read_text(io.BytesIO(output), context):
        for sample in batch.samples:
            # The reader counts consecutive tables as separate runs. Here all tables belong to one
            # process, so they are repeats in one round.
            point = (sample.collective, sample.bytes, sample.dtype, sample.redop, sample.in_place)
            samples.append(msgspec.structs.replace(sample, repeat=repeats[point], round=0))
            repeats[point] += 1
    return samples, report


def _logs(folder: Path) -> dict[tuple[str, int], NcclLog]:
    logs: dict[tuple[str, int], NcclLog] = {}
    for path in sorted(folder.glob(LOG)):
        with path.open("rb") as file:
            logs |= read_process_logs(file)
    return logs


def _hello(report: FileReport, samples: Sequence[Sample]) -> Hello:
    first = next(iter(samples), None)
    ranks = (first.ranks if first is not None else None) or report.gpus or 1
    return Hello(
        schema_version=SCHEMA_VERSION,
        version=report.tool_version or "unknown",
        backend=TOOL,
        nccl=Nccl(version=report.nccl_version),
        nodes=(first.nodes if first is not None else None) or report.nodes or 1,
        ranks=ranks,
        gpus=[BenchGpu(rank, report.gpu) for rank in range(ranks)],
    )
