# SPDX-License-Identifier: Apache-2.0
"""The comparison of chunk sizes while large background messages (traffic) are sent."""

import time
from collections.abc import Callable
from typing import NamedTuple

from nccltune.measure.bench.conversation import Hello
from nccltune.measure.engine.gains import NeighbourGains
from nccltune.measure.engine.process_record import ProcessRecord
from nccltune.measure.engine.settings_processes import BenchProcess, Starter
from nccltune.measure.engine.status import StatusCallback, ignore_status
from nccltune.measure.engine.workload import Workload, workload
from nccltune.measure.experiments.copies.comparison import CopyComparison
from nccltune.measure.experiments.copies.experiment import LEAST_PAIRS, NOISE_FLOOR
from nccltune.measure.experiments.copies.fairness import (
    FairnessOutcome,
    FairnessVerdict,
    candidates,
    decide,
)
from nccltune.measure.experiments.copies.rounds import RoundsBesideTraffic
from nccltune.measure.experiments.copies.settings import check_bounds, chunks
from nccltune.measure.experiments.copies.verdict import carried
from nccltune.model.errors import InputError

ROUNDS = 6
FACTOR = 8
"""Ratio of each size to the size before. The default range then has three sizes, which is
enough."""
TRAFFIC_BYTES = 256 << 20


class FairnessScope(NamedTuple):
    """The options: messages from `low` to `high` bytes, and background messages of `traffic` bytes.

    `rounds` is the number of rounds of processes. Differences of less than `noise_floor` (0.02 is
    2 %) do not count.
    """

    low: int
    high: int
    rounds: int = ROUNDS
    traffic: int = TRAFFIC_BYTES
    noise_floor: float = NOISE_FLOOR
    budget_s: float | None = None
    seed: int = 1


def check_fairness_scope(scope: FairnessScope) -> None:
    """Raise InputError for options that cannot lead to a decision."""
    check_bounds(scope.low, scope.high)
    if scope.rounds < LEAST_PAIRS:
        raise InputError(
            f"{LEAST_PAIRS} rounds at least are needed to estimate the noise", where="--rounds"
        )


class FairnessExperiment(CopyComparison):
    """The comparison of chunk sizes during traffic.

    Raises the errors of `CopyComparison`.
    """

    reports_gains = False

    def __init__(
        self,
        start: Starter,
        first: BenchProcess,
        files: ProcessRecord,
        scope: FairnessScope,
        on_status: StatusCallback = ignore_status,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scope = scope
        super().__init__(
            start,
            first,
            files,
            noise_floor=scope.noise_floor,
            seed=scope.seed,
            budget_s=scope.budget_s,
            on_status=on_status,
            now=now,
        )

    @property
    def order(self) -> RoundsBesideTraffic:
        """Return the object that orders the processes and holds their results."""
        return self._order

    def run(self) -> FairnessVerdict:
        """Measure, and return the verdict.

        Raises the errors of `SettingsExperiment.measure`.
        """
        return self.verdict(self.measure())

    def verdict(self, reason: str) -> FairnessVerdict:
        """Return the verdict on the results so far. `reason` is why the measurement ended."""
        order = self._order
        decision = decide(order, self._floor)
        return FairnessVerdict(
            **self._facts(reason),
            outcome=decision.outcome,
            settings=decision.settings,
            trade=decision.trade,
            decided=decision.outcome is not FairnessOutcome.OPEN,
            why=decision.why,
            traffic_bytes=self._scope.traffic,
            noise_floor=self._scope.noise_floor,
            candidates=candidates(order, self._floor),
            carried=carried(order.results),
        )

    def _check_scope(self) -> None:
        check_fairness_scope(self._scope)

    def _workload(self, hello: Hello) -> Workload:
        return workload(
            self._scope.low,
            self._scope.high,
            hello.ranks,
            hello.can.collectives,
            elsewhere=(),
            factor=FACTOR,
            traffic=self._scope.traffic,
        )

    def _new_plan(self) -> RoundsBesideTraffic:
        self._order = RoundsBesideTraffic(
            NeighbourGains(list(self._processes.workload.calls())),
            chunks(),
            rounds=self._scope.rounds,
        )
        return self._order
