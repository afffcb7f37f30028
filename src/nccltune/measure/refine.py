# SPDX-License-Identifier: Apache-2.0
"""Which sizes to measure next between those that were: where decisions change, or may have."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from nccltune.analyze.timings import Timings
from nccltune.measure.view import SizeView, Views
from nccltune.model.choice import DEFAULT, AnyChoice, Choice

BOUNDARY_RATIO = 1.1
"""A boundary is known when the sizes on its two sides are this close."""
WIDE_RATIO = 2.1
"""Between sizes farther apart than this the default may do what neither end shows."""
_SMALL_SHARE = 1 / 16
"""Of the threshold: what may be lost between two sizes, as a share of the whole axis, is below
this not worth a look."""
_CLOSE = 0.1
"""Log time: a choice this near to the best of the interpolated ones may win in between; twice as
much in a gap of a factor 4, where curves bend."""
_ALIKE = 0.1
"""Log gain: a choice nearer to the default than this, and within noise, may be what it runs."""


class Curves:
    """Times of the choices between the sizes measured, by log-log interpolation of medians.

    Forced choices have smooth curves; the default jumps where NCCL changes its mind."""

    def __init__(self, timings: Timings) -> None:
        self._logs: dict[AnyChoice, dict[int, float]] = {}
        for size in timings.sizes:
            for choice in timings.cells[size]:
                time = timings.median(size, choice)
                if time is not None:
                    self._logs.setdefault(choice, {})[size] = math.log(time)

    def log_time(self, size: int, choice: AnyChoice) -> float | None:
        """Log us at `size`; None outside of what was measured of `choice`."""
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
        """The measured size of `choice` nearest to `size` and its log us there."""
        known = self._logs.get(choice)
        if not known:
            return None
        near = min(known, key=lambda other: abs(math.log(other / size)))
        return near, known[near]


def open_gaps(
    views: Views, curves: Curves, threshold: float, predicted: Mapping[int, Choice]
) -> list[tuple[SizeView, SizeView]]:
    """Neighbouring sizes between which a decision depends on what is not known.

    Those at which the decision changes and either side would lose more than `threshold` (a log) by
    the other's, until the two are within `BOUNDARY_RATIO`; and those far apart, without a choice
    that is better for certain at both, if the default may be wrong in between.
    """
    found = []
    ordered = list(views.values())
    for left, right in pairwise(ordered):
        ratio = right.bytes / left.bytes
        loss = 0.0
        if left.best != right.best and ratio > BOUNDARY_RATIO:
            loss = _by_the_other(left, right, _same_prediction(left, right, predicted))
        if ratio > WIDE_RATIO and not (left.better and right.better):
            loss = max(loss, _may_hide(left, right, curves, predicted))
        width = math.log(ratio) / math.log(ordered[-1].bytes / ordered[0].bytes)
        if loss > threshold and loss * width > _SMALL_SHARE * threshold:
            found.append((left, right))
    return found


def candidates(size: int, views: Views, curves: Curves, legal: Sequence[Choice]) -> list[Choice]:
    """The choices that may win at a size between measured ones: the decisions at its two ends and
    whatever comes close to the best by interpolation."""
    left = views[max(other for other in views if other < size)]
    right = views[min(other for other in views if other > size)]
    logs = {choice: curves.log_time(size, choice) for choice in legal}
    fastest = min((log for log in logs.values() if log is not None), default=0.0)
    margin = _CLOSE * (1 + min(1.0, math.log(right.bytes / left.bytes, 4)))
    return [
        choice
        for choice in legal
        if choice in (left.best, right.best)
        or ((log := logs[choice]) is not None and log < fastest + margin)
    ]


def _by_the_other(left: SizeView, right: SizeView, smooth: bool) -> float:
    """What is lost for certain by giving the whole gap to the decision of one of its ends.

    Two forced choices cross where their smooth curves do, near the end at which they are alike:
    the lesser of the two losses bounds what is at stake. The default jumps, where NCCL changes its
    mind, so that next to it the greater one may begin anywhere in the gap; unless it is known to be
    `smooth`.
    """
    before = left.lead(left.best, right.best)
    after = right.lead(right.best, left.best)
    if before is None or after is None:
        return 0.0
    if DEFAULT in (left.best, right.best) and not smooth:
        return max(before, after)
    return min(before, after)


def _same_prediction(left: SizeView, right: SizeView, predicted: Mapping[int, Choice]) -> bool:
    """Whether NCCL predicts one choice from the one size to the other, and measures like it at
    both."""
    below = max((size for size in predicted if size <= left.bytes), default=None)
    above = min((size for size in predicted if size >= right.bytes), default=None)
    if below is None or above is None:
        return False
    choices = {choice for size, choice in predicted.items() if below <= size <= above}
    return len(choices) == 1 and all(choices <= {*_alike(view)} for view in (left, right))


def _may_hide(
    left: SizeView, right: SizeView, curves: Curves, predicted: Mapping[int, Choice]
) -> float:
    """How much the default may lose in the middle of two sizes, where it may still run what it runs
    at the one, or already what it runs at the other."""
    middle = round(math.sqrt(left.bytes * right.bytes))
    runs = {*_alike(left), *_alike(right)}
    if all(predicted.get(view.bytes) in _alike(view) for view in (left, right)):
        # Predictions that are right at both ends are believed in between.
        runs = {predicted[_nearest(predicted, middle)]}
    logs = {
        choice: log
        for choice in left.estimates.keys() & right.estimates.keys()
        if (log := curves.log_time(middle, choice)) is not None
    }
    best = min(logs.values(), default=0.0)
    losses = [
        logs[choice] - best - 2 * max(left.estimates[choice].error, right.estimates[choice].error)
        for choice in runs
        if choice in logs
    ]
    return max(losses, default=0.0)


def _alike(view: SizeView) -> list[Choice]:
    """The choices that may be what the default runs at this size."""
    return [
        choice
        for choice, estimate in view.estimates.items()
        if abs(estimate.gain) <= min(_ALIKE, 3 * estimate.error)
    ]


def _nearest(sizes: Mapping[int, Choice], size: int) -> int:
    return min(sizes, key=lambda other: abs(math.log(other / size)))
