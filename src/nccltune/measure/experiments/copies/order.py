# SPDX-License-Identifier: Apache-2.0
"""The order of processes in the comparison by message size. It has three stages:

1. pairs     one process with NCCL and one with copy engines, in alternating order; these pairs
             decide the threshold
2. policies  the requested policies, with a default before and after every two of them
3. proof     the best policy against copy engines without a policy, in pairs, if it seemed faster in
             stage 2; only these pairs decide whether it is faster
"""

import random
from collections.abc import Callable, Sequence

from nccltune.measure.engine.gains import NeighbourGains
from nccltune.measure.engine.settings import DEFAULT, Settings
from nccltune.measure.engine.settings_experiment import ProcessSteps, alternating, shuffled_starts
from nccltune.measure.engine.workload import Call
from nccltune.measure.experiments.copies.settings import COPY_ENGINE

POLICY_STARTS = 3
PROOF_PAIRS = 6


class CopyOrder:
    """Decides which process to start next in the comparison by message size.

    When all policies have run, `leader` returns the one that is worth a proof, if any.
    """

    def __init__(
        self,
        results: NeighbourGains,
        policies: Sequence[Settings],
        leader: Callable[[], Settings | None],
        *,
        pairs: int,
        seed: int,
    ) -> None:
        self.results = results
        self.policies = list(policies)
        self.pairs = pairs
        self.proof_pairs = PROOF_PAIRS
        self.stage = "pairs"
        self.champion: Settings | None = None
        """The policy to prove; None if no policy is worth a proof."""
        self._leader = leader
        self._random = random.Random(seed)  # noqa: S311 - only decides an order

    def steps(self) -> ProcessSteps:
        """Yield the settings of every process to start, until nothing is left to decide."""
        # An interruption can split a pair, and a split pair does not count. Allow twice the pairs.
        for pair in alternating(DEFAULT, COPY_ENGINE, 2 * self.pairs):
            if self.compared or COPY_ENGINE in self.results.failed:
                break
            yield from pair
        if self.policies and self.compared:
            self.stage = "policies"
            yield from shuffled_starts(self.results, self.policies, POLICY_STARTS, self._random)
            self.champion = self._leader()
        if self.champion is not None:
            self.stage = "proof"
            for pair in alternating(COPY_ENGINE, self.champion, 2 * self.proof_pairs):
                if (
                    len(self.proof_gains()) >= self.proof_pairs
                    or self.champion in self.results.failed
                ):
                    break
                yield from pair
        self.stage = "done"

    @property
    def compared(self) -> bool:
        """Return whether all pairs of NCCL and copy engines have run."""
        return len(self.pair_gains()) >= self.pairs

    def pair_gains(self) -> list[dict[Call, float]]:
        """Return, for each pair, the gain of copy engines over NCCL by call."""
        return self.results.pair_gains(COPY_ENGINE, 0)[: self.pairs]

    def proof_gains(self) -> list[dict[Call, float]]:
        """Return, for each pair of the proof, the champion's gain over plain copy engines."""
        if self.champion is None:
            return []
        return self.results.pair_gains(self.champion, 0, over=COPY_ENGINE)

    def still_to_start(self) -> int:
        """Return about how many processes must still be started."""
        pairs = 2 * max(0, self.pairs - len(self.pair_gains()))
        missing = sum(
            POLICY_STARTS - len(self.results.runs_with(item))
            for item in self.policies
            if item not in self.results.failed
        )
        proof = 2 * self.proof_pairs - 2 * len(self.proof_gains()) if self.stage == "proof" else 0
        # Every two policies need a default. Whether there is a proof is unknown until the policies
        # have run.
        return pairs + (3 * missing + 1) // 2 + proof
