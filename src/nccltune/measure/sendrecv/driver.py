# SPDX-License-Identifier: Apache-2.0
"""The comparison of NCCL with copy engines by size."""

from typing import NamedTuple

from nccltune.analyze.stats import MIN_ROUNDS
from nccltune.measure.conversation import Hello
from nccltune.measure.p2p.board import Board
from nccltune.measure.p2p.runs import COMPUTE
from nccltune.measure.p2p.workload import Workload, workload
from nccltune.measure.sendrecv.comparison import Comparison
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
from nccltune.model.errors import InputError

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


class Driver(Comparison[Wanted, Order, Verdict]):
    """The comparison of NCCL with copy engines by size."""

    def verdict(self, reason: str) -> Verdict:
        """What can be said so far."""
        order = self._order
        decision = decide(order, self._floor)
        champion = order.champion.recorded if order.champion is not None else None
        return Verdict(
            **self._facts(reason),
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
            carried=carried(order.board),
        )

    def _check(self, hello: Hello) -> None:
        check_wanted(self._wanted)
        super()._check(hello)

    def _workload(self, hello: Hello) -> Workload:
        return workload(
            self._wanted.low,
            self._wanted.high,
            hello.ranks,
            hello.can.collectives,
            elsewhere=(),
            load=self._wanted.load,
        )

    def _new_order(self) -> Order:
        return Order(
            Board(list(self._session.workload.calls())),
            policies() if self._wanted.policies else [],
            lambda: leader(self._order, self._floor),
            pairs=self._wanted.pairs,
            seed=self._wanted.seed,
        )
