# SPDX-License-Identifier: Apache-2.0
"""Simulated runs: an S-curve with noise, and what makes it slower."""

import math
import random
from collections.abc import Callable

from nccltune.compare.runs import MeasuredRun, MeasuredTest, RunCurve, TimedPoint
from nccltune.formats.reading.platform_facts import PlatformFacts
from nccltune.model.collective import Collective

BOTH = (False, True)
Slowdown = Callable[[int], float]
"""The factor of the time at a size."""


def test_of(nodes: int = 1, ranks: int = 8) -> MeasuredTest:
    return MeasuredTest(Collective.ALLREDUCE, (nodes, ranks), "float", "sum", -1, False, False)


test_of.__test__ = False  # type: ignore[attr-defined]


def sizes_of(number: int, first: int = 1 << 10) -> list[int]:
    return [first << i for i in range(number)]


def run_of(
    random_: random.Random,
    number: int,
    noise: float,
    *,
    places: tuple[bool, ...] = BOTH,
    slowdown: Slowdown = lambda _: 1.0,
    offset: float = 0.0,
    hosts: tuple[str, ...] = (),
    name: str = "run",
    test: MeasuredTest | None = None,
    label: str = "default",
    nccl: str | None = None,
    at: float | None = None,
) -> MeasuredRun:
    """A run of `number` sizes: 20 us of latency and 50 GB/s, log-normal noise, and one offset."""
    test = test or test_of()
    shift = random_.gauss(0, offset)
    times = {
        TimedPoint(place, size): math.log((20 + size / 5e4) * slowdown(size))
        + shift
        + random_.gauss(0, noise)
        for place in places
        for size in sizes_of(number)
    }
    return MeasuredRun(
        name=name,
        hosts=hosts,
        scale=test.scale,
        facts=PlatformFacts(nccl=nccl),
        at=at,
        curves={(test, label): RunCurve(times)},
    )
