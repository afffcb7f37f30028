# SPDX-License-Identifier: Apache-2.0
"""Choose the sizes to measure between two measured ones: where the fastest choice may change."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive.size_state import SizeAxis, SizeState, SizeStates, log_axis
from nccltune.model.choice import DEFAULT, AnyChoice, Choice

BOUNDARY_RATIO = 1.1
"""A boundary is known well enough when its two sizes are within this ratio."""
WIDE_RATIO = 2.1
"""Between sizes farther apart, the default may lose even if it is not slower at either."""
_SMALL_SHARE = 1 / 16
"""Share of the threshold: the least weighted loss in a gap that is worth a timing."""
_CLOSE = 0.1
"""A choice this close (a log) to the fastest by interpolation may be it. Doubled for sizes a factor
of 4 apart, because curves bend."""
_ALIKE = 0.1
"""The default may run a choice whose gain (a log) is within this of 0, or within noise."""


class Curves:
    """The time of each choice over size: medians, with log-log interpolation between sizes.

    Curves of forced choices are smooth; the default's jumps where NCCL changes its choice.
    """

    def __init__(self, timings: Timings) -> None:
        self._logs: dict[AnyChoice, dict[int, float]] = {}
        for size in timings.sizes:
            for choice in timings.cells[size]:
                time = timings.median(size, choice)
                if time is not None:
                    self._logs.setdefault(choice, {})[size] = math.log(time)

    def log_time(self, size: int, choice: AnyChoice) -> float | None:
        """Return the log of the time in us; None outside the sizes measured with `choice`."""
        known = self._logs.get(choice, {})
        if size in known:
            return known[size]
        left = max((other for other in known if other < size), default=None)
        right = min((other for other in known if other > size), default=None)
        if left is None or right is None:
            return None
        share = math.log(size / left) / math.log(right / left)
        return known[left] + share * (known[right] - known[left])

    def estimate_us(self, size: int, choice: AnyChoice) -> float:
        """Return about how long a call takes in us; 1 us without any timing of `choice`.

        Beyond the measured sizes, it is the time of the nearest one, multiplied by the square root
        of the ratio for a larger size. That is between constant (latency dominates) and
        proportional (bandwidth dominates).
        """
        log = self.log_time(size, choice)
        if log is not None:
            return math.exp(log)
        at, log = self.nearest(size, choice) or (size, 0.0)
        return math.exp(log) * math.sqrt(max(1.0, size / at))

    def nearest(self, size: int, choice: AnyChoice) -> tuple[int, float] | None:
        """Return the measured size of `choice` nearest to `size`, and the log of its time in us."""
        known = self._logs.get(choice)
        if not known:
            return None
        near = min(known, key=lambda other: abs(math.log(other / size)))
        return near, known[near]


def open_gaps(
    states: SizeStates,
    curves: Curves,
    threshold: float,
    predicted: Mapping[int, Choice],
    axis: SizeAxis | None = None,
) -> list[tuple[SizeState, SizeState]]:
    """Return the pairs of neighbouring sizes between which the best choice is not known.

    The possible loss must exceed `threshold` (a log), and in narrow gaps `_SMALL_SHARE`:

    - The two sizes have different leaders, until they are within `BOUNDARY_RATIO`.
    - They are farther apart than `WIDE_RATIO`, and the default may lose time between them.

    `predicted` maps sizes to the choice that NCCL would pick by its own cost model.
    """
    found = []
    axis = axis or log_axis(states)
    for left, right in pairwise(states.values()):
        ratio = right.bytes / left.bytes
        loss = 0.0
        if left.best != right.best and ratio > BOUNDARY_RATIO:
            loss = _by_the_other(left, right, _same_prediction(left, right, predicted))
        if ratio > WIDE_RATIO and not (left.beats_default and right.beats_default):
            loss = max(loss, _may_hide(left, right, curves, predicted))
        width = axis.between(left.bytes, right.bytes)
        if loss > threshold and loss * width > _SMALL_SHARE * threshold:
            found.append((left, right))
    return found


def candidates(
    size: int, states: SizeStates, curves: Curves, legal: Sequence[Choice]
) -> list[Choice]:
    """Return the leaders of both sides of `size`, and what is close by interpolation."""
    left = states[max(other for other in states if other < size)]
    right = states[min(other for other in states if other > size)]
    logs = {choice: curves.log_time(size, choice) for choice in legal}
    fastest = min((log for log in logs.values() if log is not None), default=0.0)
    margin = _CLOSE * (1 + min(1.0, math.log(right.bytes / left.bytes, 4)))
    return [
        choice
        for choice in legal
        if choice in (left.best, right.best)
        or ((log := logs[choice]) is not None and log < fastest + margin)
    ]


def _by_the_other(left: SizeState, right: SizeState, smooth: bool) -> float:
    """Return the log of the time certainly lost if one leader is used in the whole gap.

    Smooth curves cross where the times are close, so the smaller loss is the bound. The default,
    unless `smooth`, jumps, so the larger loss may begin anywhere in the gap.
    """
    before = left.lead(left.best, right.best)
    after = right.lead(right.best, left.best)
    if before is None or after is None:
        return 0.0
    if DEFAULT in (left.best, right.best) and not smooth:
        return max(before, after)
    return min(before, after)


def _same_prediction(left: SizeState, right: SizeState, predicted: Mapping[int, Choice]) -> bool:
    """Return whether the default runs one choice in the gap, by prediction and by time."""
    below = max((size for size in predicted if size <= left.bytes), default=None)
    above = min((size for size in predicted if size >= right.bytes), default=None)
    if below is None or above is None:
        return False
    choices = {choice for size, choice in predicted.items() if below <= size <= above}
    return len(choices) == 1 and all(choices <= {*_alike(state)} for state in (left, right))


def _may_hide(
    left: SizeState, right: SizeState, curves: Curves, predicted: Mapping[int, Choice]
) -> float:
    """Return the log of the time that the default may lose halfway between two sizes."""
    middle = round(math.sqrt(left.bytes * right.bytes))
    choice_ranges = {*_alike(left), *_alike(right)}
    if all(predicted.get(state.bytes) in _alike(state) for state in (left, right)):
        # NCCL's predictions match the measurements at both sizes, so they are trusted between them.
        choice_ranges = {predicted[_nearest(predicted, middle)]}
    logs = {
        choice: log
        for choice in left.estimates.keys() & right.estimates.keys()
        if (log := curves.log_time(middle, choice)) is not None
    }
    best = min(logs.values(), default=0.0)
    losses = [
        logs[choice] - best - 2 * max(left.estimates[choice].error, right.estimates[choice].error)
        for choice in choice_ranges
        if choice in logs
    ]
    return max(losses, default=0.0)


def _alike(state: SizeState) -> list[Choice]:
    return [
        choice
        for choice, estimate in state.estimates.items()
        if abs(estimate.gain) <= min(_ALIKE, 3 * estimate.error)
    ]


def _nearest(sizes: Mapping[int, Choice], size: int) -> int:
    return min(sizes, key=lambda other: abs(math.log(other / size)))
