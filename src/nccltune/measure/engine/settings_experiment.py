# SPDX-License-Identifier: Apache-2.0
"""The base class of experiments that compare settings. Each process runs with one set of settings.

A subclass defines the calls that a process times (`_workload`), the order of the processes
(`_new_plan`), and the verdict on the results. This class handles the budget, the resumption of an
earlier run, the status, and the estimate of the time left.
"""

import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import ClassVar, Generic, Protocol, TypedDict, TypeVar

from nccltune.measure.bench.conversation import Hello
from nccltune.measure.engine.gains import NeighbourGains
from nccltune.measure.engine.process_record import ProcessRecord
from nccltune.measure.engine.scheduler import (
    Budget,
    CallTask,
    EndReason,
    ExperimentStatus,
    Scheduler,
    StatusCallback,
    ignore_status,
    sequential_source,
)
from nccltune.measure.engine.settings import DEFAULT, Settings
from nccltune.measure.engine.settings_processes import BenchProcess, SettingsProcesses, Starter
from nccltune.measure.engine.workload import Workload

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


class RunFacts(TypedDict):
    """The fields that every verdict has of its run: `processes` of this one, `known` of others.

    `failed` maps settings to the reason why a process with them failed.
    """

    reason: str
    failed: dict[str, str]
    noise: float
    nodes: int
    ranks: int
    processes: int
    known: int
    seconds: float
    replay: str | None


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

    def _facts(self, reason: str) -> RunFacts:
        results, hello = self._plan.results, self._processes.hello
        return RunFacts(
            reason=reason,
            failed={item.label: text for item, text in results.failed.items()},
            noise=results.noise(results.raced),
            nodes=hello.nodes,
            ranks=hello.ranks,
            processes=self._processes.times.processes,
            known=self._processes.known,
            seconds=self._processes.times.spent_s,
            replay=hello.replay,
        )

    def _label(self, settings: Settings) -> str:
        return settings.label

    def _check(self, hello: Hello) -> None:
        """Raise InputError for undecidable options, PlatformError for an unfit machine."""

    @abstractmethod
    def _workload(self, hello: Hello) -> Workload: ...

    @abstractmethod
    def _new_plan(self) -> ProcessPlan:
        """Return a plan without results, at first and when the probe shows what can be measured."""
