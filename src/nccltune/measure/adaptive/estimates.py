# SPDX-License-Identifier: Apache-2.0
"""Estimate gains and their errors from few timings.

A plan has to decide after one or two rounds, which are too few to show the noise of one choice.
All choices at a size therefore share one noise estimate. The estimate uses the two timings of the
default in each round and the spread of each choice over its rounds. The estimate is combined
with the usual noise of the collective. A gain is the natural log of default time over choice time.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nccltune.analyze.stats import median, normal_z
from nccltune.analyze.timings import Timings
from nccltune.model.choice import DEFAULT, Choice

CONFIDENCE = 0.99
"""Confidence to exclude a choice. A sweep does so some hundred times."""
LEAST_NOISE = 0.002
"""Lower limit of the relative noise of one timing; two agree better only by chance."""
UNKNOWN_NOISE = 0.05
"""Assumed relative noise of one timing while no choice has two timings at any size."""
_PRIOR_WEIGHT = 4.0
"""The usual noise counts as this many timings beside those of one size."""
_OUTLIER = 3.0
"""Values farther from the median, in standard deviations, are moved to this distance."""
_PER_PAIR = 1.5
"""Variance of a gain (one timing by the mean of two of the default) over that of a timing."""


class Estimate(NamedTuple):
    """A gain with its standard error, from `n` rounds.

    `torn`: exactly two rounds that contradict each other, so a third must decide.
    """

    gain: float
    error: float
    n: int
    torn: bool = False

    @property
    def low(self) -> float:
        """Return the lower confidence bound of the gain."""
        return self.gain - normal_z(CONFIDENCE) * self.error

    @property
    def high(self) -> float:
        """Return the upper confidence bound of the gain."""
        return self.gain + normal_z(CONFIDENCE) * self.error


def estimates(timings: Timings) -> dict[int, dict[Choice, Estimate]]:
    """Return the gains over the default, by size and choice, where both were measured."""
    gains = {
        size: {
            choice: list(values.values())
            for choice in by_choice
            if isinstance(choice, Choice) and (values := timings.log_gains(size, choice))
        }
        for size, by_choice in timings.cells.items()
        if DEFAULT in by_choice
    }
    squares = {size: _squares(timings, size, gains[size].values()) for size in gains}
    usual = _usual_variance(squares.values())
    found: dict[int, dict[Choice, Estimate]] = {}
    for size, by_choice in gains.items():
        clipped = [min(square, (2 * _OUTLIER) ** 2 * usual) for square in squares[size]]
        variance = (_PRIOR_WEIGHT * usual + math.fsum(clipped)) / (_PRIOR_WEIGHT + len(clipped))
        found[size] = {
            choice: _estimate(values, _PER_PAIR * variance, _PER_PAIR * usual)
            for choice, values in by_choice.items()
        }
    return found


def expected_loss(lead: float, error: float) -> float:
    """Return the expected loss (a log) of choosing the leader, ahead by `lead`, over a rival."""
    if error <= 0:
        return max(0.0, -lead)
    distance = lead / error
    density = math.exp(-distance * distance / 2) / math.sqrt(2 * math.pi)
    # Rounding can make the difference of two tiny numbers negative, but a loss is at least 0.
    return max(0.0, error * density - lead * 0.5 * math.erfc(distance / math.sqrt(2)))


def _squares(timings: Timings, size: int, gains: Iterable[Sequence[float]]) -> list[float]:
    """Return estimates of the variance of one timing, each with one degree of freedom."""
    series = timings.series(size, DEFAULT)
    found = [
        math.log(time / series[round_, 1]) ** 2 / 2
        for (round_, repeat), time in series.items()
        if repeat == 0 and (round_, 1) in series
    ]
    for values in gains:
        if len(values) >= 2:
            mean = math.fsum(values) / len(values)
            total = math.fsum((value - mean) ** 2 for value in values) / _PER_PAIR
            found += [total / (len(values) - 1)] * (len(values) - 1)
    return found


def _usual_variance(by_size: Iterable[Sequence[float]]) -> float:
    """Return the usual variance of one timing of a collective: the median over its sizes."""
    found = []
    for squares in by_size:
        if squares:
            degrees = len(squares)
            # Median of a chi-square variable over its degrees of freedom (Wilson and Hilferty).
            # Without this factor the median over sizes would be too low.
            middle = (1 - 2 / (9 * degrees)) ** 3
            found.append(math.fsum(squares) / degrees / middle)
    return max(median(found) if found else UNKNOWN_NOISE**2, LEAST_NOISE**2)


def _estimate(values: Sequence[float], variance: float, usual: float) -> Estimate:
    """Return the estimate from one gain per round, and the variance here and usually."""
    n = len(values)
    centre = median(values)
    if n >= 3:
        spread = 1.4826 * median([abs(value - centre) for value in values])
        reach = _OUTLIER * max(math.sqrt(variance), spread)
        values = [min(max(value, centre - reach), centre + reach) for value in values]
    mean = math.fsum(values) / n
    squares = math.fsum((value - mean) ** 2 for value in values)
    own = (_PRIOR_WEIGHT * variance + squares) / (_PRIOR_WEIGHT + n - 1)
    torn = n == 2 and abs(values[0] - values[1]) > 2 * _OUTLIER * math.sqrt(usual)
    return Estimate(mean, math.sqrt(own / n), n, torn)
