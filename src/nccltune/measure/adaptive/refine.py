# SPDX-License-Identifier: Apache-2.0
"""Choose the sizes to measure between two measured ones: where the fastest choice may change."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive.size_state import SizeAxis, SizeState, SizeStates, log_axis
from nccltune.model.choice import DEFAULT, AnyChoice, Choice

BOUNDARY_RATIO = 1.1
"""A boundary between two decisions is known well enough when the ratio of the two neighbouring
sizes is at most this."""
WIDE_RATIO = 2.1
"""Between two sizes farther apart than this ratio, the default may be slower than another choice
even if it is not slower at the two sizes themselves."""
_SMALL_SHARE = 1 / 16
"""As a share of the threshold: the least loss in a gap between two sizes that is worth a timing.
The loss is weighted with the width of the gap on the size axis."""
_CLOSE = 0.1
"""Natural log of a time ratio: a choice that is slower than the fastest by less than this, by
interpolation, may be the fastest. The margin grows to twice this for sizes a factor of 4 apart,
because curves bend."""
_ALIKE = 0.1
"""A choice may be the one that the default runs if its gain (a natural log) differs from 0 by at
most this, and by no more than noise."""


class Curves:
    """The time of each choice over size: medians, with log-log interpolation between measured
    sizes.

    The curves of forced choices are smooth. The curve of the default jumps where NCCL changes its
    choice.
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
        """Return the measured size of `choice` nearest to `size`, and the log of the time in us
        there. Return None if `choice` was not measured at any size."""
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

    There are two kinds of pairs. In both, the possible loss must exceed `threshold` (a log). Narrow
    gaps with a small loss are left out (`_SMALL_SHARE`).

    - The two sizes have different leaders, and using only one of them in the whole gap could lose
      time. Such a gap stays open until the ratio of the two sizes is at most `BOUNDARY_RATIO`.
    - The ratio of the two sizes is above `WIDE_RATIO`, the default is not beaten with confidence at
      both, and the default may lose time between them.

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
    """Return the choices that may be the fastest at `size`, which is between two measured sizes.

    These are the leaders at the two measured sizes, and every choice that is close to the fastest
    by interpolation.
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
    """Return how much time is certainly lost if the leader of one size is used in the whole gap.

    The result is a natural log. A leader that was not measured at the other size counts as an
    infinite loss there. The curves of two forced choices are smooth. The curves cross near the
    size where the two times are close, so the smaller of the two losses is the bound. The default
    jumps where NCCL changes its choice, so the larger loss may begin anywhere in the gap. With
    `smooth`, the default does not jump in this gap, and the smaller loss is the bound.
    """
    before = left.lead(left.best, right.best)
    after = right.lead(right.best, left.best)
    if before is None or after is None:
        return 0.0
    if DEFAULT in (left.best, right.best) and not smooth:
        return max(before, after)
    return min(before, after)


def _same_prediction(left: SizeState, right: SizeState, predicted: Mapping[int, Choice]) -> bool:
    """Return whether the default runs the same choice in the whole gap.

    The result is True if NCCL predicts one choice for the gap, and the default is as fast as that
    choice at both sizes.
    """
    below = max((size for size in predicted if size <= left.bytes), default=None)
    above = min((size for size in predicted if size >= right.bytes), default=None)
    if below is None or above is None:
        return False
    choices = {choice for size, choice in predicted.items() if below <= size <= above}
    return len(choices) == 1 and all(choices <= {*_alike(state)} for state in (left, right))


def _may_hide(
    left: SizeState, right: SizeState, curves: Curves, predicted: Mapping[int, Choice]
) -> float:
    """Return how much time the default may lose halfway between two sizes, as a natural log.

    Halfway, the default may run any choice that it may run at either of the two sizes. The result
    is the largest loss of these choices, or 0.
    """
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
    """Return the choices that the default may run at this size: those equally fast within noise."""
    return [
        choice
        for choice, estimate in state.estimates.items()
        if abs(estimate.gain) <= min(_ALIKE, 3 * estimate.error)
    ]


def _nearest(sizes: Mapping[int, Choice], size: int) -> int:
    return min(sizes, key=lambda other: abs(math.log(other / size)))
