# SPDX-License-Identifier: Apache-2.0
"""The statistics of timings: robust means, and intervals that are valid for small samples.

Callers compare times as logs of their ratios. Then "twice as fast" and "half as fast" are equally
far from zero. All intervals are two-sided.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

TRIM = 0.2
"""Share of the values dropped at each end, the usual one (Yuen 1974): one of five."""


MIN_ROUNDS = 4
"""The fewest timings from which noise can be measured: two medians of two timings each."""


class Interval(NamedTuple):
    """An estimate with its interval, from `n` values; `known` is False for assumed noise."""

    value: float
    low: float
    high: float
    n: int
    known: bool

    @property
    def ratio(self) -> "Interval":
        """Return this interval of natural logs of ratios as an interval of ratios."""
        value, low, high = map(math.exp, (self.value, self.low, self.high))
        return self._replace(value=value, low=low, high=high)


def median(values: Sequence[float]) -> float:
    """Return the median of one or more values."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def quantile(values: Sequence[float], share: float) -> float:
    """Return the `share` quantile (0 to 1), interpolated between the two nearest sorted values."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def relative_spread(values: Sequence[float]) -> float | None:
    """Return 1.4826 x the median absolute deviation over the median; None under two values."""
    if len(values) < 2:
        return None
    centre = median(values)
    return 1.4826 * median([abs(value - centre) for value in values]) / centre


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return a confidence interval of the median that holds for any distribution.

    It is the closest pair of sorted values, equally far from both ends, with that binomial
    coverage, else the smallest and the largest value.
    """
    ordered = sorted(values)
    skip = _ranks_to_skip(len(ordered), confidence)
    return ordered[skip], ordered[len(ordered) - 1 - skip]


@lru_cache(maxsize=1024)
def _ranks_to_skip(n: int, confidence: float) -> int:
    tail, skip = 0.0, 0
    for rank in range((n - 1) // 2 + 1):
        # Use logs: the binomial coefficients would have n bits, and n may be 100,000 or more.
        ways = math.lgamma(n + 1) - math.lgamma(rank + 1) - math.lgamma(n - rank + 1)
        tail += math.exp(ways - n * math.log(2))
        if 2 * tail > 1 - confidence:
            break
        skip = rank
    return skip


class Trimmed(NamedTuple):
    """A trimmed mean of n values; `variance` / n is its squared standard error."""

    centre: float
    variance: float
    degrees: int


def trimmed_mean(values: Sequence[float]) -> Trimmed:
    """Return the trimmed mean of one or more values with Yuen's winsorised variance.

    If only one value is kept, the variance is infinite.
    """
    ordered = sorted(values)
    n = len(ordered)
    cut = math.floor(TRIM * n)
    kept = ordered[cut : n - cut]
    centre = math.fsum(kept) / len(kept)
    if len(kept) < 2:
        return Trimmed(centre, math.inf, 0)
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    mean = math.fsum(winsorised) / n
    squares = math.fsum((value - mean) ** 2 for value in winsorised)
    return Trimmed(centre, n * squares / (len(kept) * (len(kept) - 1)), len(kept) - 1)


def trimmed_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return the trimmed mean and the half-width of its interval (Student's t), maybe infinite."""
    found = trimmed_mean(values)
    if found.degrees == 0:
        return found.centre, math.inf
    error = math.sqrt(found.variance / len(values))
    return found.centre, student_t(confidence, found.degrees) * error


def curve_scatter(logs: Sequence[float], values: Sequence[float]) -> list[float]:
    """Return how far inner points are from the line through their neighbours, as noise.

    Curvature adds to it, so the spread is an upper estimate.
    """
    found = []
    for (x0, x1, x2), (y0, y1, y2) in zip(
        zip(logs, logs[1:], logs[2:], strict=False),
        zip(values, values[1:], values[2:], strict=False),
        strict=True,
    ):
        share = (x1 - x0) / (x2 - x0)
        distance = y1 - (1 - share) * y0 - share * y2
        found.append(distance / math.sqrt(1 + share**2 + (1 - share) ** 2))
    return found


@lru_cache(maxsize=1024)
def student_t(confidence: float, degrees: int) -> float:
    """Return the two-sided quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + confidence / 2))


@lru_cache(maxsize=1024)
def normal_z(confidence: float) -> float:
    """Return the two-sided quantile of the normal distribution."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(0.5 + confidence / 2)


def estimate(
    values: Sequence[float], *, assumed_sd: float, confidence: float = 0.95
) -> Interval | None:
    """Return the mean and interval of log ratios; None without values.

    Fewer than four values use `assumed_sd`, and `known` is False.
    """
    if not values:
        return None
    if len(values) >= MIN_ROUNDS:
        centre, half = trimmed_interval(values, confidence)
        return Interval(centre, centre - half, centre + half, len(values), known=True)
    centre = math.fsum(values) / len(values)
    half = normal_z(confidence) * assumed_sd / math.sqrt(len(values))
    return Interval(centre, centre - half, centre + half, len(values), known=False)
