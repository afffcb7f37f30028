# SPDX-License-Identifier: Apache-2.0
"""Carries the comparison out: what the order asks for is run by the session."""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from nccltune.analyze.stats import MIN_ROUNDS
from nccltune.measure.p2p.board import Board
from nccltune.measure.p2p.runs import COMPUTE, Runs
from nccltune.measure.p2p.session import OutOfBudgetError, Process, Session, Starter, Status
from nccltune.measure.p2p.settings import Settings
from nccltune.measure.p2p.workload import workload
from nccltune.measure.sendrecv.order import Order
from nccltune.measure.sendrecv.settings import check_sizes, policies
from nccltune.measure.sendrecv.verdict import (
    Verdict,
    carried,
    decide,
    leader,
    points,
    policy_points,
    proof_gain,
)
from nccltune.model.errors import InputError, PlatformError

PAIRS = 6
LEAST_PAIRS = MIN_ROUNDS
"""Fewer cannot tell their own noise."""
NOISE_FLOOR = 0.02


class Wanted(NamedTuple):
    """Sizes from `low` to `high` bytes, `pairs` of processes; differences of less than
    `noise_floor` (0.02 is 2 %) are none. `policies` are tried besides; with `load` all is timed
    while the GPUs compute."""

    low: int
    high: int
    pairs: int = PAIRS
    policies: bool = False
    load: bool = False
    noise_floor: float = NOISE_FLOOR
    budget_s: float | None = None
    seed: int = 1


def check_wanted(wanted: Wanted) -> None:
    """Raise InputError for what could decide nothing."""
    check_sizes(wanted.low, wanted.high)
    if wanted.pairs < LEAST_PAIRS:
        raise InputError(f"{LEAST_PAIRS} pairs at least tell their own noise", where="--rounds")


class Driver:
    """One comparison in one study. `first` is a running process of NCCL alone, whose hello said
    what this machine is; `now` is a clock in seconds. Raises InputError for what is wanted but
    cannot be, PlatformError for several nodes."""

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
        check_wanted(wanted)
        if hello.nodes > 1:
            raise PlatformError(
                f"copy engines reach the GPUs of one node; this bench is on {hello.nodes}",
                hint="measure on one node: a threshold holds for all that are alike",
            )
        self._wanted = wanted
        self._floor = math.log1p(wanted.noise_floor)
        self._told = told
        self._session = Session(
            start,
            first,
            runs,
            workload(
                wanted.low,
                wanted.high,
                hello.ranks,
                hello.can.collectives,
                elsewhere=(),
                load=wanted.load,
            ),
            seed=wanted.seed,
            budget_s=wanted.budget_s,
            retry=True,
            now=now,
        )
        self._order = self._new_order()

    @property
    def order(self) -> Order:
        """What has run and what comes next."""
        return self._order

    @property
    def seconds_to_come(self) -> float:
        """About how long it takes from here."""
        return self._order.still_to_start() * self._session.expected_s

    def run(self) -> Verdict:
        """Compare until it is decided or the budget is spent. What is measured is in the study when
        this returns or raises."""
        try:
            if self._session.look_around():
                self._order = self._new_order()
            for settings in self._order.steps():
                for run in self._session.run(settings):
                    self._order.board.add(run)
                self._tell(settings)
        except OutOfBudgetError:
            return self.verdict("budget")
        return self.verdict("done")

    def verdict(self, reason: str) -> Verdict:
        """What can be said so far."""
        order, session = self._order, self._session
        decision = decide(order, self._floor)
        champion = order.champion.recorded if order.champion is not None else None
        return Verdict(
            reason=reason,
            settings=decision.settings,
            decided=decision.decided,
            from_bytes=decision.from_bytes,
            why=decision.why,
            load=COMPUTE if self._wanted.load else None,
            noise_floor=self._wanted.noise_floor,
            points=points(order, self._floor, decision.from_bytes),
            policies=policy_points(order, decision.from_bytes),
            champion=champion,
            proof=proof_gain(order, decision.from_bytes),
            failed={item.label: text for item, text in order.board.failed.items()},
            carried=carried(order),
            noise=order.board.noise(order.board.calls),
            nodes=session.hello.nodes,
            ranks=session.hello.ranks,
            processes=session.processes,
            known=session.known,
            seconds=session.spent_s,
            replay=session.hello.replay,
        )

    def _new_order(self) -> Order:
        return Order(
            Board(list(self._session.workload.calls())),
            policies() if self._wanted.policies else [],
            lambda: leader(self._order, self._floor),
            pairs=self._wanted.pairs,
            seed=self._wanted.seed,
        )

    def _tell(self, settings: Settings) -> None:
        score = self._order.board.score(settings)
        self._told(
            Status(
                spent_s=self._session.spent_s,
                left_s=self.seconds_to_come,
                processes=self._session.processes,
                known=self._session.known,
                stage=self._order.stage,
                settings=settings,
                gain=math.exp(score.gain) if score.n else None,
            )
        )
