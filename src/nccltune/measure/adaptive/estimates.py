# SPDX-License-Identifier: Apache-2.0
"""Gains and their errors from few timings.

`analyze` judges a finished study point by point. A plan has to decide after one or two rounds, so
noise is pooled here. The noise at one size comes from two sources: the two timings of the default
in a round, and the spread of all choices over rounds. It is combined with the usual noise of the
collective. Gains are natural logs of default time over choice time, as in the rest of nccltune.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nccltune.analyze.stats import median, normal_z
from nccltune.analyze.timings import Timings
from nccltune.model.choice import DEFAULT, Choice

CONFIDENCE = 0.99
"""Confidence of the bounds that drop a choice. A sweep makes this decision some hundred times."""
LEAST_NOISE = 0.002
"""Lower limit of the relative noise. No two timings of a GPU agree better than this for long."""
UNKNOWN_NOISE = 0.05
"""Relative noise of one timing before anything was measured twice."""
_PRIOR_WEIGHT = 4.0
"""Weight of the usual noise, as a number of timings, when combined with the timings of one size."""
_OUTLIER = 3.0
"""Limit in standard deviations: a value farther from the median is moved to this distance, so that
one slow round does not decide."""
_PER_PAIR = 1.5
"""Variance of one round's gain relative to the variance of one timing. A gain uses one timing of
the choice and the mean of two of the default: 1 + 1/2."""


class Estimate(NamedTuple):
    """A gain with its standard error, from `n` rounds.

    `torn` is True for two rounds that contradict each other. Only a third round can show which of
    them was disturbed.
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
    """Return, by size and choice, the gain over the default wherever both were measured."""
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
    """Return the expected loss of keeping the leader, whose lead is `lead` with standard error
    `error`.

    The loss is by how much the rival is better, and 0 where the leader is better.
    """
    if error <= 0:
        return max(0.0, -lead)
    distance = lead / error
    density = math.exp(-distance * distance / 2) / math.sqrt(2 * math.pi)
    # For a large lead the difference of two tiny numbers may be below zero.
    return max(0.0, error * density - lead * 0.5 * math.erfc(distance / math.sqrt(2)))


def _squares(timings: Timings, size: int, gains: Iterable[Sequence[float]]) -> list[float]:
    """Return independent estimates of the variance of one timing, one for each degree of
    freedom."""
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
    """Return the usual variance of one timing of a collective: the median over sizes."""
    found = []
    for squares in by_size:
        if squares:
            degrees = len(squares)
            # The median of chi-square over its degrees of freedom (Wilson and Hilferty).
            middle = (1 - 2 / (9 * degrees)) ** 3
            found.append(math.fsum(squares) / degrees / middle)
    return max(median(found) if found else UNKNOWN_NOISE**2, LEAST_NOISE**2)


def _estimate(values: Sequence[float], variance: float, usual: float) -> Estimate:
    """Return the estimate from the gains of one choice, one gain per round.

    `variance` is the variance of one gain at this size, `usual` the usual one over all sizes.
    """
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
