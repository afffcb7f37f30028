# SPDX-License-Identifier: Apache-2.0
"""One session of a study of processes: starts them one after the other, keeps every timing, minds
the budget, and hands out first what earlier sessions ran."""

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from nccltune.measure.conversation import Hello, Measure, Point
from nccltune.measure.p2p.effective import Effective
from nccltune.measure.p2p.runs import COMPUTE, P2pRun, P2pSample, Run, Runs, as_run, sample_of
from nccltune.measure.p2p.settings import DEFAULT, Settings
from nccltune.measure.p2p.workload import RACED, Workload
from nccltune.model.errors import InputError, LaunchError, PlatformError

FIRST_GUESS_S = 5.0
"""About how long a process takes, before one has run: most of it is NCCL's start."""


class Process(Protocol):
    """A bench that runs with some settings."""

    @property
    def hello(self) -> Hello:
        """Who answers."""

    @property
    def recorded_s(self) -> float | None:
        """How long it took when it was recorded; None where it is really running."""

    @property
    def carried(self) -> Mapping[str, int] | None:
        """Messages by who carried them, once it has ended; None where nothing counts them."""

    def effective(self) -> Effective | None:
        """What NCCL made of the settings, as far as it says so."""

    def measure(self, request: Measure) -> Iterator[list[Point]]:
        """As `Bench.measure`."""


Starter = Callable[[Settings, int], AbstractContextManager[Process]]
"""Starts a bench with settings as the process of this number."""


class Status(NamedTuple):
    """Where a session stands: the newest settings and their mean gain so far (a factor, None where
    there is no default beside them yet)."""

    spent_s: float
    left_s: float
    processes: int
    known: int
    stage: str
    settings: Settings
    gain: float | None


class OutOfBudgetError(Exception):
    """The next process would take longer than what is left."""


class Session:
    """`first` is a running process with the default settings, whose hello said what this machine
    is; `seed` orders sizes, `now` is a clock in seconds. With `retry` what failed in an earlier
    session is started again."""

    def __init__(
        self,
        start: Starter,
        first: Process,
        runs: Runs,
        workload: Workload,
        *,
        seed: int,
        budget_s: float | None = None,
        retry: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hello = first.hello
        if RACED.value not in self.hello.can.collectives:
            raise PlatformError("the bench cannot measure send/recv here")
        if workload.load and not self.hello.can.load:
            raise PlatformError(
                "the bench cannot compute beside the calls here", hint="leave --load out"
            )
        if workload.traffic and not self.hello.can.traffic:
            raise PlatformError(
                "the bench cannot keep messages going beside the calls here",
                hint="leave --fairness out",
            )
        self.spent_s = 0.0
        self.processes = 0
        self.known = 0
        self._start = start
        self._first: Process | None = first
        self._runs = runs
        self._seed = seed
        self._budget_s = budget_s
        self._now = now
        before = runs.finished()
        self._pool: dict[Settings, list[Run]] = defaultdict(list)
        for run in before:
            if not run.look and not (retry and run.error is not None):
                self._pool[run.settings].append(run)
        self._session = max((run.session for run in before), default=0) + 1
        self._next = runs.next_process()
        self._seconds = [run.seconds for run in before]
        self.look = next((run for run in before if run.look and run.error is None), None)
        self.workload = workload if self.look is None else workload.only(self.look.times_us)

    @property
    def expected_s(self) -> float:
        """About how long a process takes."""
        return math.fsum(self._seconds) / len(self._seconds) if self._seconds else FIRST_GUESS_S

    def look_around(self) -> bool:
        """Let the first process of a study look how long a call takes and what does not fit; False
        where that is known."""
        if self.look is not None:
            return False
        run = self._measure(DEFAULT, look=True)
        self.workload = self.workload.only(run.times_us)
        if not self.workload.sizes[RACED]:
            raise LaunchError("no size of send/recv could be measured", hint="try smaller --sizes")
        self.look = run
        return True

    def run(self, settings: Settings) -> Iterator[Run]:
        """The next process with these settings, recorded or fresh; before it defaults that nobody
        asked for, but that are beside it. Raises OutOfBudgetError."""
        recorded = self._pool[settings]
        if not recorded:
            if settings != DEFAULT and self._first is not None:
                # What was measured before an interruption is not beside what comes after it.
                yield self._measure(DEFAULT)
            yield self._measure(settings)
            return
        run = recorded.pop(0)
        self.known += 1
        while settings != DEFAULT and (defaults := self._pool[DEFAULT]):
            # One that nobody asked for: the default beside what came after an interruption.
            if defaults[0].process > run.process:
                break
            self.known += 1
            yield defaults.pop(0)
        yield run

    def _measure(self, settings: Settings, *, look: bool = False) -> Run:
        """Run one process to its end. The default must run; where other settings fail, that is
        their result."""
        if not self._affordable():
            raise OutOfBudgetError
        process, self._next = self._next, self._next + 1
        began = self._now()
        samples: list[P2pSample] = []
        made: Effective | None = None
        carried: Mapping[str, int] | None = None
        error: str | None = None
        recorded_s: float | None = None
        try:
            with self._started(settings, process) as bench:
                recorded_s = bench.recorded_s
                self._ask(bench, settings, process, samples)
                made = bench.effective()
            carried = bench.carried
        except (LaunchError, PlatformError, InputError) as failure:
            if settings == DEFAULT:
                raise
            error = failure.message
        seconds = self._now() - began if recorded_s is None else recorded_s
        self.spent_s += seconds
        self._seconds.append(seconds)
        self.processes += 1
        line = P2pRun(
            process=process,
            session=self._session,
            settings=settings.recorded,
            load=COMPUTE if self.workload.load else None,
            traffic=self.workload.traffic or None,
            look=look,
            effective=made,
            carried=dict(carried) if carried is not None else None,
            seconds=seconds,
            error=error,
        )
        self._runs.end(line)
        run = as_run(line, samples)
        if settings == DEFAULT and run.error is not None:
            raise LaunchError(f"with default settings {run.error}", hint="this is not NCCL's speed")
        return run

    def _ask(
        self, bench: Process, settings: Settings, process: int, samples: list[P2pSample]
    ) -> None:
        known_us = self.look.times_us if self.look is not None else {}
        for request in self.workload.requests(known_us, self._seed + process):
            for points in bench.measure(request):
                kept = [
                    sample_of(
                        point,
                        request,
                        self.hello,
                        self._runs.study.name,
                        process,
                        settings,
                    )
                    for point in points
                ]
                self._runs.keep(kept)
                samples += kept

    def _started(self, settings: Settings, process: int) -> AbstractContextManager[Process]:
        if settings == DEFAULT and self._first is not None:
            first, self._first = self._first, None
            return contextlib.nullcontext(first)
        return self._start(settings, process)

    def _affordable(self) -> bool:
        return self._budget_s is None or self.spent_s + self.expected_s <= self._budget_s
