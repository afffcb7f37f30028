# SPDX-License-Identifier: Apache-2.0
"""Estimate how long one request takes, and how long the rest of a plan takes."""

import math
from collections.abc import Mapping

from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive.collective_plan import CollectivePlan
from nccltune.measure.adaptive.refine import BOUNDARY_RATIO, Curves
from nccltune.measure.bench.conditions import PLAIN, CallKind
from nccltune.measure.bench.conversation import RoundRequest
from nccltune.model.choice import DEFAULT, AnyChoice
from nccltune.model.collective import Collective

Predictions = Mapping[int, Mapping[str, float]]
"""Times that NCCL predicts, in us, by size in bytes and by `algorithm/protocol`."""

PlanKey = tuple[Collective, CallKind]
"""A collective and how its calls are made: each has a plan, or a proof, of its own."""
TARGET_US = 1500.0
"""A timing repeats the call until the timed calls take about this long together, in us."""
MOST_ITERATIONS = 50
"""The most timed calls: the mean of 20 within a node already repeats within 0.3 %."""
_SMALL_BYTES = 1 << 20
_UNTIMED_CALLS = 3
"""Untimed calls up to `_SMALL_BYTES`: to check, to synchronise, to warm up. Larger have one."""
_UNKNOWN_US = 20.0
_UNKNOWN_BYTES_PER_US = 25e3
"""Assumed speed of an unknown call beyond `_UNKNOWN_US`, between sockets and NVLink."""
_OVERHEAD_US = 300.0
"""Time of a timing beside its calls, in us: switching, synchronising, reporting."""
_ROUNDS_TO_COME = 3
"""Rounds that a new size typically needs until its leader is decided."""
_MOST_ROUNDS_AHEAD = 8
_AFTER_EXPLORING = 1.5
"""Assumed time of all stages as a multiple of what `explore` still takes."""


class TimeEstimator:
    """Estimates times of one collective from its timings, else from NCCL's predictions.

    `decided` holds, by size, the numbers of timed calls that must not change.
    """

    def __init__(
        self, timings: Timings, predictions: Predictions, decided: Mapping[int, int] | None = None
    ) -> None:
        self._curves = Curves(timings)
        self._predictions = predictions
        self._decided = decided or {}

    def call_us(self, size: int, choice: AnyChoice) -> float:
        """Return about how long one call takes, in us."""
        log = self._curves.log_time(size, choice)
        if log is not None:
            return math.exp(log)
        near = self._curves.nearest(size, choice) or self._predicted(size, choice)
        if near is None and choice != DEFAULT:
            near = self._curves.nearest(size, DEFAULT)
        if near is None:
            return _UNKNOWN_US + size / _UNKNOWN_BYTES_PER_US
        at, log = near
        # For a larger size, multiply the time of the nearest size by the square root of the ratio
        # of sizes. The square root is between constant (latency dominates) and proportional
        # (bandwidth dominates). For a smaller size, keep the time.
        return math.exp(log) * math.sqrt(max(1.0, size / at))

    def seconds(self, ask: RoundRequest) -> float:
        """Return about how long a request takes, in seconds."""
        iterations = {size: self.iterations(size) for size in ask.sizes}
        return 1e-6 * math.fsum(
            point_us(key.bytes, self.call_us(key.bytes, key.choice), iterations[key.bytes])
            for key in ask.points()
        )

    def iterations(self, size: int) -> int:
        """Return the number of timed calls in one timing at a size, the same for every choice."""
        if size in self._decided:
            return self._decided[size]
        return min(math.ceil(TARGET_US / self.call_us(size, DEFAULT)), MOST_ITERATIONS)

    def _predicted(self, size: int, choice: AnyChoice) -> tuple[int, float] | None:
        if not self._predictions:
            return None
        near = min(self._predictions, key=lambda other: abs(math.log(other / size)))
        costs = self._predictions[near]
        cost = (
            min(costs.values(), default=0.0)
            if isinstance(choice, str)
            else costs.get(choice.without_channels().label, 0.0)
        )
        return (near, math.log(cost)) if cost > 0 else None


class PlanEstimates:
    """Estimates of the times of several collectives from their timings, as these grow."""

    def __init__(
        self,
        timings: Mapping[PlanKey, Timings],
        predictions: Mapping[PlanKey, Predictions] | None = None,
    ) -> None:
        self._timings = timings
        self._predictions = predictions or {}
        self._iterations: dict[PlanKey, dict[int, int]] = {key: {} for key in timings}
        self._estimators: dict[PlanKey, TimeEstimator] = {}

    def estimator(self, key: PlanKey) -> TimeEstimator:
        """Return the estimator of a collective, from all its timings before the last `forget`."""
        if key not in self._estimators:
            self._estimators[key] = TimeEstimator(
                self._timings[key], self._predictions.get(key, {}), self._iterations[key]
            )
        return self._estimators[key]

    def forget(self, key: PlanKey) -> None:
        """Drop the estimator of a collective that has a new timing."""
        self._estimators.pop(key, None)

    def seconds(self, ask: RoundRequest) -> float:
        """Return about how long a request takes, in seconds."""
        return self.estimator((ask.collective, ask.calls)).seconds(ask)

    def iterations(self, collective: Collective, size: int, calls: CallKind = PLAIN) -> int:
        """Return the number of timed calls in one timing; it stays, so that timings compare."""
        key = collective, calls
        decided = self._iterations[key]
        if size not in decided:
            decided[size] = self.estimator(key).iterations(size)
        return decided[size]


def point_us(size: int, call_us: float, iterations: int) -> float:
    """Return about how long one timing takes with all its calls, in us."""
    untimed = _UNTIMED_CALLS if size <= _SMALL_BYTES else 1
    return call_us * (untimed + iterations) + _OVERHEAD_US


def seconds_left(plan: CollectivePlan, estimator: TimeEstimator) -> float:
    """Return roughly how long a plan still takes, in seconds."""
    exploring = math.fsum(
        estimator.seconds(
            RoundRequest(plan.collective, (size,), (DEFAULT, *plan.legal), 0, check=True)
        )
        for size in plan.unexplored
    )
    if exploring:
        return exploring * (1 + _AFTER_EXPLORING)
    threshold = plan.threshold
    total = 0.0
    if plan.stage == "done":
        return 0.0
    unsettled = set(plan.unsettled())
    for state in plan.states.values():
        if state.unsure or state.bytes in unsettled:
            needed = math.ceil(state.rounds * ((state.stake / threshold) ** 2 - 1))
            rounds = min(max(1, needed), _MOST_ROUNDS_AHEAD)
            choices: tuple[AnyChoice, ...] = (DEFAULT, *plan.worth_repeating(state))
            ask = RoundRequest(plan.collective, (state.bytes,), choices, 0)
            total += rounds * estimator.seconds(ask)
    for left, right in plan.open_gaps():
        ratio = math.log(right.bytes / left.bytes) / math.log(BOUNDARY_RATIO)
        pair = tuple(dict.fromkeys((DEFAULT, left.best, right.best)))
        ask = RoundRequest(plan.collective, (right.bytes,), pair, 1)
        total += max(1, math.ceil(math.log2(ratio))) * _ROUNDS_TO_COME * estimator.seconds(ask)
    return total
