# SPDX-License-Identifier: Apache-2.0
"""How long measuring takes: what one question costs, and about how much is still to come."""

import math
from collections.abc import Mapping

from nccltune.analyze.timings import Timings
from nccltune.measure.ask import Ask
from nccltune.measure.lane import Lane
from nccltune.measure.refine import BOUNDARY_RATIO, Curves
from nccltune.model.choice import DEFAULT, AnyChoice

Predictions = Mapping[int, Mapping[str, float]]
"""NCCL's own, in us: by bytes and `algorithm/protocol`."""

TARGET_US = 1500.0
"""About how long the timed calls of a timing take ..."""
MOST_ITERATIONS = 50
"""... with no more of them: a mean of 20 calls repeats within 0.3 % inside a node already."""
_SMALL_BYTES = 1 << 20
_UNTIMED_CALLS = 3
"""Of each timing up to `_SMALL_BYTES`: one that the bench looks at, one in which the ranks meet, a
leading one. At larger sizes only the first."""
_UNKNOWN_US = 20.0
_UNKNOWN_BYTES_PER_US = 25e3
"""A call of which neither a timing nor a prediction is known: between sockets and NVLink."""
_OVERHEAD_US = 300.0
"""Of one timing besides its calls: switching, synchronising, telling."""
_ROUNDS_TO_COME = 3
"""Rounds that a new size typically takes until it is settled."""
_MOST_ROUNDS_AHEAD = 8
_AFTER_EXPLORING = 1.5
"""What comes after exploring in units of what exploring costs, before anything is known."""


class Clock:
    """What timings of one collective cost, from its own timings or else NCCL's predictions."""

    def __init__(
        self,
        timings: Timings,
        predictions: Predictions,
        decided: Mapping[int, int] | None = None,
    ) -> None:
        self._curves = Curves(timings)
        self._predictions = predictions
        self._decided = decided or {}

    def call_us(self, size: int, choice: AnyChoice) -> float:
        """About how long one call takes."""
        log = self._curves.log_time(size, choice)
        if log is not None:
            return math.exp(log)
        near = self._curves.nearest(size, choice) or self._predicted(size, choice)
        if near is None and choice != DEFAULT:
            near = self._curves.nearest(size, DEFAULT)
        if near is None:
            return _UNKNOWN_US + size / _UNKNOWN_BYTES_PER_US
        at, log = near
        # Between latency, which does not grow, and bandwidth: halfway.
        return math.exp(log) * math.sqrt(max(1.0, size / at))

    def seconds(self, ask: Ask) -> float:
        """About how long an ask takes on the GPUs."""
        iterations = {size: self.iterations(size) for size in ask.sizes}
        return 1e-6 * math.fsum(
            point_us(key.bytes, self.call_us(key.bytes, key.choice), iterations[key.bytes])
            for key in ask.points()
        )

    def iterations(self, size: int) -> int:
        """Calls of one timing, the same for every choice at a size; `decided` ones stay."""
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


def point_us(size: int, call_us: float, iterations: int) -> float:
    """How long one timing takes, all its calls together, where one call takes `call_us`."""
    untimed = _UNTIMED_CALLS if size <= _SMALL_BYTES else 1
    return call_us * (untimed + iterations) + _OVERHEAD_US


def seconds_left(lane: Lane, clock: Clock) -> float:
    """About how long a lane still takes. Rough: what will be found decides what is measured."""
    exploring = math.fsum(
        clock.seconds(Ask(lane.collective, (size,), (DEFAULT, *lane.legal), 0, check=True))
        for size in lane.unexplored
    )
    if exploring:
        return exploring * (1 + _AFTER_EXPLORING)
    threshold = lane.threshold
    total = 0.0
    if lane.stage == "done":
        return 0.0
    unsettled = set(lane.unsettled())
    for view in lane.views.values():
        if view.unsure or view.bytes in unsettled:
            needed = math.ceil(view.rounds * ((view.stake / threshold) ** 2 - 1))
            rounds = min(max(1, needed), _MOST_ROUNDS_AHEAD)
            choices: tuple[AnyChoice, ...] = (DEFAULT, *lane.worth_repeating(view))
            ask = Ask(lane.collective, (view.bytes,), choices, 0)
            total += rounds * clock.seconds(ask)
    for left, right in lane.open_gaps():
        ratio = math.log(right.bytes / left.bytes) / math.log(BOUNDARY_RATIO)
        pair = tuple(dict.fromkeys((DEFAULT, left.best, right.best)))
        ask = Ask(lane.collective, (right.bytes,), pair, 1)
        total += max(1, math.ceil(math.log2(ratio))) * _ROUNDS_TO_COME * clock.seconds(ask)
    return total
