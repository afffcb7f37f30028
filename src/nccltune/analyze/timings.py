# SPDX-License-Identifier: Apache-2.0
"""Samples sorted into conditions, sizes and choices; what cannot be compared is counted."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from nccltune.analyze.result import Condition
from nccltune.analyze.stats import Interval, estimate, median
from nccltune.model.choice import DEFAULT, AnyChoice, choice_label
from nccltune.model.sample import Sample
from nccltune.model.scale import Scale

Series = dict[tuple[int, int], float]
"""Time in us by (round, repeat)."""


@dataclass
class Timings:
    """All timings of one condition: `cells[bytes][choice]` is a series."""

    condition: Condition
    cells: dict[int, dict[AnyChoice, Series]] = field(default_factory=dict)
    samples: int = 0

    @property
    def sizes(self) -> list[int]:
        """Every size measured, rising."""
        return sorted(self.cells)

    @property
    def choices(self) -> list[AnyChoice]:
        """Every choice measured: the default first, then by label."""
        found = {choice for by_choice in self.cells.values() for choice in by_choice}
        return sorted(found, key=lambda choice: (choice != DEFAULT, choice_label(choice)))

    @property
    def rounds(self) -> int:
        """The most rounds that any point has."""
        return max(
            (
                len({round_ for round_, _ in series})
                for by_choice in self.cells.values()
                for series in by_choice.values()
            ),
            default=0,
        )

    def series(self, size: int, choice: AnyChoice) -> Series:
        """The timings of one point; empty where it was not measured."""
        return self.cells.get(size, {}).get(choice, {})

    def median(self, size: int, choice: AnyChoice) -> float | None:
        """The median time in us of one point, or None."""
        series = self.series(size, choice)
        return median(list(series.values())) if series else None

    def log_gains(self, size: int, choice: AnyChoice) -> dict[int, float]:
        """By round: the log of default over `choice` time (0.1 is about 10 % faster).

        Timings of one round were made close together, so that what slows the whole machine for a
        while cancels. Repeats within a round count as one.
        """
        default = _by_round(self.series(size, DEFAULT))
        other = _by_round(self.series(size, choice))
        return {round_: default[round_] - other[round_] for round_ in other if round_ in default}

    def gain(
        self, size: int, choice: AnyChoice, *, assumed_noise: float, confidence: float = 0.95
    ) -> Interval | None:
        """The log gain of `choice` over the default at one size; None where one is missing.

        `assumed_noise` is the relative noise of one timing, used where there are under 4 rounds.
        """
        values = list(self.log_gains(size, choice).values())
        return estimate(values, assumed_sd=math.sqrt(2) * assumed_noise, confidence=confidence)


@dataclass
class Sorted:
    """Samples sorted: conditions in order, and how many samples were left out and why."""

    timings: list[Timings]
    samples: int
    wrong: dict[tuple[Condition, AnyChoice], int]
    without_scale: int
    one_rank: int


def sort_samples(samples: Iterable[Sample]) -> Sorted:
    """Sort samples for comparison.

    Those of `verify` and `try` are left out. Left out and counted: wrong results (a wrong answer
    can be fast), unknown scale, one rank.
    Rounds of samples that share (round, repeat) with an earlier one of the same point become
    further repeats: nothing measured is dropped.
    """
    found: dict[Condition, Timings] = {}
    wrong: dict[tuple[Condition, AnyChoice], int] = defaultdict(int)
    without_scale = one_rank = total = 0
    for sample in samples:
        if sample.source.verifies or sample.source.tries:
            continue
        total += 1
        if sample.nodes is None or sample.ranks is None:
            without_scale += 1
            continue
        if sample.ranks < 2:
            one_rank += 1
            continue
        condition = Condition(
            collective=sample.collective,
            scale=Scale(sample.nodes, sample.ranks),
            registered=sample.registered or sample.graph,
            in_place=sample.in_place,
            graph=sample.graph,
            dtype=sample.dtype,
            redop=sample.redop,
            root=sample.root,
        )
        if sample.wrong:
            wrong[condition, sample.choice] += 1
            continue
        if sample.bytes == 0:
            continue
        timings = found.get(condition)
        if timings is None:
            timings = found[condition] = Timings(condition)
        series = timings.cells.setdefault(sample.bytes, {}).setdefault(sample.choice, {})
        key = (sample.round, sample.repeat)
        while key in series:
            key = (key[0], key[1] + 1)
        series[key] = sample.time_us
        timings.samples += 1
    ordered = sorted(found.values(), key=lambda timings: _order(timings.condition))
    return Sorted(ordered, total, dict(wrong), without_scale, one_rank)


def _order(condition: Condition) -> tuple[object, ...]:
    return (
        -condition.collective.nccl_id if condition.collective.tuned else 1,
        condition.collective.value,
        condition.scale.nodes,
        condition.scale.ranks,
        condition.registered,
        condition.graph,
        condition.in_place,
        condition.dtype or "",
        condition.redop or "",
        -1 if condition.root is None else condition.root,
    )


def _by_round(series: Series) -> dict[int, float]:
    """By round: the mean of the logs of its repeats."""
    logs: dict[int, list[float]] = defaultdict(list)
    for (round_, _), time_us in series.items():
        logs[round_].append(math.log(time_us))
    return {round_: math.fsum(values) / len(values) for round_, values in logs.items()}
