# SPDX-License-Identifier: Apache-2.0
"""Which sizes to measure next between measured ones: where decisions change, or may have
changed."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive.size_state import SizeState, SizeStates
from nccltune.model.choice import DEFAULT, AnyChoice, Choice

BOUNDARY_RATIO = 1.1
"""A boundary is known when the ratio of the sizes on its two sides is at most this."""
WIDE_RATIO = 2.1
"""Between sizes farther apart than this ratio, the default may behave differently from both
ends."""
_SMALL_SHARE = 1 / 16
"""Share of the threshold. A gap whose possible loss, weighted with its width on the size axis, is
below this is not worth a timing."""
_CLOSE = 0.1
"""Log time: a choice this near to the best interpolated one may win within a gap. Twice this in a
gap of a factor of 4, where curves bend."""
_ALIKE = 0.1
"""Log gain: a choice whose gain is within this and within noise of 0 may be what the default
runs."""


class Curves:
    """Times of the choices between the measured sizes, by log-log interpolation of medians.

    Forced choices have smooth curves. The default jumps where NCCL changes its choice.
    """

    def __init__(self, timings: Timings) -> None:
        self._logs: dict[AnyChoice, dict[int, float]] = {}
        for size in timings.sizes:
            for choice in timings.cells[size]:
                time = timings.median(size, choice)
                if time is not None:
                    self._logs.setdefault(choice, {})[size] = math.log(time)

    def log_time(self, size: int, choice: AnyChoice) -> float | None:
        """Return the log of the time in us at `size`; None outside the sizes measured with
        `choice`."""
        known = self._logs.get(choice, {})
        if size in known:
            return known[size]
        left = max((other for other in known if other < size), default=None)
        right = min((other for other in known if other > size), default=None)
        if left is None or right is None:
            return None
        share = math.log(size / left) / math.log(right / left)
        return known[left] + share * (known[right] - known[left])

    def nearest(self, size: int, choice: AnyChoice) -> tuple[int, float] | None:
        """Return the measured size of `choice` nearest to `size`, and the log of the time in us
        there."""
        known = self._logs.get(choice)
        if not known:
            return None
        near = min(known, key=lambda other: abs(math.log(other / size)))
        return near, known[near]


def open_gaps(
    states: SizeStates, curves: Curves, threshold: float, predicted: Mapping[int, Choice]
) -> list[tuple[SizeState, SizeState]]:
    """Return pairs of neighbouring sizes between which the right decision is not known.

    There are two kinds:

    - The decision changes between the two sizes, and either size would lose more than `threshold`
      (a log) with the decision of the other. Such a gap is open until the sizes are within
      `BOUNDARY_RATIO`.
    - The sizes are far apart, no choice certainly beats the default at both, and the default may be
      wrong between them.
    """
    found = []
    ordered = list(states.values())
    for left, right in pairwise(ordered):
        ratio = right.bytes / left.bytes
        loss = 0.0
        if left.best != right.best and ratio > BOUNDARY_RATIO:
            loss = _by_the_other(left, right, _same_prediction(left, right, predicted))
        if ratio > WIDE_RATIO and not (left.beats_default and right.beats_default):
            loss = max(loss, _may_hide(left, right, curves, predicted))
        width = math.log(ratio) / math.log(ordered[-1].bytes / ordered[0].bytes)
        if loss > threshold and loss * width > _SMALL_SHARE * threshold:
            found.append((left, right))
    return found


def candidates(
    size: int, states: SizeStates, curves: Curves, legal: Sequence[Choice]
) -> list[Choice]:
    """Return the choices that may win at a size between measured ones.

    These are the decisions at the two ends, and every choice that interpolation puts close to the
    best.
    """
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
    """Return the certain loss of using the decision of one end in the whole gap.

    Two forced choices cross where their smooth curves cross, near the end where their times are
    close. The smaller of the two losses then bounds the loss. The default jumps where NCCL changes
    its choice, so the larger loss may begin anywhere in the gap. If the default is known to be
    `smooth`, the smaller loss bounds it in that case too.
    """
    before = left.lead(left.best, right.best)
    after = right.lead(right.best, left.best)
    if before is None or after is None:
        return 0.0
    if DEFAULT in (left.best, right.best) and not smooth:
        return max(before, after)
    return min(before, after)


def _same_prediction(left: SizeState, right: SizeState, predicted: Mapping[int, Choice]) -> bool:
    """Return whether NCCL predicts the same choice over the whole gap, and the default measures
    like that choice at both ends."""
    below = max((size for size in predicted if size <= left.bytes), default=None)
    above = min((size for size in predicted if size >= right.bytes), default=None)
    if below is None or above is None:
        return False
    choices = {choice for size, choice in predicted.items() if below <= size <= above}
    return len(choices) == 1 and all(choices <= {*_alike(state)} for state in (left, right))


def _may_hide(
    left: SizeState, right: SizeState, curves: Curves, predicted: Mapping[int, Choice]
) -> float:
    """Return how much the default may lose in the middle of two sizes (log).

    There it may still run what it runs at the left end, or already what it runs at the right end.
    """
    middle = round(math.sqrt(left.bytes * right.bytes))
    choice_ranges = {*_alike(left), *_alike(right)}
    if all(predicted.get(state.bytes) in _alike(state) for state in (left, right)):
        # Predictions that hold at both ends are trusted between them.
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
    """Return the choices that may be what the default runs at this size."""
    return [
        choice
        for choice, estimate in state.estimates.items()
        if abs(estimate.gain) <= min(_ALIKE, 3 * estimate.error)
    ]


def _nearest(sizes: Mapping[int, Choice], size: int) -> int:
    return min(sizes, key=lambda other: abs(math.log(other / size)))
