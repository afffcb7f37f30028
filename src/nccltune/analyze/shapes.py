# SPDX-License-Identifier: Apache-2.0
"""Find dips and plateaus of a curve, whatever the distance of its sizes."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from nccltune.analyze.result import Curve, CurvePoint
from nccltune.model.finding import FindingKind
from nccltune.model.numbers import percent, rate
from nccltune.model.sizes import format_bytes

MIN_DIP = 0.05
"""A fall of bus bandwidth is a dip if it exceeds this share of the peak before it."""
_LASTING = 0.5
"""A fall of this share is a dip, however much the curve scatters: it is part of that."""
_RELIABLE_BYTES = 1 << 10
"""Single timings of smaller messages are no evidence of a dip or a plateau."""
_FLAT = 1.15
"""The highest bandwidth of a flat range over the lowest."""
_STILL = 1.03
"""Above this growth a flat range does not stand still: it hardly grows."""
RISING_SLOPE = 0.35
"""Slope (log-log) above which a curve must rise around a plateau; 1 is proportional."""
_LEAST_LEVEL = 0.01
"""A flat range below this share of the peak is latency, not a plateau."""
PLATEAU_CEILING = 0.8
"""A flat range above this share of the peak is saturation and not a plateau."""


class Shape(NamedTuple):
    """A defect of a curve from `low` to `high` bytes. `seen` describes the defect in words."""

    kind: FindingKind
    low: int
    high: int
    seen: str
    evidence: dict[str, float]


def shapes(curve: Curve, margin: float, beside: Curve | None) -> list[Shape]:
    """Return the dips and plateaus of a curve, beyond the `margin` of noise.

    The other placement `beside` shows whether a single timing was slow by chance.
    """
    return [*_dips(curve.points, margin, beside), *_plateaus(curve.points, margin)]


def _dips(points: Sequence[CurvePoint], margin: float, beside: Curve | None) -> Iterator[Shape]:
    """Yield the ranges in which bus bandwidth falls beyond noise as the size grows."""
    top = place = since = 0
    while place < len(points):
        peak = points[top].busbw_gb_per_s
        limit = (1 - min(margin, _LASTING)) * peak
        end = place
        while end < len(points) and points[end].busbw_gb_per_s < limit:
            # Around the limit, noise would end and start a dip again and again.
            limit = (1 - min(margin, _LASTING) / 2) * peak
            end += 1
        if end - place > 1 or (end > place and points[place].busbw_gb_per_s < (1 - margin) * peak):
            back = points[end] if end < len(points) else None
            # What an earlier dip showed is not shown again.
            fall = points[max(top, since) : end]
            yield from _dip(fall, points[place:end], back, margin, beside)
            since = end
        elif points[place].busbw_gb_per_s >= peak:
            top = place
        place = max(end, place + 1)


def _dip(
    points: Sequence[CurvePoint],
    lower: Sequence[CurvePoint],
    back: CurvePoint | None,
    margin: float,
    beside: Curve | None,
) -> Iterator[Shape]:
    """Yield the fall from `points[0]` to the `lower` points, which end it, by its steepest edge.

    `back` is the first point as high as before, within half of the `margin`.
    """
    peak, low = points[0], min(lower, key=lambda point: point.busbw_gb_per_s)
    once = peak.n == low.n == 1
    # The fall is beyond noise if the intervals of the two bandwidths do not overlap.
    apart = low.low_us / low.bytes > peak.high_us / peak.bytes
    if not apart or (once and low.bytes < _RELIABLE_BYTES):
        return
    before, after = min(pairwise(points), key=lambda two: _ratio(*two))
    gradual = _ratio(before, after) > min(math.sqrt(_ratio(peak, low)), 1 - min(margin, _LASTING))
    if gradual:
        before, after = peak, low
    seen = (
        f"bus bandwidth falls from {rate(before.busbw_gb_per_s)} at {format_bytes(before.bytes)} "
        f"to {rate(after.busbw_gb_per_s)} at {format_bytes(after.bytes)} "
        f"({percent(1 - _ratio(before, after))} less"
        + (", over several sizes" if gradual else "")
        + (", one timing each)" if once else ")")
    )
    rest = [point.busbw_gb_per_s for point in lower if point.bytes >= after.bytes]
    if back is not None:
        seen += f"; it is {rate(back.busbw_gb_per_s)} again at {format_bytes(back.bytes)}"
    elif len(rest) > 1:
        last = format_bytes(points[-1].bytes)
        seen += f" and stays between {rate(min(rest))} and {rate(max(rest))} up to {last}"
    other, other_peak = point_at(beside, after.bytes), point_at(beside, before.bytes)
    middle = math.sqrt(before.busbw_gb_per_s * after.busbw_gb_per_s)
    if other is not None and other_peak is not None:
        middle = min(middle, other_peak.busbw_gb_per_s * math.sqrt(_ratio(before, after)))
    if once and other and other.busbw_gb_per_s > middle:
        seen += f". The other placement has {rate(other.busbw_gb_per_s)} there: run it again"
    evidence = {"peak_gb_per_s": before.busbw_gb_per_s, "low_gb_per_s": after.busbw_gb_per_s}
    yield Shape(FindingKind.DIP, before.bytes, after.bytes, seen, evidence)


def _plateaus(points: Sequence[CurvePoint], margin: float) -> Iterator[Shape]:
    """Yield the ranges that are flat below the peak and rise beyond noise after it."""
    top = max((point.busbw_gb_per_s for point in points), default=0.0)
    start = 0
    while start < len(points) - 1:
        end, low, high = start, math.inf, 0.0
        for place in range(start, len(points)):
            low = min(low, points[place].busbw_gb_per_s)
            high = max(high, points[place].busbw_gb_per_s)
            if high > _FLAT * low:
                break
            end = place
        first, last = points[start], points[end]
        after = next((point for point in points[end:] if point.bytes >= 2 * last.bytes), None)
        reliable = first.n > 1 or last.n > 1 or last.bytes >= _RELIABLE_BYTES
        wide = last.bytes >= 2 * first.bytes and (margin < _FLAT - 1 or end - start > 1)
        stuck = _LEAST_LEVEL * top < last.busbw_gb_per_s < PLATEAU_CEILING * top
        rises = after is not None and (
            _ratio(last, after) > 1 + margin and _slope(last, after) > RISING_SLOPE
        )
        if wide and reliable and stuck and rises:
            level = rate(last.busbw_gb_per_s)
            smaller, larger = format_bytes(first.bytes), format_bytes(last.bytes)
            if _ratio(first, last) > _STILL:
                still = (
                    f"hardly grows: {rate(first.busbw_gb_per_s)} at {smaller}, {level} at {larger}"
                )
            else:
                still = f"stands still at about {level} from {smaller} to {larger}"
            yield Shape(
                FindingKind.PLATEAU,
                first.bytes,
                last.bytes,
                f"bus bandwidth {still}, {percent(last.busbw_gb_per_s / top)} of the peak",
                {"level_gb_per_s": last.busbw_gb_per_s, "peak_gb_per_s": top},
            )
        start = max(end, start + 1)


def _ratio(first: CurvePoint, second: CurvePoint) -> float:
    return second.busbw_gb_per_s / first.busbw_gb_per_s


def _slope(first: CurvePoint, second: CurvePoint) -> float:
    return math.log(_ratio(first, second)) / math.log(second.bytes / first.bytes)


def point_at(curve: Curve | None, size: int) -> CurvePoint | None:
    """Return the point of a curve at a size; None if there is none."""
    points = curve.points if curve is not None else []
    return next((point for point in points if point.bytes == size), None)
