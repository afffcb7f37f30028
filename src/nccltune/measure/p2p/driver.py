# SPDX-License-Identifier: Apache-2.0
"""Carries a race out: starts a process for every settings asked for, keeps every timing, minds the
budget, and goes on where it stopped."""

import contextlib
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from nccltune.measure.bench import Bench, Launch
from nccltune.measure.conversation import Hello, Measure, Point
from nccltune.measure.p2p.board import Board
from nccltune.measure.p2p.effective import Effective, log_settings, read_effective
from nccltune.measure.p2p.race import Race
from nccltune.measure.p2p.runs import P2pRun, P2pSample, Run, Runs, as_run, sample_of
from nccltune.measure.p2p.settings import DEFAULT, Settings, memory_bytes, moves
from nccltune.measure.p2p.verdict import Verdict, default_effective, effects, judge
from nccltune.measure.p2p.workload import RACED, workload
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

    def effective(self) -> Effective | None:
        """What NCCL made of the settings, as far as it says so."""

    def measure(self, request: Measure) -> Iterator[list[Point]]:
        """As `Bench.measure`."""


Starter = Callable[[Settings, int], AbstractContextManager[Process]]
"""Starts a bench with settings as the process of this number."""


class Wanted(NamedTuple):
    """What to race over: sizes from `low` to `high` bytes; `threshold` is the mean gain over them
    (0.01 is 1 %) that settings must bring."""

    low: int
    high: int
    threshold: float = 0.01
    budget_s: float | None = None
    seed: int = 1


class Status(NamedTuple):
    """Where a race stands: the newest settings and their mean gain so far (a factor, None where
    there is no default beside them yet)."""

    spent_s: float
    left_s: float
    processes: int
    known: int
    stage: str
    settings: Settings
    gain: float | None


class _OutOfBudgetError(Exception):
    pass


class Driver:
    """One race in one study. `first` is a running process with the default settings, whose hello
    said what this machine is; `now` is a clock in seconds."""

    def __init__(
        self,
        start: Starter,
        first: Process,
        runs: Runs,
        wanted: Wanted,
        told: Callable[[Status], None] = lambda _: None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        hello = first.hello
        if RACED.value not in hello.can.collectives:
            raise PlatformError("the bench cannot measure send/recv here")
        self._start = start
        self._first: Process | None = first
        self._hello = hello
        self._runs = runs
        self._wanted = wanted
        self._told = told
        self._now = now
        self._before = runs.finished()
        self._pool: dict[Settings, list[Run]] = defaultdict(list)
        for run in self._before:
            if not run.look:
                self._pool[run.settings].append(run)
        self._session = max((run.session for run in self._before), default=0) + 1
        self._next = runs.next_process()
        self._spent_s = 0.0
        self._processes = 0
        self._known = 0
        self._seconds = [run.seconds for run in self._before]
        self._look = next((run for run in self._before if run.look and run.error is None), None)
        whole = workload(wanted.low, wanted.high, hello.ranks, hello.can.collectives)
        self._workload = whole
        if self._look is not None:
            self._workload = whole.only(self._look.times_us)
        self._race = self._new_race(first.effective())

    @property
    def race(self) -> Race:
        """The race so far."""
        return self._race

    def first_moves(self) -> list[Settings]:
        """What would be tried first."""
        return [move.settings for move in self._race.moves]

    @property
    def seconds_to_come(self) -> float:
        """About how long it takes from here."""
        return self._race.still_to_start() * self._expected_s()

    def run(self) -> Verdict:
        """Race until it is decided or the budget is spent. What is measured is in the study when
        this returns or raises."""
        try:
            self._look_around()
            self._carry_out()
        except _OutOfBudgetError:
            return self.verdict("budget")
        return self.verdict("done")

    def verdict(self, reason: str) -> Verdict:
        """What can be said so far."""
        race, board, hello = self._race, self._race.board, self._hello
        worth, why = judge(race, reason, math.log1p(self._wanted.threshold))
        champion = race.champion
        gains = race.proof() or (board.gains(champion) if champion is not None else [])
        parts = []
        if champion is not None:
            parts = [
                effects(board, move.settings, alone, hello.ranks)
                for move in race.moves
                if move.settings != champion
                and set(move.settings.values) <= set(champion.values)
                and (alone := board.gains(move.settings))
            ]
        made = default_effective(board)
        return Verdict(
            reason=reason,
            settings=champion.as_dict if worth and champion else {},
            why=why,
            champion=effects(board, champion, gains, hello.ranks) if champion and gains else None,
            parts=parts,
            failed={settings.label: text for settings, text in board.failed.items()},
            default_effective=made,
            default_memory_bytes=memory_bytes(DEFAULT, made, hello.ranks),
            noise=board.noise([call for call in board.calls if call[0] is RACED]),
            nodes=hello.nodes,
            ranks=hello.ranks,
            processes=self._processes,
            known=self._known,
            seconds=self._spent_s,
            replay=hello.replay,
        )

    def _look_around(self) -> None:
        """The first process of a study only looks: how long a call takes, what does not fit."""
        if self._look is not None:
            return
        run = self._measure(DEFAULT, look=True)
        self._workload = self._workload.only(run.times_us)
        if not self._workload.sizes[RACED]:
            raise LaunchError("no size of send/recv could be measured", hint="try smaller --sizes")
        self._look = run
        self._race = self._new_race(run.effective)

    def _new_race(self, made: Effective | None) -> Race:
        wanted = self._wanted
        if self._look is not None:
            made = self._look.effective or made
        return Race(
            Board(list(self._workload.calls())),
            moves(self._hello.nodes, made),
            threshold=math.log1p(wanted.threshold),
            seed=wanted.seed,
        )

    def _carry_out(self) -> None:
        board = self._race.board
        for settings in self._race.steps():
            run = self._recorded(settings)
            if run is None:
                if settings != DEFAULT and self._first is not None:
                    # What was measured before an interruption is not beside what comes after it.
                    board.add(self._measure(DEFAULT))
                run = self._measure(settings)
            board.add(run)
            self._tell(settings)

    def _recorded(self, settings: Settings) -> Run | None:
        """The next process with these settings that an earlier session ran, if there is one."""
        if not self._pool[settings]:
            return None
        run = self._pool[settings].pop(0)
        self._known += 1
        while settings != DEFAULT and (defaults := self._pool[DEFAULT]):
            # One that nobody asked for: the default beside what came after an interruption.
            if defaults[0].process > run.process:
                break
            self._race.board.add(defaults.pop(0))
            self._known += 1
        return run

    def _measure(self, settings: Settings, *, look: bool = False) -> Run:
        """Run one process to its end. The default must run; where other settings fail, that is
        their result."""
        if not self._affordable():
            raise _OutOfBudgetError
        process, self._next = self._next, self._next + 1
        began = self._now()
        samples: list[P2pSample] = []
        made: Effective | None = None
        error: str | None = None
        recorded_s: float | None = None
        try:
            with self._started(settings, process) as bench:
                recorded_s = bench.recorded_s
                self._ask(bench, settings, process, samples)
                made = bench.effective()
        except (LaunchError, PlatformError, InputError) as failure:
            if settings == DEFAULT:
                raise
            error = failure.message
        seconds = self._now() - began if recorded_s is None else recorded_s
        self._spent_s += seconds
        self._seconds.append(seconds)
        self._processes += 1
        line = P2pRun(
            process=process,
            session=self._session,
            settings=settings.as_dict,
            look=look,
            effective=made,
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
        known_us = self._look.times_us if self._look is not None else {}
        for request in self._workload.requests(known_us, self._wanted.seed + process):
            for points in bench.measure(request):
                kept = [
                    sample_of(
                        point,
                        request.collective,
                        self._hello,
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
        budget = self._wanted.budget_s
        return budget is None or self._spent_s + self._expected_s() <= budget

    def _expected_s(self) -> float:
        return math.fsum(self._seconds) / len(self._seconds) if self._seconds else FIRST_GUESS_S

    def _tell(self, settings: Settings) -> None:
        score = self._race.board.score(settings)
        self._told(
            Status(
                spent_s=self._spent_s,
                left_s=self.seconds_to_come,
                processes=self._processes,
                known=self._known,
                stage=self._race.stage,
                settings=settings,
                gain=math.exp(score.gain) if score.n else None,
            )
        )


class _OnGpus:
    """A bench of this machine, started with settings, and NCCL's log of it."""

    recorded_s = None

    def __init__(self, bench: Bench, folder: Path) -> None:
        self._bench = bench
        self._folder = folder

    @property
    def hello(self) -> Hello:
        return self._bench.hello

    def effective(self) -> Effective | None:
        return read_effective(self._folder)

    def measure(self, request: Measure) -> Iterator[list[Point]]:
        return self._bench.measure(request)


def on_gpus(launch: Launch, *, program: list[str] | None = None) -> Starter:
    """A starter of `nccltune-bench` as `launch` says; `program` stands in for it."""

    @contextlib.contextmanager
    def start(settings: Settings, process: int) -> Iterator[Process]:  # noqa: ARG001
        with tempfile.TemporaryDirectory(prefix="nccltune-") as name:
            folder = Path(name)
            variables = {**log_settings(folder), **settings.environment}
            with Bench(launch, program=program, settings=variables) as bench:
                yield _OnGpus(bench, folder)

    return start
