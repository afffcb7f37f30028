# SPDX-License-Identifier: Apache-2.0
"""S-curves, their noise and their saturation, from sorted timings."""

import math

from nccltune.analyze.result import Curve, Noise, Point, Saturation
from nccltune.analyze.stats import median, median_interval, quantile, relative_spread
from nccltune.analyze.timings import Series, Timings
from nccltune.model.choice import DEFAULT, AnyChoice
from nccltune.model.collective import Collective

ASSUMED_NOISE = 0.05
"""Relative noise of one timing, where a study has one timing a point. Between two medians of 8
timings we saw 0.3 % within a node and 1-5 % over sockets; single means are worse."""
SATURATED_GROWTH = 0.05
"""A curve is saturated when the last doubling of the size gains less than this."""


def curve(timings: Timings, choice: AnyChoice) -> Curve:
    """The S-curve of `choice`: a point for every size at which it was measured."""
    condition = timings.condition
    points = [
        _point(size, list(series.values()), condition.collective, condition.scale.ranks)
        for size in timings.sizes
        if (series := timings.series(size, choice))
    ]
    return Curve(choice, points)


def noise(timings: Timings, assumed: float = ASSUMED_NOISE) -> Noise:
    """How far two medians of the same thing lie apart.

    From the default measured twice in every round where it was; else from the odd against the even
    rounds of the default (or of all choices where there is no default), scaled to full rounds;
    else assumed.
    """
    twice = [
        abs(math.log(median(first) / median(second)))
        for size in timings.sizes
        for first, second in [_repeats(timings.series(size, DEFAULT))]
        if len(first) >= 2 and len(second) >= 2
    ]
    if twice:
        return _noise("a/a series", twice)
    choices = [DEFAULT] if DEFAULT in timings.choices else timings.choices
    halves = [
        abs(math.log(median(even) / median(odd))) / math.sqrt(2)
        for size in timings.sizes
        for choice in choices
        for even, odd in [_halves(timings.series(size, choice))]
        if len(even) >= 2 and len(odd) >= 2
    ]
    if halves:
        return _noise("split rounds", halves)
    return Noise("assumed", assumed, assumed, len(timings.sizes))


def saturation(curve_: Curve, line_rate_gb_per_s: float | None) -> Saturation | None:
    """Where a curve reaches half and 90 % of its peak bus bandwidth; None without bandwidth."""
    points = [point for point in curve_.points if point.busbw_gb_per_s > 0]
    if len(points) < 2:
        return None
    peak = max(points, key=lambda point: point.busbw_gb_per_s)
    last, before = points[-1], points[-2]
    doublings = math.log2(last.bytes / before.bytes)
    growth = (last.busbw_gb_per_s / before.busbw_gb_per_s) ** (1 / doublings) - 1

    def reached(share: float) -> int:
        return next(
            point.bytes for point in points if point.busbw_gb_per_s >= share * peak.busbw_gb_per_s
        )

    return Saturation(
        peak_gb_per_s=peak.busbw_gb_per_s,
        peak_bytes=peak.bytes,
        half_bytes=reached(0.5),
        ninety_bytes=reached(0.9),
        saturated=growth < SATURATED_GROWTH,
        line_rate_share=peak.busbw_gb_per_s / line_rate_gb_per_s if line_rate_gb_per_s else None,
    )


def _point(size: int, times: list[float], collective: Collective, ranks: int) -> Point:
    centre = median(times)
    low, high = median_interval(times)
    return Point(
        bytes=size,
        n=len(times),
        time_us=centre,
        low_us=low,
        high_us=high,
        spread=relative_spread(times),
        busbw_gb_per_s=collective.busbw_gb_per_s(size, centre, ranks),
    )


def _noise(source: str, distances: list[float]) -> Noise:
    return Noise(source, median(distances), quantile(distances, 0.9), len(distances))


def _repeats(series: Series) -> tuple[list[float], list[float]]:
    return (
        [time for (_, repeat), time in series.items() if repeat == 0],
        [time for (_, repeat), time in series.items() if repeat == 1],
    )


def _halves(series: Series) -> tuple[list[float], list[float]]:
    rounds = sorted({round_ for round_, _ in series})
    even = set(rounds[::2])
    return (
        [time for (round_, _), time in series.items() if round_ in even],
        [time for (round_, _), time in series.items() if round_ not in even],
    )
