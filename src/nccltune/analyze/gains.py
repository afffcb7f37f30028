# SPDX-License-Identifier: Apache-2.0
"""What every choice gains over the default at every size, with what the timings can prove.

One table serves findings and rule search, so that both judge alike.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from nccltune.analyze.curves import noise
from nccltune.analyze.result import Noise
from nccltune.analyze.stats import MIN_ROUNDS, Interval, estimate, normal_z
from nccltune.analyze.timings import Timings
from nccltune.model.choice import DEFAULT, TUNED_RUN, AnyChoice, Choice
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale


@dataclass
class GainTable:
    """Several conditions that NCCL's tuner cannot tell apart, compared as one.

    (In place or not, data type, reduction and root are not shown to a tuner.) Gains are natural
    logs of default over choice time: 0.1 is about 10 % faster. The timings must not change once
    a table is made of them: what is asked for often is worked out once.
    """

    collective: Collective
    scale: Scale
    registered: bool
    timings: list[Timings]
    noise: Noise
    assumed_noise: float
    _gains: dict[tuple[int, Choice, float], Interval | None] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> list[int]:
        """Every size at which the default or a choice was measured under any condition, rising."""
        return sorted(
            {
                size
                for timings in self.timings
                for size, by_choice in timings.cells.items()
                if any(choice != TUNED_RUN for choice in by_choice)
            }
        )

    @cached_property
    def choices(self) -> list[Choice]:
        """Every choice measured but the default (and `tuned`), by label."""
        found = {
            choice
            for timings in self.timings
            for by_choice in timings.cells.values()
            for choice in by_choice
            if isinstance(choice, Choice)
        }
        return sorted(found, key=lambda choice: choice.label)

    @cached_property
    def has_default(self) -> bool:
        """Whether the default was measured anywhere."""
        return any(DEFAULT in by_choice for t in self.timings for by_choice in t.cells.values())

    @cached_property
    def rounds(self) -> int:
        """The most rounds of any point."""
        return max((timings.rounds for timings in self.timings), default=0)

    @cached_property
    def comparisons(self) -> int:
        """How many (size, choice) points are compared with the default; at least 1."""
        points = {
            (size, choice)
            for timings in self.timings
            for size, by_choice in timings.cells.items()
            if DEFAULT in by_choice
            for choice in by_choice
            if isinstance(choice, Choice)
        }
        return max(1, len(points))

    @cached_property
    def strict(self) -> float:
        """The confidence that keeps the chance of any false rule of this table under 5 %
        (Bonferroni over all comparisons: the search looks at every one of them)."""
        return 1 - 0.05 / self.comparisons

    def gain(self, size: int, choice: Choice, confidence: float = 0.95) -> Interval | None:
        """The gain of `choice` at `size` over all conditions together; None if not measured."""
        key = (size, choice, confidence)
        if key not in self._gains:
            self._gains[key] = self.pooled([(size, choice)], confidence)
        return self._gains[key]

    def pooled(
        self, cells: Iterable[tuple[int, Choice]], confidence: float = 0.95
    ) -> Interval | None:
        """The mean gain over several points.

        Values are one a round (and condition): the mean over the points in that round, so that
        what a round has in common is not counted as evidence several times.
        """
        wanted = list(cells)
        values: list[float] = []
        singles: list[float] = []
        for timings in self.timings:
            measured = [timings.log_gains(size, choice) for size, choice in wanted]
            by_cell = [gains for gains in measured if gains]
            if not by_cell:
                continue
            singles += [gain for gains in by_cell for gain in gains.values()]
            rounds = set(by_cell[0]).intersection(*by_cell[1:])
            values += [
                math.fsum(gains[round_] for gains in by_cell) / len(by_cell) for round_ in rounds
            ]
        if self.rounds >= MIN_ROUNDS and len(values) >= MIN_ROUNDS:
            return estimate(values, assumed_sd=0.0, confidence=confidence)
        return self._assumed(singles, confidence)

    def _assumed(self, values: list[float], confidence: float) -> Interval | None:
        """An interval of assumed noise. Timings of one process share what that process had in
        common, so more than four of them count as four."""
        if not values:
            return None
        sd = math.sqrt(2) * self.assumed_noise / math.sqrt(min(4, len(values)))
        centre = math.fsum(values) / len(values)
        half = normal_z(confidence) * sd
        return Interval(centre, centre - half, centre + half, len(values), known=False)

    def slower(self, size: int, choice: Choice) -> bool:
        """Whether `choice` is slower than the default at `size` beyond noise under any condition,
        or was not measured beside it."""
        seen = False
        tolerance = max(self.noise.high, 0.01) if self.noise.known else self.assumed_noise
        for timings in self.timings:
            values = list(timings.log_gains(size, choice).values())
            result = estimate(values, assumed_sd=math.sqrt(2) * self.assumed_noise)
            if result is None:
                continue
            seen = True
            if result.value < -tolerance or (result.high < 0 and result.value < -0.01):
                return True
        return not seen

    def log_time(self, size: int, choice: AnyChoice, *, anywhere: bool = False) -> float | None:
        """The mean over conditions of the log of the median time; None if not measured in all
        conditions that have this size (with `anywhere`, in none of them)."""
        logs = []
        for timings in self.timings:
            if size not in timings.cells:
                continue
            time = timings.median(size, choice)
            if time is None:
                if anywhere:
                    continue
                return None
            logs.append(math.log(time))
        return math.fsum(logs) / len(logs) if logs else None

    def timings_of(self, cells: Iterable[tuple[int, AnyChoice]]) -> int:
        """How many timings stand behind some points."""
        return sum(
            len(timings.series(size, choice)) for size, choice in cells for timings in self.timings
        )

    def point_noise(self) -> float:
        """Relative noise of one median: from A/A where known, else what is assumed."""
        if self.noise.known:
            return self.noise.typical
        return self.assumed_noise


def gain_tables(timings: Sequence[Timings], assumed_noise: float) -> list[GainTable]:
    """One table for each collective, scale and registration that NCCL's tuner is asked about."""
    grouped: dict[tuple[Collective, Scale, bool], list[Timings]] = {}
    for item in timings:
        condition = item.condition
        if condition.collective.tuned:
            key = (condition.collective, condition.scale, condition.registered)
            grouped.setdefault(key, []).append(item)
    return [
        GainTable(
            *key, timings=items, noise=_worst(items, assumed_noise), assumed_noise=assumed_noise
        )
        for key, items in grouped.items()
    ]


def _worst(timings: Sequence[Timings], assumed: float) -> Noise:
    """The noise of several conditions: measured rather than assumed, then the larger."""
    found = [noise(item, assumed) for item in timings]
    known = [item for item in found if item.known]
    return max(known or found, key=lambda item: item.typical)
