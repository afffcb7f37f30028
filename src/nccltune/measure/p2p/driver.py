# SPDX-License-Identifier: Apache-2.0
"""Carries a race out: what the race asks for is run by the session, and put on the board."""

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from nccltune.measure.bench import Bench, Launch
from nccltune.measure.conversation import Hello, Measure, Point
from nccltune.measure.p2p.board import Board
from nccltune.measure.p2p.effective import Effective, log_settings, read_effective
from nccltune.measure.p2p.race import Race
from nccltune.measure.p2p.runs import Runs
from nccltune.measure.p2p.session import OutOfBudgetError, Process, Session, Starter, Status
from nccltune.measure.p2p.settings import DEFAULT, Settings, memory_bytes, moves
from nccltune.measure.p2p.verdict import Verdict, default_effective, effects, judge
from nccltune.measure.p2p.workload import RACED, workload


class Wanted(NamedTuple):
    """What to race over: sizes from `low` to `high` bytes; `threshold` is the mean gain over them
    (0.01 is 1 %) that settings must bring."""

    low: int
    high: int
    threshold: float = 0.01
    budget_s: float | None = None
    seed: int = 1


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
        self._wanted = wanted
        self._told = told
        self._session = Session(
            start,
            first,
            runs,
            workload(wanted.low, wanted.high, hello.ranks, hello.can.collectives),
            seed=wanted.seed,
            budget_s=wanted.budget_s,
            now=now,
        )
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
        return self._race.still_to_start() * self._session.expected_s

    def run(self) -> Verdict:
        """Race until it is decided or the budget is spent. What is measured is in the study when
        this returns or raises."""
        try:
            if self._session.look_around():
                assert self._session.look is not None
                self._race = self._new_race(self._session.look.effective)
            for settings in self._race.steps():
                for run in self._session.run(settings):
                    self._race.board.add(run)
                self._tell(settings)
        except OutOfBudgetError:
            return self.verdict("budget")
        return self.verdict("done")

    def verdict(self, reason: str) -> Verdict:
        """What can be said so far."""
        race, board, session = self._race, self._race.board, self._session
        hello = session.hello
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
            processes=session.processes,
            known=session.known,
            seconds=session.spent_s,
            replay=hello.replay,
        )

    def _new_race(self, made: Effective | None) -> Race:
        wanted = self._wanted
        if self._session.look is not None:
            made = self._session.look.effective or made
        return Race(
            Board(list(self._session.workload.calls())),
            moves(self._session.hello.nodes, made),
            threshold=math.log1p(wanted.threshold),
            seed=wanted.seed,
        )

    def _tell(self, settings: Settings) -> None:
        score = self._race.board.score(settings)
        self._told(
            Status(
                spent_s=self._session.spent_s,
                left_s=self.seconds_to_come,
                processes=self._session.processes,
                known=self._session.known,
                stage=self._race.stage,
                settings=settings,
                gain=math.exp(score.gain) if score.n else None,
            )
        )


class _OnGpus:
    """A bench of this machine, started with settings, and NCCL's log of it."""

    recorded_s = None
    carried = None

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
