# SPDX-License-Identifier: Apache-2.0
"""Plans over several collectives: the adaptive plan, and the full grid that it is compared with."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive.collective_plan import CollectivePlan
from nccltune.measure.adaptive.size_state import SizeStates
from nccltune.measure.adaptive.time_estimate import Predictions, TimeEstimator, seconds_left
from nccltune.measure.bench.conversation import BenchPoint
from nccltune.measure.bench.round_request import PointKey, RequestSource, RoundRequest
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective

EXHAUSTIVE_FACTOR = 2


class CollectiveStatus(NamedTuple):
    """What is known of one collective, for display."""

    collective: Collective
    stage: str
    states: SizeStates
    timings: Timings
    gain_left: float


class Plan:
    """A plan over several collectives that returns what to measure next, step by step.

    Each of its `turns` returns requests. All of them must be answered through `feed` before that
    turn is called again; an empty list means done. Turns do not wait for each other. A plan is a
    pure function of its answers: when it is fed the samples of a study, it reaches the state of the
    run that measured them.
    """

    def __init__(
        self,
        plans: Sequence[CollectivePlan],
        predictions: Mapping[Collective, Predictions] | None = None,
    ) -> None:
        self._plans = {plan.collective: plan for plan in plans}
        self._predictions = predictions or {}
        self._iterations: dict[Collective, dict[int, int]] = {plan: {} for plan in self._plans}
        self._estimators: dict[Collective, TimeEstimator] = {}

    @property
    def turns(self) -> Sequence[RequestSource]:
        """Return one function per collective that returns what to measure next, cheap requests
        first."""
        return [plan.step for plan in self._plans.values()]

    def outline(self) -> list[RoundRequest]:
        """Return the first round of the coarse sizes, as if no choice were dropped."""
        return [
            RoundRequest(
                plan.collective, tuple(plan.unexplored), (DEFAULT, *plan.legal), 0, check=True
            )
            for plan in self._plans.values()
            if plan.unexplored
        ]

    def feed(self, key: PointKey, point: BenchPoint) -> None:
        """Take the answer to one point."""
        self._estimators.pop(key.collective, None)
        self._plans[key.collective].feed(key, point)

    def seconds(self, ask: RoundRequest) -> float:
        """Return about how long a request takes, in seconds."""
        return self._estimator(ask.collective).seconds(ask)

    def iterations(self, collective: Collective, size: int) -> int:
        """Return how many calls make one timing at a size.

        The number never changes once it is decided, so that all timings of a point are comparable.
        """
        decided = self._iterations[collective]
        if size not in decided:
            decided[size] = self._estimator(collective).iterations(size)
        return decided[size]

    def seconds_left(self) -> float:
        """Return about how long the rest takes, in seconds."""
        return math.fsum(
            seconds_left(plan, self._estimator(plan.collective)) for plan in self._plans.values()
        )

    @property
    def gain_left(self) -> float:
        """Return the gain still to be found, as a fraction: the largest over the collectives."""
        return math.expm1(max((plan.gain_left for plan in self._plans.values()), default=0.0))

    def statuses(self) -> list[CollectiveStatus]:
        """Return the status of every collective."""
        return [
            CollectiveStatus(plan.collective, plan.stage, plan.states, plan.timings, plan.gain_left)
            for plan in self._plans.values()
        ]

    def _estimator(self, collective: Collective) -> TimeEstimator:
        if collective not in self._estimators:
            self._estimators[collective] = TimeEstimator(
                self._plans[collective].timings,
                self._predictions.get(collective, {}),
                self._iterations[collective],
            )
        return self._estimators[collective]


class ExhaustivePlan(Plan):
    """A plan of every legal choice at sizes a factor of 2 apart, in `rounds` rounds.

    The plans of the collectives only collect the answers.
    """

    def __init__(
        self,
        plans: Sequence[CollectivePlan],
        predictions: Mapping[Collective, Predictions] | None = None,
        *,
        rounds: int,
    ) -> None:
        super().__init__(plans, predictions)
        self._rounds = rounds
        self._round = 0

    @property
    def turns(self) -> Sequence[RequestSource]:
        """Return one function for all collectives, so that each round measures all of them close in
        time."""
        return [self._step]

    def _step(self) -> list[RoundRequest]:
        """Return the next round. A choice that failed at a size is not tried there again."""
        if self._round == self._rounds:
            return []
        asks = [ask for plan in self._plans.values() for ask in self._whole(plan, self._round)]
        self._round += 1
        return asks

    def outline(self) -> list[RoundRequest]:
        """Return the first round."""
        return [ask for plan in self._plans.values() for ask in self._whole(plan, 0)]

    def seconds_left(self) -> float:
        """Return about how long the remaining rounds take, in seconds."""
        return math.fsum(
            (self._rounds - self._round) * self.seconds(ask)
            for plan in self._plans.values()
            for ask in self._whole(plan, 1)
        )

    @staticmethod
    def _whole(plan: CollectivePlan, round_: int) -> list[RoundRequest]:
        grouped: dict[tuple[str, ...], list[int]] = {}
        for size in plan.grid.every(EXHAUSTIVE_FACTOR):
            if size in plan.lost:
                continue
            out = plan.excluded(size)
            labels = tuple(choice.label for choice in plan.legal if choice not in out)
            grouped.setdefault(labels, []).append(size)
        by_label = {choice.label: choice for choice in plan.legal}
        return [
            RoundRequest(
                plan.collective,
                tuple(sizes),
                (DEFAULT, *(by_label[label] for label in labels)),
                round_,
                check=round_ == 0,
            )
            for labels, sizes in grouped.items()
        ]
