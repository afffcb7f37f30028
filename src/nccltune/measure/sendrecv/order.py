# SPDX-License-Identifier: Apache-2.0
"""Which process to start next.

1. pairs     NCCL and copy engines as neighbours, now one first, now the other: these decide the
             threshold
2. policies  the policies asked for, a default before and after every two of them
3. proof     the best policy against copy engines without one, in pairs, where it led: only by
             these it is called faster
"""

import random
from collections.abc import Callable, Sequence

from nccltune.measure.p2p.board import Board
from nccltune.measure.p2p.race import Plan, alternating, heat
from nccltune.measure.p2p.settings import DEFAULT, Settings
from nccltune.measure.p2p.workload import Call
from nccltune.measure.sendrecv.settings import COPY_ENGINE

POLICY_STARTS = 3
PROOF_PAIRS = 6


class Order:
    """The processes on a board. `leader` says which policy is worth a proof, by what is on the
    board when all have run."""

    def __init__(
        self,
        board: Board,
        policies: Sequence[Settings],
        leader: Callable[[], Settings | None],
        *,
        pairs: int,
        seed: int,
    ) -> None:
        self.board = board
        self.policies = list(policies)
        self.pairs = pairs
        self.proof_pairs = PROOF_PAIRS
        self.stage = "pairs"
        self.champion: Settings | None = None
        """The policy that is proven, if one led."""
        self._leader = leader
        self._random = random.Random(seed)  # noqa: S311 - an order, not a secret

    def steps(self) -> Plan:
        """Every process to start, until nothing is open."""
        # One pair is lost where an interruption parts it.
        for pair in alternating(DEFAULT, COPY_ENGINE, 2 * self.pairs):
            if self.compared or COPY_ENGINE in self.board.failed:
                break
            yield from pair
        if self.policies and self.compared:
            self.stage = "policies"
            yield from heat(self.board, self.policies, POLICY_STARTS, self._random)
            self.champion = self._leader()
        if self.champion is not None:
            self.stage = "proof"
            for pair in alternating(COPY_ENGINE, self.champion, 2 * self.proof_pairs):
                if len(self.proof()) >= self.proof_pairs or self.champion in self.board.failed:
                    break
                yield from pair
        self.stage = "done"

    @property
    def compared(self) -> bool:
        """Whether all pairs have run."""
        return len(self.gains()) >= self.pairs

    def gains(self) -> list[dict[Call, float]]:
        """The gains of copy engines over NCCL, one for each pair."""
        return self.board.pairs(COPY_ENGINE, 0)[: self.pairs]

    def proof(self) -> list[dict[Call, float]]:
        """The gains of the champion over copy engines without a policy, one for each pair."""
        if self.champion is None:
            return []
        return self.board.pairs(self.champion, 0, over=COPY_ENGINE)

    def still_to_start(self) -> int:
        """About how many processes are still to come."""
        pairs = 2 * max(0, self.pairs - len(self.gains()))
        missing = sum(
            POLICY_STARTS - len(self.board.of(item))
            for item in self.policies
            if item not in self.board.failed
        )
        proof = 2 * self.proof_pairs - 2 * len(self.proof()) if self.stage == "proof" else 0
        # A default for every two policies. Whether there is a proof the policies decide.
        return pairs + (3 * missing + 1) // 2 + proof
