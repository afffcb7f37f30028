# SPDX-License-Identifier: Apache-2.0
"""The gain of every choice over the default at every size, and its statistical significance.

Findings and the rule search both use `GainTable`, so they draw the same conclusions.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from nccltune.analyze.contrasts import (
    Contrast,
    PairedContrasts,
    ProcessContrasts,
    ProcessLayout,
    ProcessTimings,
)
from nccltune.analyze.curves import noise, scatter
from nccltune.analyze.result import Condition, Noise
from nccltune.analyze.stats import MIN_ROUNDS, Interval, median, normal_z, trimmed_interval
from nccltune.analyze.timings import Process, Timings
from nccltune.model.choice import DEFAULT, TUNED_RUN, AnyChoice, Choice, PartialChoice
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale, count

_CHANCE = 0.03
"""The accepted chance of a false rule, divided among all comparisons of a table.

The search also selects the range of a rule, so the real chance is above it; it must stay under 5 %
(benchmarks/statistics_simulation.py).
"""


@dataclass
class GainTable:
    """The gains of all choices under conditions that NCCL's tuner cannot distinguish.

    Gains are natural logs of default time over choice time: 0.1 is about 10 % faster. The timings
    must not change afterwards, because results are cached.
    """

    collective: Collective
    scale: Scale
    registered: bool
    pipe_ops: int
    timings: list[Timings]
    noise: Noise
    assumed_noise: float
    limited: list[Timings] = field(default_factory=list)
    """The timings of runs that were limited to an algorithm or a protocol."""
    _gains: dict[tuple[Choice, tuple[int, ...], float], Interval | None] = field(
        default_factory=dict
    )

    @cached_property
    def sizes(self) -> list[int]:
        """Return every size of the default or a choice, but not of `TUNED_RUN` alone."""
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
        """Return every measured choice in order of label, without the default and `TUNED_RUN`."""
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
        """Return whether the default was measured under any condition."""
        return any(DEFAULT in by_choice for t in self.timings for by_choice in t.cells.values())

    @cached_property
    def rounds(self) -> int:
        """Return the largest number of rounds in which a choice was measured at one size."""
        return max((timings.rounds for timings in self.timings), default=0)

    @cached_property
    def comparisons(self) -> int:
        """Return the number of pairs (size, choice) to compare with the default, at least 1."""
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
        """Return the confidence that keeps the chance of any false rule under 5 % (Bonferroni)."""
        return 1 - _CHANCE / self.comparisons

    def gain(self, size: int, choice: Choice, confidence: float = 0.95) -> Interval | None:
        """Return the mean gain of `choice` at `size` over all conditions; None if unmeasured."""
        return self.pooled(choice, (size,), confidence)

    def pooled(
        self, choice: Choice, sizes: Iterable[int], confidence: float = 0.95
    ) -> Interval | None:
        """Return the mean gain of `choice` over `sizes`; None without a common size.

        `known` is False if noise or the difference between processes had to be assumed.
        """
        key = (choice, tuple(sizes), confidence)
        if key not in self._gains:
            self._gains[key] = self._pooled(*key)
        return self._gains[key]

    def _pooled(self, choice: Choice, sizes: tuple[int, ...], confidence: float) -> Interval | None:
        columns = [self._columns[size] for size in sizes if size in self._columns]
        if not columns:
            return None
        found = self._contrast(choice, columns)
        if found is not None:
            half = found.half_width(confidence)
            return Interval(found.value, found.value - half, found.value + half, found.n, True)
        if self.shares_rounds(choice):
            return self._assumed_rounds(choice, columns, confidence)
        return self._assumed_processes(choice, columns, confidence)

    def _contrast(self, choice: Choice, columns: Sequence[int]) -> Contrast | None:
        if not self.shares_rounds(choice):
            return self._processes.contrast(choice, columns)
        found = self._paired.contrast(choice, columns)
        if found is not None or len(columns) == 1:
            return found
        # Fewer than four rounds have all sizes. Combine the contrasts of single sizes. Their errors
        # may be correlated, so average the errors instead of their squares.
        each = [self._paired.contrast(choice, [column]) for column in columns]
        known = [item for item in each if item is not None]
        if len(known) < len(each):
            return None
        return Contrast(
            math.fsum(item.value for item in known) / len(known),
            math.fsum(item.error for item in known) / len(known),
            min(item.degrees for item in known),
            min(item.n for item in known),
        )

    def _assumed_rounds(
        self, choice: Choice, columns: Sequence[int], confidence: float
    ) -> Interval | None:
        """Return an interval with assumed noise; process offsets limit it to that of four
        timings."""
        table = self._paired.gains[choice][:, list(columns)]
        values = [float(value) for value in table[~np.isnan(table)]]
        if not values:
            return None
        sd = math.sqrt(2) * self.row_noise / math.sqrt(min(MIN_ROUNDS, len(values)))
        centre = math.fsum(values) / len(values)
        half = normal_z(confidence) * sd
        return Interval(centre, centre - half, centre + half, len(values), known=False)

    def _assumed_processes(
        self, choice: Choice, columns: Sequence[int], confidence: float
    ) -> Interval | None:
        """Return an interval for a gain that cannot be told from its processes or drift.

        It adds the assumed difference of two processes, the scatter, and the drift that shows.
        """
        centre = self._processes.difference(choice, columns)
        if centre is None:
            return None
        offset = normal_z(confidence) * math.sqrt(2) * self.assumed_noise
        rows = normal_z(confidence) * math.sqrt(2) * self._scatter / math.sqrt(len(columns))
        half = math.hypot(offset, rows) + self._processes.drift_bound(columns)
        return Interval(centre, centre - half, centre + half, 1, known=False)

    def comparable(self, size: int, choice: Choice) -> bool:
        """Return whether a gain competes: known, and not assumed beside one that is measured."""
        gain = self.gain(size, choice)
        return gain is not None and (gain.known or size not in self._measured_sizes)

    @cached_property
    def _measured_sizes(self) -> frozenset[int]:
        return frozenset(
            size
            for size in self.sizes
            if any(
                (gain := self.gain(size, item)) is not None and gain.known for item in self.choices
            )
        )

    def shares_rounds(self, choice: Choice) -> bool:
        """Return whether any round has both `choice` and the default."""
        return choice in self._paired.gains

    def layout(self, choice: Choice) -> ProcessLayout:
        """Return whether a gain can be told from its processes and drift, else what to do."""
        if not self.shares_rounds(choice):
            return self._processes.layout(choice)
        gains = self._paired.gains[choice]
        rounds = int((~np.isnan(gains)).sum(axis=0).max(initial=0))
        if rounds >= MIN_ROUNDS:
            return ProcessLayout(True)
        return ProcessLayout(
            False,
            f"{count(rounds, 'round')} cannot show the noise, and "
            f"{100 * self.row_noise:.2g} % is assumed",
            f"measure at least {MIN_ROUNDS} rounds",
        )

    def slower(self, size: int, choice: Choice) -> bool:
        """Return whether `choice` is slower beyond noise under any condition, or unknown."""
        gain = self.gain(size, choice)
        if gain is None:
            return True
        tolerance = max(self.noise.high, 0.01) if self.noise.known else self.row_noise
        for timings in self.timings:
            values = list(timings.log_gains(size, choice).values())
            if len(values) >= MIN_ROUNDS:
                value, half = trimmed_interval(values)
            elif values:
                value, half = math.fsum(values) / len(values), gain.value - gain.low
            else:
                ratio = _difference(timings, size, choice)
                if self.shares_rounds(choice) or ratio is None:
                    continue
                value, half = ratio, gain.value - gain.low
            if value < -tolerance or (value + half < 0 and value < -0.01):
                return True
        return False

    @cached_property
    def row_noise(self) -> float:
        """Return the noise to assume for one timing: at least the scatter along the curves."""
        return max(self.assumed_noise, self._scatter)

    @cached_property
    def _scatter(self) -> float:
        return max((scatter(timings) for timings in self.timings), default=0.0)

    @cached_property
    def _columns(self) -> dict[int, int]:
        return {size: column for column, size in enumerate(self.sizes)}

    @cached_property
    def _paired(self) -> PairedContrasts:
        """Return the gains by round; placements of a round count as one replicate."""
        sums: dict[Choice, dict[int, dict[int, list[float]]]] = {}
        for timings in self.timings:
            for size, by_choice in timings.cells.items():
                for choice in by_choice:
                    if not isinstance(choice, Choice) or DEFAULT not in by_choice:
                        continue
                    for round_, gain in timings.log_gains(size, choice).items():
                        rows = sums.setdefault(choice, {}).setdefault(round_, {})
                        rows.setdefault(self._columns[size], []).append(gain)
        gains = {}
        for choice, rounds in sums.items():
            table = np.full((len(rounds), len(self.sizes)), np.nan)
            for row, found in enumerate(rounds.values()):
                for column, values in found.items():
                    table[row, column] = math.fsum(values) / len(values)
            gains[choice] = table
        return PairedContrasts(gains)

    @cached_property
    def _processes(self) -> ProcessContrasts:
        """Return the log times by process and choice, over the conditions that all measured."""
        logs: dict[int, dict[tuple[int, AnyChoice], dict[int, float]]] = {}
        processes: dict[int, Process] = {}
        for place, timings in enumerate(self.timings):
            for size, by_choice in timings.cells.items():
                for choice, series in by_choice.items():
                    if choice == TUNED_RUN:
                        continue
                    rows: dict[int, list[float]] = {}
                    for (round_, _), time_us in series.items():
                        process = timings.rounds_of.process(round_)
                        rows.setdefault(process, []).append(time_us)
                    for process, times in rows.items():
                        if timings.rounds_of.processes:
                            processes[process] = timings.rounds_of.processes[process]
                        cell = logs.setdefault(self._columns[size], {})
                        cell.setdefault((process, choice), {})[place] = math.log(median(times))
        tables: dict[tuple[int, AnyChoice], list[float]] = {}
        for column, cells in logs.items():
            common = set.intersection(*(set(medians) for medians in cells.values()))
            for key, medians in cells.items():
                table = tables.setdefault(key, [math.nan] * len(self.sizes))
                if common:
                    table[column] = math.fsum(medians[place] for place in common) / len(common)
        unknown = Process("")
        found = [
            ProcessTimings(
                process,
                choice,
                np.array(table),
                processes.get(process, unknown).at,
                processes.get(process, unknown).stated_round,
            )
            for (process, choice), table in tables.items()
        ]
        return ProcessContrasts(found)

    def channels(self, size: int, choice: AnyChoice) -> int | None:
        """Return the largest number of channels that `choice` used at `size`; None if unknown."""
        found = [
            channels
            for timings in self.timings
            if (channels := timings.channels.get(size, {}).get(choice)) is not None
        ]
        return max(found, default=None)

    def default_ran(self, size: int) -> Choice | None:
        """Return what NCCL reported to have run as its default at `size`; None if unknown."""
        found = (t.default_ran(size) for t in self.timings if not t.ran_predicted)
        return next((choice for choice in found if choice is not None), None)

    def log_time(self, size: int, choice: AnyChoice, *, anywhere: bool = False) -> float | None:
        """Return the log of the median time in us over conditions that all have the choice.

        With `anywhere`, conditions without it are skipped.
        """
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

    def beaten_by(self, size: int, choice: Choice) -> tuple[float, PartialChoice] | None:
        """Return the log gain of the limited run that beats `choice` the most, if beyond noise."""
        gains = [
            (math.log(slow / fast), limits)
            for own, other in itertools.product(self.timings, self.limited)
            if (limits := other.condition.limits)
            and own.condition == replace(other.condition, limits=None)
            and (slow := own.median(size, choice))
            and (fast := other.median(size, limits))
        ]
        best = max(gains, default=None)
        return best if best and best[0] > max(self.noise.typical, self.assumed_noise) else None

    def timings_of(self, cells: Iterable[tuple[int, AnyChoice]]) -> int:
        """Return the total number of timings of the points (size, choice) in `cells`."""
        return sum(
            len(timings.series(size, choice)) for size, choice in cells for timings in self.timings
        )


def gain_tables(timings: Sequence[Timings], assumed_noise: float) -> list[GainTable]:
    """Return one table for each collective, scale, registration and pipe ops: the tuner's
    inputs. Limited runs stand beside the others and have no table of their own."""
    grouped: dict[Condition, list[Timings]] = {}
    for item in timings:
        if item.condition.collective.tuned and item.condition.limits is None:
            grouped.setdefault(item.condition.for_tuner, []).append(item)
    return [
        GainTable(
            key.collective,
            key.scale,
            key.registered,
            key.pipe_ops,
            timings=items,
            noise=_worst(items, assumed_noise),
            assumed_noise=assumed_noise,
            limited=[
                item
                for item in timings
                if item.condition.limits and replace(item.condition.for_tuner, limits=None) == key
            ],
        )
        for key, items in grouped.items()
    ]


def _difference(timings: Timings, size: int, choice: Choice) -> float | None:
    """Return the log of the default's median time over that of `choice`, if both exist."""
    default, other = timings.median(size, DEFAULT), timings.median(size, choice)
    return None if default is None or other is None else math.log(default / other)


def _worst(timings: Sequence[Timings], assumed: float) -> Noise:
    """Return the largest measured noise of several conditions, else the largest assumed."""
    found = [noise(item, assumed) for item in timings]
    known = [item for item in found if item.known]
    return max(known or found, key=lambda item: item.typical)
