# SPDX-License-Identifier: Apache-2.0
"""The base class of experiments that compare settings. Each process runs with one set of settings.

A subclass defines the calls that a process times (`_workload`), the order of the processes
(`_new_plan`), and the verdict on the results. This class handles the budget, the resumption of an
earlier run, the status, and the estimate of the time left.
"""

import contextlib
import math
import random
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from nccltune.measure.bench.conversation import BenchPoint, Hello, Measure
from nccltune.measure.bench.process import Bench
from nccltune.measure.engine.gains import NeighbourGains
from nccltune.measure.engine.process_record import (
    COMPUTE,
    ProcessLine,
    ProcessRecord,
    ProcessRun,
    ProcessSample,
    as_run,
    sample_of,
)
from nccltune.measure.engine.scheduler import (
    Budget,
    CallTask,
    EndReason,
    ExperimentStatus,
    ProcessTimes,
    Scheduler,
    StatusCallback,
    ignore_status,
    sequential_source,
)
from nccltune.measure.engine.settings import DEFAULT, Effective, Settings, read_effective
from nccltune.measure.engine.workload import RACED, Workload
from nccltune.model.errors import InputError, LaunchError, PlatformError
from nccltune.model.sample import SCHEMA_VERSION


class BenchProcess(Protocol):
    """A running bench whose processes have the settings to measure."""

    @property
    def hello(self) -> Hello:
        """Return the first answer of the bench."""

    @property
    def recorded_s(self) -> float | None:
        """Return how long the recorded process took, in seconds; None if this is no replay."""

    @property
    def carried(self) -> Mapping[str, int] | None:
        """Return the messages by carrier, after the end; None without the send/recv library."""

    def effective(self) -> Effective | None:
        """Return the effective settings from NCCL's log; None if the log does not name them."""

    def measure(self, request: Measure) -> Iterator[list[BenchPoint]]:
        """Yield the points of a request as they arrive, like `Bench.measure`."""


class RunningBench:
    """A `BenchProcess` on the GPUs of this machine; `folder` has NCCL's log, if any."""

    recorded_s = None
    carried: Mapping[str, int] | None = None

    def __init__(self, bench: Bench, folder: Path | None = None) -> None:
        self._folder = folder
        self.hello = bench.hello
        self.measure = bench.measure

    def effective(self) -> Effective | None:
        """Return the effective settings from NCCL's log; None without a log."""
        return read_effective(self._folder) if self._folder is not None else None


Starter = Callable[[Settings, int], AbstractContextManager[BenchProcess]]
"""Starts a bench with the given settings. The number is that of the process in the study."""


class SettingsProcesses:
    """The processes of one study, of which `first` runs already, with the default settings.

    With `retry`, settings that failed in an earlier session are tried again. Raises PlatformError
    for a workload that the bench cannot measure, StudyError for a damaged study.
    """

    def __init__(
        self,
        start: Starter,
        first: BenchProcess,
        files: ProcessRecord,
        workload: Workload,
        *,
        seed: int,
        retry: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hello = first.hello
        _check_workload(workload, first.hello)
        self.known = 0
        """The number of processes taken from earlier sessions."""
        self._start = start
        self._first: BenchProcess | None = first
        self._files = files
        self._seed = seed
        self._now = now
        before = files.finished()
        self._recorded: dict[Settings, list[ProcessRun]] = defaultdict(list)
        for run in before:
            if not run.probe and not (retry and run.error is not None):
                self._recorded[run.settings].append(run)
        self._session = max((run.session for run in before), default=0) + 1
        self._next = files.next_process()
        self.times = ProcessTimes([run.seconds for run in before])
        self.probe = next((run for run in before if run.probe and run.error is None), None)
        """The first process, which shows how long each call takes and is not compared."""
        self.workload = workload if self.probe is None else workload.only(self.probe.times_us)

    def measure_probe(self) -> None:
        """Run the probe. Raises LaunchError if no size of send/recv could be measured."""
        run = self.measure(DEFAULT, probe=True)
        self.workload = self.workload.only(run.times_us)
        if not self.workload.sizes[RACED]:
            raise LaunchError("no size of send/recv could be measured", hint="try smaller ‹sizes›")
        self.probe = run

    def recorded(self, settings: Settings) -> list[ProcessRun]:
        """Return a list that ends with the next recorded process with these settings, if any.

        Before a candidate come defaults that the plan did not request (see `to_measure`).
        """
        left = self._recorded[settings]
        if not left:
            return []
        run = left.pop(0)
        found = []
        while settings != DEFAULT and (defaults := self._recorded[DEFAULT]):
            # Each of these defaults was the first process of a session. It was started for the
            # candidate that ran next, so return it together with that candidate.
            if defaults[0].process > run.process:
                break
            found.append(defaults.pop(0))
        found.append(run)
        self.known += len(found)
        return found

    def to_measure(self, settings: Settings) -> list[Settings]:
        """Return the settings of the processes to start when the plan requests `settings`.

        Processes of different sessions are not compared, so each session needs its own default.
        Before the first candidate of a session, a default is therefore added.
        """
        first = settings != DEFAULT and self._first is not None
        return [DEFAULT, settings] if first else [settings]

    def measure(self, settings: Settings, *, probe: bool = False) -> ProcessRun:
        """Run one process to its end, record it and return it with its results.

        If a candidate fails, nothing is raised; the returned process has the error.

        Raises LaunchError, PlatformError or InputError if the default does not run, LaunchError if
        the default gives wrong results, StudyError for a failed write.
        """
        process, self._next = self._next, self._next + 1
        began = self._now()
        samples: list[ProcessSample] = []
        made: Effective | None = None
        carried: Mapping[str, int] | None = None
        error: str | None = None
        recorded_s: float | None = None
        try:
            with self._started(settings, process) as bench:
                recorded_s = bench.recorded_s
                self._measure_calls(bench, settings, process, samples)
                made = bench.effective()
            carried = bench.carried
        except (LaunchError, PlatformError, InputError) as failure:
            if settings == DEFAULT:
                raise
            error = failure.message
        seconds = self._now() - began if recorded_s is None else recorded_s
        self.times.add(seconds)
        line = ProcessLine(
            process=process,
            session=self._session,
            settings=settings.recorded,
            load=COMPUTE if self.workload.load else None,
            probe=probe,
            effective=made,
            carried=dict(carried) if carried is not None else None,
            seconds=seconds,
            error=error,
        )
        self._files.lines.append([line])
        run = as_run(line, samples)
        if settings == DEFAULT and run.error is not None:
            raise LaunchError(
                f"with default settings {run.error}",
                hint="fix this first: such timings are invalid",
            )
        return run

    def _measure_calls(
        self, bench: BenchProcess, settings: Settings, process: int, samples: list[ProcessSample]
    ) -> None:
        known_us = self.probe.times_us if self.probe is not None else {}
        for request in self.workload.requests(known_us, self._seed + process):
            for points in bench.measure(request):
                kept = [
                    sample_of(point, request, self.hello, self._files.study.name, process, settings)
                    for point in points
                ]
                self._files.samples.append(kept)
                samples += kept

    def _started(self, settings: Settings, process: int) -> AbstractContextManager[BenchProcess]:
        if settings == DEFAULT and self._first is not None:
            first, self._first = self._first, None
            return contextlib.nullcontext(first)
        return self._start(settings, process)


def _check_workload(workload: Workload, hello: Hello) -> None:
    if RACED.value not in hello.can.collectives:
        raise PlatformError("the bench cannot measure send/recv here")
    if workload.load and not hello.can.load:
        raise PlatformError(
            "the bench cannot compute beside the calls here", hint="leave ‹load› out"
        )


_SPACING = 2
"""The number of candidates between two defaults."""

ProcessSteps = Generator[Settings, None, None]
"""Yields the settings of the next process, whose results must be added before the next."""


class ProcessPlan(Protocol):
    """Decides which process to start next. `stage` is the present stage, for display."""

    results: NeighbourGains
    stage: str

    def steps(self) -> ProcessSteps:
        """Yield the settings of every process, until nothing is left to decide."""

    def still_to_start(self) -> int:
        """Return about how many processes must still be started."""


def shuffled_starts(
    results: NeighbourGains, settings: Sequence[Settings], starts: int, order: random.Random
) -> ProcessSteps:
    """Yield the settings of processes until each of `settings` has run `starts` times.

    The order is shuffled, with a default before and after every two. Failed ones are skipped.
    """
    missing = [item for item in settings for _ in range(starts - len(results.runs_with(item)))]
    order.shuffle(missing)
    for item in missing:
        if item in results.failed:
            continue
        since = results.candidates_since_default()
        if since is None or since >= _SPACING:
            yield DEFAULT
        yield item
    if results.candidates_since_default():
        yield DEFAULT


def alternating(one: Settings, other: Settings, most: int) -> Iterator[tuple[Settings, Settings]]:
    """Yield `most` pairs of processes, in turn with `one` and `other` first: drift cancels."""
    for number in range(most):
        yield (one, other) if number % 2 == 0 else (other, one)


class ProcessVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What every verdict states of its run: `processes` of this one, `known` of others.

    `reason` is `done`, `budget` or `interrupted`. `failed` maps settings to the reason why a
    process with them failed.
    """

    schema_version: int = SCHEMA_VERSION
    reason: str
    failed: dict[str, str] = {}
    noise: float
    nodes: int
    ranks: int
    processes: int
    known: int
    seconds: float
    replay: str | None = None
    command: str = ""


class ExperimentScope(Protocol):
    """The options that all experiments have: a seed, and the limit of their time in seconds."""

    @property
    def seed(self) -> int:
        """Return the seed of the order of processes."""

    @property
    def budget_s(self) -> float | None:
        """Return the limit in seconds; None for no limit."""


S = TypeVar("S", bound=ExperimentScope)
V = TypeVar("V")


class SettingsExperiment(ABC, Generic[S, V]):
    """One experiment in one study, with the scope S and the verdict V.

    `start` starts a process with given settings; `first` is a running one of the default. Raises
    InputError for options that cannot lead to a decision, PlatformError if this machine cannot
    measure what the experiment needs, and StudyError for a damaged study.
    """

    retry: ClassVar[bool] = False
    """Whether settings that failed in an earlier run are tried again."""

    def __init__(
        self,
        start: Starter,
        first: BenchProcess,
        files: ProcessRecord,
        scope: S,
        on_status: StatusCallback = ignore_status,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scope = scope
        self._check(first.hello)
        self._on_status = on_status
        # NCCL's log is deleted when the process ends, so read it now.
        self._default_effective = first.effective()
        self._processes = SettingsProcesses(
            start,
            first,
            files,
            self._workload(first.hello),
            seed=scope.seed,
            retry=self.retry,
            now=now,
        )
        self._scheduler = Scheduler(Budget(scope.budget_s, lambda: self._processes.times.spent_s))
        self._plan = self._new_plan()

    @property
    def processes_to_come(self) -> int:
        """Return about how many processes must still be started."""
        return self._plan.still_to_start()

    @property
    def seconds_to_come(self) -> float:
        """Return about how long the processes still to start take, in seconds."""
        return self._plan.still_to_start() * self._processes.times.expected_s

    def run(self) -> V:
        """Measure, and return the verdict. Raises the errors of `measure`."""
        return self.verdict(self.measure())

    @abstractmethod
    def verdict(self, reason: str) -> V:
        """Return the verdict on the results so far. `reason` is why the measurement ended."""

    def measure(self) -> EndReason:
        """Measure until the result is decided or the budget is spent; all is in the study.

        Raises LaunchError, PlatformError or InputError if the default does not run or is wrong,
        LaunchError if no size can be measured, StudyError for a failed write.
        """
        return self._scheduler.run([sequential_source(self._tasks())])

    def _tasks(self) -> Iterator[Sequence[CallTask]]:
        if self._processes.probe is None:
            yield [CallTask(self._processes.times.expected_s, self._probe)]
        for settings in self._plan.steps():
            recorded = self._processes.recorded(settings)
            for run in recorded:
                self._plan.results.add(run)
            if recorded:
                self._report(settings)
                continue
            for item in self._processes.to_measure(settings):
                yield [self._task(item, report=item == settings)]

    def _task(self, settings: Settings, *, report: bool) -> CallTask:
        def run() -> None:
            self._plan.results.add(self._processes.measure(settings))
            if report:
                self._report(settings)

        return CallTask(self._processes.times.expected_s, run)

    def _probe(self) -> None:
        self._processes.measure_probe()
        self._plan = self._new_plan()

    def _report(self, settings: Settings) -> None:
        score = self._plan.results.score(settings)
        times = self._processes.times
        known = settings != DEFAULT and score.n > 0
        self._on_status(
            ExperimentStatus(
                process=times.processes + self._processes.known,
                processes=None,
                what=self._label(settings),
                spent_s=times.spent_s,
                left_s=self.seconds_to_come,
                stage=self._plan.stage,
                gain=math.exp(score.gain) if known else None,
            )
        )

    def _facts(self, reason: str) -> dict[str, Any]:
        results, hello = self._plan.results, self._processes.hello
        return {
            "reason": reason,
            "failed": {item.label: text for item, text in results.failed.items()},
            "noise": results.noise(results.raced),
            "nodes": hello.nodes,
            "ranks": hello.ranks,
            "processes": self._processes.times.processes,
            "known": self._processes.known,
            "seconds": self._processes.times.spent_s,
            "replay": hello.replay,
        }

    def _label(self, settings: Settings) -> str:
        return settings.label

    def _check(self, hello: Hello) -> None:
        """Raise InputError for undecidable options, PlatformError for an unfit machine."""

    @abstractmethod
    def _workload(self, hello: Hello) -> Workload: ...

    @abstractmethod
    def _new_plan(self) -> ProcessPlan:
        """Return a plan without results, at first and when the probe shows what can be measured."""
