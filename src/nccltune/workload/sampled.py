# SPDX-License-Identifier: Apache-2.0
"""Times of a random sample of calls: how many are in each bin of native/profiler/histogram.h."""

import math
from collections.abc import Mapping

from nccltune.workload.table import WorkloadRow


def quantile_us(bins: Mapping[int, int], part: float) -> float:
    """Return the time that `part` of the sampled calls do not exceed: the middle of its bin.

    >>> [round(quantile_us({16: 99, 40: 1}, part), 3) for part in (0.5, 0.999)]
    [9.216, 589.824]
    """
    rank, seen = part * sum(bins.values()), 0
    for number in sorted(bins):
        seen += bins[number]
        if seen >= rank:
            break
    return _middle_us(number)


def variance(row: WorkloadRow) -> float:
    """Return the variance, in us², of the time of all calls of a row by the mean of its sample.

    One sampled call states no spread: it may be wrong by all of its time.
    """
    count, calls = sum(row.bins.values()), row.calls
    mean = sum(n * _middle_us(number) for number, n in row.bins.items()) / count
    spread = mean**2
    if count > 1:
        squares = sum(
            n * ((_middle_us(number) - mean) ** 2 + _width_us(number) ** 2 / 12)
            for number, n in row.bins.items()
        )
        spread = squares / (count - 1)
    return calls**2 * spread / count * (1 - count / calls)


def error(variances: float) -> float:
    """Return half of the 95 % interval."""
    return 1.96 * math.sqrt(variances)


def _width_us(number: int) -> float:
    return float(1 << number // 4 + 7) / 1e3


def _middle_us(number: int) -> float:
    return (4.5 + number % 4) * _width_us(number)
