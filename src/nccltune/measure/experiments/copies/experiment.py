# SPDX-License-Identifier: Apache-2.0
"""The comparison of NCCL with copy engines by message size."""

import math
from typing import NamedTuple

from nccltune.analyze.stats import MIN_ROUNDS
from nccltune.measure.bench.conversation import Hello
from nccltune.measure.engine.gains import NeighbourGains
from nccltune.measure.engine.process_record import COMPUTE
from nccltune.measure.engine.settings import Settings
from nccltune.measure.engine.settings_experiment import SettingsExperiment
from nccltune.measure.engine.workload import Workload, workload
from nccltune.measure.experiments.copies.order import CopyOrder
from nccltune.measure.experiments.copies.settings import check_sizes, label, policies
from nccltune.measure.experiments.copies.verdict import (
    CopiesVerdict,
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
"""The least number of pairs. Fewer pairs do not show the noise."""
NOISE_FLOOR = 0.02


class CopiesScope(NamedTuple):
    """A comparison of sizes from `low` to `high` bytes in `pairs`: NCCL, copy engines.

    `policies` of the library may be tried as well. With `load`, the GPUs compute meanwhile.
    Differences below `noise_floor` (0.02 is 2 %) do not count.
    """

    low: int
    high: int
    pairs: int = PAIRS
    policies: bool = False
    load: bool = False
    noise_floor: float = NOISE_FLOOR
    budget_s: float | None = None
    seed: int = 1


def check_scope(scope: CopiesScope) -> None:
    """Raise InputError for options that cannot lead to a decision."""
    check_sizes(scope.low, scope.high)
    if scope.pairs < LEAST_PAIRS:
        raise InputError(
            f"{LEAST_PAIRS} pairs at least are needed to estimate the noise", where="‹pairs›"
        )


class CopiesExperiment(SettingsExperiment[CopiesScope, CopiesVerdict]):
    """The comparison of NCCL with copy engines by message size. Raises also PlatformError for
    several nodes."""

    retry = True

    @property
    def order(self) -> CopyOrder:
        """Return the object that orders the processes and holds their results."""
        return self._order

    def verdict(self, reason: str) -> CopiesVerdict:
        """Return the verdict on the results so far."""
        order = self._order
        decision = decide(order, self._floor)
        champion = order.champion.recorded if order.champion is not None else None
        return CopiesVerdict(
            **self._facts(reason),
            settings=decision.settings,
            decided=decision.decided,
            from_bytes=decision.from_bytes,
            why=decision.why,
            load=COMPUTE if self._scope.load else None,
            noise_floor=self._scope.noise_floor,
            points=points(order, self._floor, decision.from_bytes),
            policies=policy_points(order, decision.from_bytes),
            champion=champion,
            proof=proof_gain(order, decision.from_bytes),
            carried=carried(order.results),
        )

    @property
    def _floor(self) -> float:
        return math.log1p(self._scope.noise_floor)

    def _check(self, hello: Hello) -> None:
        check_scope(self._scope)
        if hello.nodes > 1:
            raise PlatformError(
                f"copy engines reach the GPUs of one node; this bench is on {hello.nodes}",
                hint="measure on one node: a threshold holds for all that are alike",
            )

    def _label(self, settings: Settings) -> str:
        return label(settings)

    def _workload(self, hello: Hello) -> Workload:
        return workload(
            self._scope.low,
            self._scope.high,
            hello.ranks,
            hello.can.collectives,
            elsewhere=(),
            load=self._scope.load,
        )

    def _new_plan(self) -> CopyOrder:
        self._order = CopyOrder(
            NeighbourGains(list(self._processes.workload.calls())),
            policies() if self._scope.policies else [],
            lambda: leader(self._order, self._floor),
            pairs=self._scope.pairs,
            seed=self._scope.seed,
        )
        return self._order
