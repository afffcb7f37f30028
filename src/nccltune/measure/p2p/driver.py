# SPDX-License-Identifier: Apache-2.0
"""A race of settings, and what starts its processes."""

import contextlib
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nccltune.measure.bench import Bench, Launch
from nccltune.measure.conversation import Hello, Measure, Point
from nccltune.measure.p2p.board import Board
from nccltune.measure.p2p.effective import Effective, log_settings, read_effective
from nccltune.measure.p2p.process_sweep import ProcessSweep
from nccltune.measure.p2p.race import Race
from nccltune.measure.p2p.session import Process, Starter
from nccltune.measure.p2p.settings import DEFAULT, Settings, memory_bytes, moves
from nccltune.measure.p2p.verdict import Verdict, default_effective, effects, judge
from nccltune.measure.p2p.workload import Workload, workload


class Wanted(NamedTuple):
    """What to race over: sizes from `low` to `high` bytes; `threshold` is the mean gain over them
    (0.01 is 1 %) that settings must bring."""

    low: int
    high: int
    threshold: float = 0.01
    budget_s: float | None = None
    seed: int = 1


class Driver(ProcessSweep[Wanted, Race, Verdict]):
    """One race."""

    def first_moves(self) -> list[Settings]:
        """What would be tried first."""
        return [move.settings for move in self._order.moves]

    def verdict(self, reason: str) -> Verdict:
        """What can be said so far."""
        race, board = self._order, self._order.board
        ranks = self._session.hello.ranks
        worth, why = judge(race, reason, math.log1p(self._wanted.threshold))
        champion = race.champion
        gains = race.proof() or (board.gains(champion) if champion is not None else [])
        parts = []
        if champion is not None:
            parts = [
                effects(board, move.settings, alone, ranks)
                for move in race.moves
                if move.settings != champion
                and set(move.settings.values) <= set(champion.values)
                and (alone := board.gains(move.settings))
            ]
        made = default_effective(board)
        return Verdict(
            **self._facts(reason),
            settings=champion.as_dict if worth and champion else {},
            why=why,
            champion=effects(board, champion, gains, ranks) if champion and gains else None,
            parts=parts,
            default_effective=made,
            default_memory_bytes=memory_bytes(DEFAULT, made, ranks),
        )

    def _workload(self, hello: Hello) -> Workload:
        return workload(self._wanted.low, self._wanted.high, hello.ranks, hello.can.collectives)

    def _new_order(self) -> Race:
        look = self._session.look
        made = (look.effective if look is not None else None) or self._made
        return Race(
            Board(list(self._session.workload.calls())),
            moves(self._session.hello.nodes, made),
            threshold=math.log1p(self._wanted.threshold),
            seed=self._wanted.seed,
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
