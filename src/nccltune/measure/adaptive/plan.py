# SPDX-License-Identifier: Apache-2.0
"""Plans over several collectives: the adaptive plan and the full grid.

In `Plan`, the adaptive plan, this module decides nothing: each collective has a `CollectivePlan`
(`collective_plan.py`), which decides what is measured next. Only for the full grid does this module
decide: `ExhaustivePlan` requests every size and choice, as the reference for the adaptive plan.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive.collective_plan import CollectivePlan
from nccltune.measure.adaptive.rounds import SizeDecisions
from nccltune.measure.adaptive.size_state import SizeStates
from nccltune.measure.adaptive.time_estimate import (
    PlanEstimates,
    PlanKey,
    Predictions,
    seconds_left,
)
from nccltune.measure.bench.conditions import CallKind
from nccltune.measure.bench.conversation import BenchPoint, PointKey, RequestSource, RoundRequest
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective

EXHAUSTIVE_FACTOR = 2


class CollectiveStatus(NamedTuple):
    """The progress and the results of one collective with one kind of calls, for display.

    `decided` runs the rule search on the timings.
    """

    collective: Collective
    calls: CallKind
    stage: str
    states: SizeStates
    timings: Timings
    gain_left: float
    decided: Callable[[], SizeDecisions]


class Plan(PlanEstimates):
    """The adaptive plan: the plans of several collectives and kinds of calls, joined.

    Each function in `turns` returns the next requests of one collective, or an empty list at the
    end. All answers must be passed to `feed` before the same function is called again. The
    functions do not wait for each other. A plan depends only on the answers. A plan that is fed the
    samples of a study therefore reaches the same state as the run that measured them.

    In a plan for a job, `left_out` are the collectives that are not measured because their share of
    the job's time in NCCL is small, each with its share; else None. `unmeasured` are those that are
    not measured here at all, each with its share of the job's bytes, and `remarks` those on its
    recordings.
    """

    def __init__(
        self,
        plans: Sequence[CollectivePlan],
        predictions: Mapping[PlanKey, Predictions] | None = None,
        left_out: Mapping[Collective, float] | None = None,
    ) -> None:
        self.left_out = left_out
        self.unmeasured: Mapping[Collective, float] = {}
        self.remarks: Sequence[str] = ()
        self._plans = {(plan.collective, plan.calls): plan for plan in plans}
        super().__init__({key: plan.timings for key, plan in self._plans.items()}, predictions)

    @property
    def turns(self) -> Sequence[RequestSource]:
        """Return one function for each collective; it returns the next requests, none at the
        end."""
        return [plan.step for plan in self._plans.values()]

    def outline(self) -> list[RoundRequest]:
        """Return the first round of every coarse size not yet requested, with all legal choices."""
        return [
            RoundRequest(
                plan.collective,
                tuple(plan.unexplored),
                (DEFAULT, *plan.legal),
                0,
                check=True,
                calls=plan.calls,
            )
            for plan in self._plans.values()
            if plan.unexplored
        ]

    def feed(self, key: PointKey, point: BenchPoint) -> None:
        """Record the answer to one requested point."""
        self.forget((key.collective, key.calls))
        self._plans[key.collective, key.calls].feed(key, point)

    def seconds_left(self) -> float:
        """Return about how long all remaining measurements take, in seconds."""
        return math.fsum(
            seconds_left(plan, self.estimator(key)) for key, plan in self._plans.items()
        )

    @property
    def gain_left(self) -> float:
        """Return the gain that further measurements may still find, as a fraction.

        Each collective has its own value; the largest one is returned. For a job it is the sum,
        because each is a gain of the job's time in all collectives.
        """
        left = [plan.gain_left for plan in self._plans.values()]
        return math.expm1(math.fsum(left) if self.left_out is not None else max(left, default=0.0))

    def statuses(self) -> list[CollectiveStatus]:
        """Return the status of every collective."""
        return [
            CollectiveStatus(
                plan.collective,
                plan.calls,
                plan.stage,
                plan.states,
                plan.timings,
                plan.gain_left,
                plan.decided,
            )
            for plan in self._plans.values()
        ]


class ExhaustivePlan(Plan):
    """The full grid: every legal choice at sizes a factor of 2 apart, in `rounds` rounds.

    `plans` hold the legal choices and store the answers. Their own stages are not used.
    """

    def __init__(
        self,
        plans: Sequence[CollectivePlan],
        predictions: Mapping[PlanKey, Predictions] | None = None,
        *,
        rounds: int,
    ) -> None:
        super().__init__(plans, predictions)
        self._rounds = rounds
        self._round = 0

    @property
    def turns(self) -> Sequence[RequestSource]:
        """Return one function; each call gives a round of all collectives, close in time."""
        return [self._step]

    def _step(self) -> list[RoundRequest]:
        """Return the requests of the next round, without choices that failed at a size."""
        if self._round == self._rounds:
            return []
        asks = [ask for plan in self._plans.values() for ask in self._whole(plan, self._round)]
        self._round += 1
        return asks

    def outline(self) -> list[RoundRequest]:
        """Return the requests of the first round."""
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
                calls=plan.calls,
            )
            for labels, sizes in grouped.items()
        ]
