# SPDX-License-Identifier: Apache-2.0
"""S-curves, their noise and their saturation, from sorted timings."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nccltune.analyze.result import Curve, CurvePoint, Noise, Saturation
from nccltune.analyze.stats import (
    MIN_ROUNDS,
    curve_scatter,
    median,
    median_interval,
    quantile,
    relative_spread,
    student_t,
    trimmed_interval,
)
from nccltune.analyze.timings import Series, Timings
from nccltune.model.choice import DEFAULT, AnyChoice, Choice

ASSUMED_NOISE = 0.05
"""Relative noise of one timing, where too few show it.

Two medians of 8 timings differed by 0.3 % within a node and by 1-5 % over sockets.
"""
_APART = math.log(1.1)
"""Whole runs differ if one takes longer than the other by more than this log ratio."""
_CHANCE = 0.002
"""The chance that a run is called slow although all scatter alike (test_findings.py)."""
SATURATED_GROWTH = 0.05
"""A curve is saturated if its last doubling adds less than this share, or the peak is before."""


def curve(timings: Timings, choice: AnyChoice) -> Curve:
    """Return the S-curve of `choice`, with a point for every measured size."""
    points = [
        _point(timings, size, series, timings.default_ran(size) if choice == DEFAULT else None)
        for size in timings.sizes
        if (series := timings.series(size, choice))
    ]
    return Curve(choice, points)


def noise(timings: Timings, assumed: float = ASSUMED_NOISE) -> Noise:
    """Return the A/A distance: how far two medians of the same configuration differ.

    If other choices were measured, but none in a round with the default, the odd and even processes
    of the default are compared. Otherwise the first of these sources that has data is used:

    - the two timings in every round, if the default was measured twice in every round
    - the odd and even rounds of the default, or of every choice if the default was not measured

    Half the processes or rounds give a noisier median than all of them. Therefore the distance of
    two halves is divided by the square root of 2. With too few timings the noise is `assumed` (a
    fraction), or the scatter along the curves if the scatter is larger.
    """
    if timings.compares_processes:
        return _of_halves("split processes", timings, [DEFAULT], _process_halves, assumed)
    twice = [
        abs(math.log(median(first) / median(second)))
        for size in timings.sizes
        for first, second in [_repeats(timings.series(size, DEFAULT))]
        if len(first) >= 2 and len(second) >= 2
    ]
    if twice:
        return _noise("a/a series", twice)
    choices = [DEFAULT] if DEFAULT in timings.choices else timings.choices
    return _of_halves("split rounds", timings, choices, _halves, assumed)


def scatter(timings: Timings) -> float:
    """Return the scatter of medians around smooth curves: an upper estimate of their noise."""
    distances = []
    for choice in timings.choices:
        points = [
            (math.log(size), math.log(time))
            for size in timings.sizes
            if (time := timings.median(size, choice)) is not None
        ]
        found = curve_scatter([x for x, _ in points], [y for _, y in points])
        distances += [abs(value) for value in found]
    return 1.4826 * median(distances) if distances else 0.0


class SlowRuns(NamedTuple):
    """Whole runs that are slower than the others of a choice.

    `factors` has the place of each slow process and how much longer it takes at the median size,
    than the median run or, with `of_fastest`, than the fastest. The slowest is the first. `first`
    is the size from which on they are slower; None for all sizes.
    """

    factors: dict[int, float]
    runs: int
    of_fastest: bool
    first: int | None = None


def slow_runs(timings: Timings, choice: AnyChoice) -> SlowRuns | None:
    """Return the runs that are slower than the others; None if there is none.

    They take over 10 % longer at the median size, longer at 90 % of sizes (all, or the largest
    third), and longer than the scatter of the others explains (Student's t). Of four or more, fewer
    than half are slow; two or three are compared with the fastest.
    """
    logs, common = _run_curves(timings, choice)
    large = common[-(len(common) // 3) :]
    found = [
        SlowRuns(factors, len(logs), len(logs) < MIN_ROUNDS, sizes[0] if sizes is large else None)
        for sizes in (common, large)
        if len(logs) > 1 and len(sizes) >= MIN_ROUNDS and (factors := _slow_at(logs, sizes))
    ]
    return max(found, key=lambda item: len(item.factors)) if found else None


def _slow_at(logs: dict[int, dict[int, float]], sizes: list[int]) -> dict[int, float]:
    few = len(logs) < MIN_ROUNDS
    fastest = min(logs.values(), key=lambda run: median([run[size] for size in sizes]))
    usual = fastest if few else {s: median([run[s] for run in logs.values()]) for s in sizes}
    gaps = {place: [run[size] - usual[size] for size in sizes] for place, run in logs.items()}
    levels = {place: median(gap) for place, gap in gaps.items()}
    ranked = sorted(levels, key=lambda place: levels[place])
    clear = [place for place in ranked if sum(gap > 0 for gap in gaps[place]) >= 0.9 * len(sizes)]
    for number in range((len(logs) - 1) // 2 if not few else len(logs) - 1, 0, -1):
        slow, others = ranked[-number:], [levels[place] for place in ranked[:-number]]
        limit = _APART if few else max(_APART, _most_of(others, len(logs)))
        if set(slow) <= set(clear) and levels[slow[0]] > limit:
            return {place: math.exp(levels[place]) for place in reversed(slow)}
    return {}


def _most_of(levels: Sequence[float], runs: int) -> float:
    """Return the most that one more run of `runs` may take by the scatter of `levels`."""
    mean = math.fsum(levels) / len(levels)
    deviation = math.sqrt(math.fsum((level - mean) ** 2 for level in levels) / (len(levels) - 1))
    quantile_of_t = student_t(1 - 2 * _CHANCE / runs, len(levels) - 1)
    return mean + quantile_of_t * deviation * math.sqrt(1 + 1 / len(levels))


def _run_curves(
    timings: Timings, choice: AnyChoice
) -> tuple[dict[int, dict[int, float]], list[int]]:
    logs: dict[int, dict[int, float]] = {}
    for size in timings.sizes:
        for (round_, _), time_us in timings.series(size, choice).items():
            process = timings.rounds_of.process(round_)
            logs.setdefault(process, {})[size] = math.log(time_us)
    common = set.intersection(*map(set, logs.values())) if logs else set()
    return logs, sorted(common)


def saturation(curve_: Curve, line_rate_gb_per_s: float | None) -> Saturation | None:
    """Return the sizes at half and 90 % of the peak bus bandwidth, if two points have one."""
    points = [point for point in curve_.points if point.busbw_gb_per_s > 0]
    if len(points) < 2:
        return None
    peak = max(points, key=lambda point: point.busbw_gb_per_s)
    last = points[-1]
    halves = [point for point in points if 2 * point.bytes <= last.bytes]
    before = halves[-1] if halves else points[0]
    doublings = math.log2(last.bytes / before.bytes)
    # The size before may be in a dip, so that a return to what was reached looks like growth.
    reached_before = max(point.busbw_gb_per_s for point in [*halves, before])
    growth = (last.busbw_gb_per_s / reached_before) ** (1 / doublings) - 1

    def reached(share: float) -> int:
        return next(
            point.bytes for point in points if point.busbw_gb_per_s >= share * peak.busbw_gb_per_s
        )

    return Saturation(
        peak_gb_per_s=peak.busbw_gb_per_s,
        peak_bytes=peak.bytes,
        half_bytes=reached(0.5),
        ninety_bytes=reached(0.9),
        saturated=growth < SATURATED_GROWTH or peak is not last,
        line_rate_share=peak.busbw_gb_per_s / line_rate_gb_per_s if line_rate_gb_per_s else None,
    )


def _point(timings: Timings, size: int, series: Series, ran: Choice | None) -> CurvePoint:
    times = list(series.values())
    centre = median(times)
    low, high = _interval(timings, series)
    condition = timings.condition
    return CurvePoint(
        bytes=size,
        n=len(times),
        time_us=centre,
        low_us=min(low, centre),
        high_us=max(high, centre),
        spread=relative_spread(times),
        # Of an unknown number of ranks only the time is known: as for one rank, that gives 0.
        busbw_gb_per_s=condition.collective.busbw_gb_per_s(
            size, centre, max(1, condition.scale.ranks)
        ),
        ran=ran,
    )


def _interval(timings: Timings, series: Series) -> tuple[float, float]:
    """Return the 95 % confidence interval of the time at one point, in us.

    Timings of one process share an offset: of several processes each counts as one value.
    """
    by_process: dict[int, list[float]] = {}
    for (round_, _), time_us in series.items():
        by_process.setdefault(timings.rounds_of.process(round_), []).append(math.log(time_us))
    if len(by_process) < 2:
        return median_interval(list(series.values()))
    means = [math.fsum(logs) / len(logs) for logs in by_process.values()]
    value, half = trimmed_interval(means)
    return math.exp(value - half), math.exp(value + half)


def _of_halves(
    source: str,
    timings: Timings,
    choices: Sequence[AnyChoice],
    halves: Callable[[Timings, Series], tuple[list[float], list[float]]],
    assumed: float,
) -> Noise:
    found = [
        abs(math.log(median(even) / median(odd))) / math.sqrt(2)
        for size in timings.sizes
        for choice in choices
        for even, odd in [halves(timings, timings.series(size, choice))]
        if len(even) >= 2 and len(odd) >= 2
    ]
    if found:
        return _noise(source, found)
    level = max(assumed, scatter(timings))
    return Noise("assumed", level, level, len(timings.sizes))


def _noise(source: str, distances: list[float]) -> Noise:
    return Noise(source, median(distances), quantile(distances, 0.9), len(distances))


def _repeats(series: Series) -> tuple[list[float], list[float]]:
    return (
        [time for (_, repeat), time in series.items() if repeat == 0],
        [time for (_, repeat), time in series.items() if repeat == 1],
    )


def _process_halves(timings: Timings, series: Series) -> tuple[list[float], list[float]]:
    """Return the median times of the even and of the odd processes, if there are four."""
    by_process: dict[int, list[float]] = {}
    for (round_, _), time_us in series.items():
        by_process.setdefault(timings.rounds_of.process(round_), []).append(time_us)
    means = [median(times) for times in by_process.values()]
    if len(means) < MIN_ROUNDS:
        return [], []
    return means[::2], means[1::2]


def _halves(_: Timings, series: Series) -> tuple[list[float], list[float]]:
    rounds = sorted({round_ for round_, _ in series})
    even = set(rounds[::2])
    return (
        [time for (round_, _), time in series.items() if round_ in even],
        [time for (round_, _), time in series.items() if round_ not in even],
    )
