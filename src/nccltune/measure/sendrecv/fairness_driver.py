# SPDX-License-Identifier: Apache-2.0
"""The comparison of chunks beside traffic."""

from typing import NamedTuple

from nccltune.measure.conversation import Hello
from nccltune.measure.p2p.board import Board
from nccltune.measure.p2p.workload import Workload, workload
from nccltune.measure.sendrecv.comparison import Comparison
from nccltune.measure.sendrecv.driver import LEAST_PAIRS, NOISE_FLOOR
from nccltune.measure.sendrecv.fairness import FairnessVerdict, Outcome, candidates, decide
from nccltune.measure.sendrecv.rounds import Rounds
from nccltune.measure.sendrecv.settings import check_bounds, chunks
from nccltune.measure.sendrecv.verdict import carried
from nccltune.model.errors import InputError

ROUNDS = 6
FACTOR = 8
"""Between sizes: three of them tell."""
TRAFFIC_BYTES = 256 << 20


class FairnessWanted(NamedTuple):
    """Sizes from `low` to `high` bytes beside messages of `traffic` bytes, `rounds` of processes;
    differences of less than `noise_floor` (0.02 is 2 %) are none."""

    low: int
    high: int
    rounds: int = ROUNDS
    traffic: int = TRAFFIC_BYTES
    noise_floor: float = NOISE_FLOOR
    budget_s: float | None = None
    seed: int = 1


def check_fairness_wanted(wanted: FairnessWanted) -> None:
    """Raise InputError for what could decide nothing."""
    check_bounds(wanted.low, wanted.high)
    if wanted.rounds < LEAST_PAIRS:
        raise InputError(f"{LEAST_PAIRS} rounds at least tell their own noise", where="--rounds")


class FairnessDriver(Comparison[FairnessWanted, Rounds, FairnessVerdict]):
    """The comparison of chunks."""

    def verdict(self, reason: str) -> FairnessVerdict:
        """What can be said so far."""
        order = self._order
        decision = decide(order, self._floor)
        return FairnessVerdict(
            **self._facts(reason),
            outcome=decision.outcome,
            settings=decision.settings,
            trade=decision.trade,
            decided=decision.outcome is not Outcome.OPEN,
            why=decision.why,
            traffic_bytes=self._wanted.traffic,
            noise_floor=self._wanted.noise_floor,
            candidates=candidates(order, self._floor),
            carried=carried(order.board),
        )

    def _check(self, hello: Hello) -> None:
        check_fairness_wanted(self._wanted)
        super()._check(hello)

    def _workload(self, hello: Hello) -> Workload:
        return workload(
            self._wanted.low,
            self._wanted.high,
            hello.ranks,
            hello.can.collectives,
            elsewhere=(),
            factor=FACTOR,
            traffic=self._wanted.traffic,
        )

    def _new_order(self) -> Rounds:
        return Rounds(
            Board(list(self._session.workload.calls())), chunks(), rounds=self._wanted.rounds
        )
