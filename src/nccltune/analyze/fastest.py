# SPDX-License-Identifier: Apache-2.0
"""Several runs of one test side by side: which one is the fastest at each size."""

from collections.abc import Mapping
from itertools import groupby

import msgspec

_EQUAL = 1.02
"""Times whose ratio is smaller are as fast as each other."""


class FastestRange(msgspec.Struct, frozen=True):
    """A range of sizes with its fastest runs; `least` and `most`: by how much the next is
    slower."""

    low_bytes: int
    high_bytes: int
    names: tuple[str, ...]
    least: float
    most: float


def fastest_ranges(times: Mapping[str, Mapping[int, float]]) -> list[FastestRange]:
    """Return the fastest runs by ranges of neighbouring sizes; `times` are in us, by name."""
    found: list[tuple[tuple[str, ...], int, float]] = []
    for size in sorted({size for own in times.values() for size in own}):
        here = {name: own[size] for name, own in times.items() if size in own}
        least = min(here.values())
        names = tuple(name for name, time in here.items() if time < _EQUAL * least)
        rest = [time for name, time in here.items() if name not in names]
        if len(here) > 1:
            found.append((names, size, min(rest, default=least) / least))
    return [
        FastestRange(own[0][1], own[-1][1], names, min(x[2] for x in own), max(x[2] for x in own))
        for names, group in groupby(found, lambda item: item[0])
        for own in [list(group)]
    ]
