# SPDX-License-Identifier: Apache-2.0
"""What a job calls of one collective at one scale, as weights of measured sizes."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from nccltune.model.collective import Collective
from nccltune.model.scale import Scale
from nccltune.workload.table import Workload

LEAST_WEIGHT = 0.2
"""The part of the weight that all sizes share: the job may also send what was not recorded."""
_ALIKE = math.sqrt(2)
"""Sizes within this ratio are measured as one, as long as that is few enough."""


class Demand(NamedTuple):
    """Calls of one collective at one scale, by size in bytes: their number, and their mean time.

    `calls` are means of a step, or of a rank. `mean_us` has the sizes with a recorded time, in
    which waits for other ranks are included.
    """

    calls: dict[int, float]
    mean_us: dict[int, float]

    def times(self, time_us: Callable[[int], float]) -> dict[int, float]:
        """Return the time of the calls of each size, in us, without waits as far as is known.

        `time_us` is the time of NCCL's default for one call.
        """
        return {
            size: calls * min(time_us(size), self.mean_us.get(size, math.inf))
            for size, calls in self.calls.items()
        }


def demands(job: Workload, scale: Scale) -> dict[Collective, Demand]:
    """Return what a job calls at a scale. Unknown nodes are taken as those of the scale."""
    rows = [
        row
        for row in job.rows
        if row.group.ranks == scale.ranks and row.group.nodes in (0, scale.nodes) and row.bytes
    ]
    rows.sort(key=lambda row: (row.operation.collective.value, row.bytes))
    found: dict[Collective, Demand] = {}
    for (collective, size), same in groupby(
        rows, lambda row: (row.operation.collective, row.bytes)
    ):
        alike = list(same)
        demand = found.setdefault(collective, Demand({}, {}))
        calls = math.fsum(row.calls * row.operation.part for row in alike)
        demand.calls[size] = calls / job.units
        timed = sum(row.timed for row in alike)
        if timed:
            demand.mean_us[size] = math.fsum(row.time_us for row in alike) / timed
    return found


def at_nearest(times: Mapping[int, float], sizes: Collection[int]) -> dict[int, float]:
    """Return the sum of `times` at each of `sizes`: every size counts at the nearest of them."""
    found = dict.fromkeys(sizes, 0.0)
    for size, time in times.items():
        if found:
            found[min(found, key=lambda other: abs(math.log(other / size)))] += time
    return found


def weight_of(times: Mapping[int, float]) -> Callable[[int], float]:
    """Return the weight of a measured size for the rule search; `times` must not be all 0."""
    mean = math.fsum(times.values()) / len(times)
    return lambda size: LEAST_WEIGHT + (1 - LEAST_WEIGHT) * times.get(size, 0.0) / mean


def sizes_to_measure(times: Mapping[int, float], most: int) -> list[int]:
    """Return at most about `most` sizes that stand for those of `times`, rising.

    Of neighbours within a ratio the one with the most time stands for all. The smallest and the
    largest size are among them, because no rule reaches beyond what was measured.

    >>> sizes_to_measure({1000: 1.0, 1024: 9.0, 1100: 1.0, 65536: 4.0}, most=10)
    [1000, 1024, 65536]
    """
    sizes = sorted(times)
    if not sizes:
        return []
    ratio, found = _ALIKE, sizes
    while True:
        found = [max(part, key=lambda size: times[size]) for part in _clusters(sizes, ratio)]
        if len(found) <= most:
            return sorted({sizes[0], *found, sizes[-1]})
        ratio *= _ALIKE


def _clusters(sizes: Iterable[int], ratio: float) -> list[list[int]]:
    """Return rising sizes in groups; each is within `ratio` of the first of its group."""
    found: list[list[int]] = []
    for size in sizes:
        if found and size <= ratio * found[-1][0]:
            found[-1].append(size)
        else:
            found.append([size])
    return found
