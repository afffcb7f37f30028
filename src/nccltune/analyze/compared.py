# SPDX-License-Identifier: Apache-2.0
"""What was compared: whether the default and other choices were measured at the same sizes.

A verdict on the default needs such a comparison at every size, with measured noise.
"""

from collections.abc import Iterable
from typing import NamedTuple

from nccltune.analyze.result import ConditionAnalysis
from nccltune.model.choice import DEFAULT, AnyChoice, Choice


class Compared(NamedTuple):
    """The comparison of the default with other choices under some conditions.

    `choices` is the number of measured choices besides the default. `alone` are the sizes at which
    the default was measured without any of them, `sizes` the number of sizes at which it was
    measured with at least one. `rounds` is the number of timings of the default and of the choice
    with the most timings, whichever is less, at the size where it is least. `known` is whether the
    noise was measured.
    """

    choices: int
    sizes: int
    alone: list[int]
    has_default: bool
    rounds: int
    known: bool

    @property
    def anything(self) -> bool:
        """Return whether the default was compared with another choice at any size."""
        return self.sizes > 0

    @property
    def everywhere(self) -> bool:
        """Return whether the default was compared with another choice at every size."""
        return self.anything and not self.alone

    @property
    def conclusive(self) -> bool:
        """Return whether the timings can show that the default is right at every size."""
        return self.everywhere and self.known


def compared(conditions: Iterable[ConditionAnalysis]) -> Compared:
    """Return what was compared under `conditions`.

    These are one condition, or conditions that NCCL's tuner cannot distinguish (in place and out of
    place, data type, operation, root). A comparison under one of the latter counts for all.
    """
    items = list(conditions)
    others: set[Choice] = set()
    default: set[int] = set()
    rounds: dict[int, int] = {}
    for item in items:
        timings: dict[int, dict[AnyChoice, int]] = {}
        for curve in item.curves:
            for point in curve.points:
                timings.setdefault(point.bytes, {})[curve.choice] = point.n
        for size, counts in timings.items():
            rivals = {choice: n for choice, n in counts.items() if isinstance(choice, Choice)}
            others |= rivals.keys()
            if DEFAULT not in counts:
                continue
            default.add(size)
            if rivals:
                here = min(counts[DEFAULT], max(rivals.values()))
                rounds[size] = max(here, rounds.get(size, 0))
    return Compared(
        choices=len(others),
        sizes=len(rounds),
        alone=sorted(default - rounds.keys()),
        has_default=bool(default),
        rounds=min(rounds.values(), default=0),
        known=any(item.noise.known for item in items),
    )
