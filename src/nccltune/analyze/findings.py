# SPDX-License-Identifier: Apache-2.0
"""Find defects of a curve, and whether another choice is faster there.

A dip is a fall of bandwidth, a plateau a flat range below the peak. A bad crossover is a range in
which another choice is faster than NCCL's default beyond noise. Each finding has one sentence.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from nccltune.analyze.curves import runs_apart, slow_runs
from nccltune.analyze.gains import GainTable
from nccltune.analyze.ran import ran_at
from nccltune.analyze.result import ConditionAnalysis, Curve, CurvePoint
from nccltune.analyze.timings import Timings
from nccltune.model.choice import DEFAULT, Choice, choice_label
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.sizes import format_bytes

MIN_DIP = 0.05
"""A fall of bus bandwidth is a dip if it exceeds this share of the peak before it."""
_MOST_MARGIN = 0.5
"""The most that single timings must differ. The scatter along a curve, which stands for unknown
noise, contains the falls themselves."""
_RELIABLE_BYTES = 1 << 10
"""Single timings of smaller messages are no evidence of a dip or a plateau."""
PLATEAU_SLOPE = 0.2
"""A curve is flat between two points if its slope on log-log axes is below this value. Bandwidth
proportional to size has slope 1."""
RISING_SLOPE = 0.35
"""A flat range is a plateau only if the curve rises more steeply than this slope after it."""
_FLAT = PLATEAU_SLOPE * math.log(2)
"""Between two sizes far apart, a curve is flat only if it grows no more than over one doubling."""
PLATEAU_CEILING = 0.8
"""A flat range above this share of the peak is saturation and not a plateau."""
LATENCY_BOUND = 0.1
"""Latency dominates a call whose bandwidth is below this share of the peak. Such a bandwidth is no
evidence about the platform."""
NOISY_SPREAD = 0.10
"""A point is noisy if the relative spread of its timings is above this value."""
MIN_GAIN = 0.03
"""A choice that gains less than this over the default is not reported."""
_CHECKS = "(links, NICs and GPUDirect, CPU binding, left-over NCCL_* settings)"
NOT_TUNING = f"Not a tuning problem: check the base performance first {_CHECKS}"


class _Shape(NamedTuple):
    """A defect of a curve from `low` to `high` bytes. `seen` describes the defect in words."""

    kind: FindingKind
    low: int
    high: int
    seen: str
    evidence: dict[str, float]


def condition_findings(
    analysis: ConditionAnalysis, timings: Timings, table: GainTable | None, *, rated: bool = True
) -> Iterator[Finding]:
    """Yield all findings of one condition, except times that fall.

    `table` compares the choices of this condition with the default. It is None for collectives that
    NCCL's tuner does not handle. `rated` is whether the line rate is the best known limit.
    """
    shown = analysis.curve(DEFAULT) or _fastest(analysis.curves)
    margin = max(MIN_DIP, 2 * analysis.noise.high)
    if not analysis.noise.known:
        margin = min(margin, _MOST_MARGIN)
    for shape in (*_dips(shown, margin), *_plateaus(shown)):
        yield from _explained(analysis, shape, shown, margin)
    if table is not None and analysis.curve(DEFAULT) is not None:
        yield from _bad_crossovers(analysis, table)
    yield from _not_saturated(analysis, shown)
    if rated:
        yield from _below_line_rate(analysis)
    yield from _slow_runs(analysis, shown, slow_runs(timings, shown.choice))
    yield from _noisy(analysis, shown, runs_apart(timings, shown.choice))


def _dips(curve: Curve, margin: float) -> Iterator[_Shape]:
    """Yield the ranges in which bus bandwidth falls beyond noise as the size grows."""
    points = curve.points
    index = 0
    while index + 1 < len(points):
        peak = points[index]
        after = index + 1
        while after < len(points) and points[after].busbw_gb_per_s <= peak.busbw_gb_per_s:
            after += 1
        lower = points[index + 1 : after]
        if lower:
            low = min(lower, key=lambda point: point.busbw_gb_per_s)
            fall = 1 - low.busbw_gb_per_s / peak.busbw_gb_per_s
            # The fall is beyond noise if the intervals of the two bandwidths do not overlap.
            apart = low.low_us / low.bytes > peak.high_us / peak.bytes
            once = peak.n == low.n == 1
            if fall > margin and apart and not (once and low.bytes < _RELIABLE_BYTES):
                yield _Shape(
                    FindingKind.DIP,
                    peak.bytes,
                    low.bytes,
                    f"bus bandwidth falls from {rate(peak.busbw_gb_per_s)} at "
                    f"{format_bytes(peak.bytes)} to {rate(low.busbw_gb_per_s)} at "
                    f"{format_bytes(low.bytes)} ({percent(fall)} less"
                    + (", one timing each)" if once else ")")
                    + _edge(points[index : points.index(low) + 1]),
                    {"peak_gb_per_s": peak.busbw_gb_per_s, "low_gb_per_s": low.busbw_gb_per_s},
                )
        index = after


def _edge(points: list[CurvePoint]) -> str:
    """Return where most of a fall over several sizes is, if two neighbouring sizes have it."""
    logs = [math.log(point.busbw_gb_per_s) for point in points]
    falls = [before - after for before, after in pairwise(logs)]
    place = falls.index(max(falls))
    if len(falls) < 2 or falls[place] < (logs[0] - logs[-1]) / 2:
        return ""
    before, after = points[place], points[place + 1]
    return (
        f", most of it from {rate(before.busbw_gb_per_s)} at {format_bytes(before.bytes)} to "
        f"{rate(after.busbw_gb_per_s)} at {format_bytes(after.bytes)}"
    )


def _plateaus(curve: Curve) -> Iterator[_Shape]:
    """Yield the ranges in which the curve is flat below its peak and after which it rises again."""
    points = curve.points
    top = max((point.busbw_gb_per_s for point in points), default=0.0)
    slopes = [_slope(first, second) for first, second in pairwise(points)]
    start = 0
    while start < len(slopes):
        end = start
        while end < len(slopes) and -MIN_DIP < slopes[end] < PLATEAU_SLOPE:
            if abs(_growth(points[end], points[end + 1])) > _FLAT:
                break
            end += 1
        first, last = points[start], points[end]
        stuck = last.busbw_gb_per_s < PLATEAU_CEILING * top
        if first.n == last.n == 1 and last.bytes < _RELIABLE_BYTES:
            stuck = False
        rises = end < len(slopes) and slopes[end] > RISING_SLOPE
        rises = rises and _growth(last, points[end + 1]) > MIN_DIP
        if end > start and stuck and rises:
            yield _Shape(
                FindingKind.PLATEAU,
                first.bytes,
                last.bytes,
                f"bus bandwidth stands still at about {rate(last.busbw_gb_per_s)} from "
                f"{format_bytes(first.bytes)} to {format_bytes(last.bytes)}, "
                f"{percent(last.busbw_gb_per_s / top)} of the peak",
                {"level_gb_per_s": last.busbw_gb_per_s, "peak_gb_per_s": top},
            )
        start = max(end, start + 1)


def _explained(
    analysis: ConditionAnalysis, shape: _Shape, shown: Curve, margin: float
) -> Iterator[Finding]:
    """Yield the defect `shape` as a finding. It names a choice that is faster beyond `margin`.

    If no choice is faster, also yield that the defect is not a tuning problem. Do not yield this if
    latency dominates there, or if there is no default or no other choice to compare.
    """
    here = _at(shown, shape.high)
    assert here is not None
    others = [
        (point, curve.choice)
        for curve in analysis.curves
        if isinstance(curve.choice, Choice) and (point := _at(curve, shape.high)) is not None
    ]
    sentence = f"{analysis.title}: {shape.seen}"
    if not others or analysis.curve(DEFAULT) is None:
        yield _finding(analysis, shape, sentence)
        return
    best, choice = min(others, key=lambda item: item[0].time_us)
    if here.time_us > best.time_us * (1 + margin):
        few = "" if analysis.noise.known else ", which so few timings cannot show"
        yield _finding(
            analysis,
            shape,
            f"{sentence}. Another choice {'looks' if few else 'is'} faster there: "
            f"{choice_label(choice)} reaches {rate(best.busbw_gb_per_s)} at "
            f"{format_bytes(shape.high)}{few}",
            better=choice if isinstance(choice, Choice) else None,
            tuning=True,
        )
        return
    yield _finding(analysis, shape, f"{sentence}. No other choice does better", tuning=False)
    if here.busbw_gb_per_s < LATENCY_BOUND * max(point.busbw_gb_per_s for point in shown.points):
        return
    what = "dips" if shape.kind is FindingKind.DIP else "stands still"
    yield _finding(
        analysis,
        shape._replace(kind=FindingKind.NOT_A_TUNING_PROBLEM),
        f"{analysis.title}: even the best choice {what} between "
        f"{format_bytes(shape.low)} and {format_bytes(shape.high)}. {NOT_TUNING}",
        tuning=False,
    )


def _bad_crossovers(analysis: ConditionAnalysis, table: GainTable) -> Iterator[Finding]:
    """Yield the ranges in which another choice is faster than the default beyond noise."""
    run: list[tuple[int, Choice, float]] = []
    for size in [*table.sizes, None]:
        better = None if size is None else better_choice(table, size)
        if better is not None and size is not None:
            run.append((size, *better))
            continue
        if run:
            yield _crossover(analysis, run)
        run = []


def better_choice(table: GainTable, size: int) -> tuple[Choice, float] | None:
    """Return the choice with the largest gain beyond noise at `size`, and its log gain.

    Beyond noise means that the interval of the gain at `table.strict` confidence is above zero. The
    gain must also exceed `MIN_GAIN` and the A/A distance of two medians. Gains with assumed noise
    do not count, because an assumption is no evidence. Return None if no choice qualifies.
    """
    floor = max(math.log1p(MIN_GAIN), table.noise.typical if table.noise.known else 0.0)
    found: tuple[Choice, float] | None = None
    for choice in table.choices:
        gain = table.gain(size, choice, table.strict)
        if gain is None or not gain.known or gain.value < floor or gain.low <= 0:
            continue
        if found is None or gain.value > found[1]:
            found = (choice, gain.value)
    return found


def _crossover(analysis: ConditionAnalysis, run: list[tuple[int, Choice, float]]) -> Finding:
    sizes = [size for size, _, _ in run]
    best = max(run, key=lambda item: item[2])
    mean = math.exp(math.fsum(gain for _, _, gain in run) / len(run))
    many = len(sizes) > 1
    choices = list(dict.fromkeys(choice for _, choice, _ in run))
    words = [
        f"{choice.label} ({_range([size for size, chosen, _ in run if chosen == choice])})"
        if len(choices) > 1
        else choice.label
        for choice in choices
    ]
    ran = ran_at(analysis.shown.points, sizes)
    took = f"it ran {', then '.join(ran)}; " if ran and not analysis.ran_predicted else ""
    sentence = (
        f"{analysis.title}: {'from ' if many else 'at '}{_range(sizes)} the default is "
        f"not the best: {took}{', then '.join(words)} is {'up to ' if many else ''}"
        f"{math.exp(best[2]):.2f}x faster" + (f", {mean:.2f}x on average" if many else "")
    )
    return Finding(
        kind=FindingKind.BAD_CROSSOVER,
        sentence=sentence,
        where=analysis.title,
        collective=analysis.condition.collective,
        scale=analysis.condition.scale,
        min_bytes=sizes[0],
        max_bytes=sizes[-1],
        better=best[1],
        tuning=True,
        evidence={"most": math.exp(best[2]), "mean": mean},
    )


def _not_saturated(analysis: ConditionAnalysis, curve: Curve) -> Iterator[Finding]:
    if analysis.saturation is None or analysis.saturation.saturated:
        return
    last = curve.points[-1]
    if last.bytes != analysis.saturation.peak_bytes:
        # Behind a fall it only grows back.
        return
    shape = _Shape(
        FindingKind.NOT_SATURATED,
        last.bytes,
        last.bytes,
        f"bus bandwidth still grows at the largest size ({rate(last.busbw_gb_per_s)} at "
        f"{format_bytes(last.bytes)}); measure larger sizes to see the peak",
        {"last_gb_per_s": last.busbw_gb_per_s},
    )
    yield _finding(analysis, shape, f"{analysis.title}: {shape.seen}")


def _below_line_rate(analysis: ConditionAnalysis) -> Iterator[Finding]:
    """Yield a finding if no choice reaches 80 % of the line rate.

    Yield nothing if the line rate is unknown.
    """
    saturation = analysis.saturation
    if saturation is None or saturation.line_rate_share is None:
        return
    line_rate = saturation.peak_gb_per_s / saturation.line_rate_share
    points = _fastest(analysis.curves).points
    best = max(point.busbw_gb_per_s for point in points)
    if best >= PLATEAU_CEILING * line_rate:
        return
    several = len(analysis.curves) > 1
    reached = f"{rate(best)}, {percent(best / line_rate)} of the line rate"
    shape = _Shape(
        FindingKind.NOT_A_TUNING_PROBLEM if several else FindingKind.BELOW_EXPECTED,
        points[0].bytes,
        points[-1].bytes,
        f"the best of all choices reaches {reached}. {NOT_TUNING}"
        if several
        else f"{choice_label(analysis.shown.choice)} reaches {reached}. No other choice was "
        f"measured, but check the base performance first {_CHECKS}",
        {"peak_gb_per_s": best, "line_rate_gb_per_s": line_rate},
    )
    tuning = False if several else None
    yield _finding(analysis, shape, f"{analysis.title}: {shape.seen}", tuning=tuning)


def _slow_runs(
    analysis: ConditionAnalysis, curve: Curve, slow: tuple[int, int, float] | None
) -> Iterator[Finding]:
    """Yield a finding if a few runs are slower than the others: `slow` of how many, by how much."""
    if slow is None:
        return
    few, runs, factor = slow
    take = "takes" if few == 1 else "take at least"
    shape = _Shape(
        FindingKind.NOISY,
        curve.points[0].bytes,
        curve.points[-1].bytes,
        f"{few} of {runs} runs {take} {factor:.2f}x as long as the others at nearly all sizes; the "
        "medians hide it. Find what differed: nccltune compare FILES names the slow runs",
        {"slow_runs": float(few), "runs": float(runs), "factor": factor},
    )
    yield _finding(analysis, shape, f"{analysis.title}: {shape.seen}")


def _noisy(
    analysis: ConditionAnalysis, curve: Curve, apart: tuple[int, float] | None
) -> Iterator[Finding]:
    """Yield a finding if timings of one point differ much.

    `apart` is the number of runs and the factor between them, if whole runs differ.
    """
    noisy = [
        (point.spread, point)
        for point in curve.points
        if point.spread is not None and point.spread > NOISY_SPREAD
    ]
    if not noisy:
        return
    spread, worst = max(noisy, key=lambda item: item[0])
    seen = (
        f"single timings spread by over {percent(NOISY_SPREAD)} at {len(noisy)} of "
        f"{len(curve.points)} sizes, most at {format_bytes(worst.bytes)} ({percent(spread)}); "
        "more rounds narrow the intervals there"
    )
    if apart is not None:
        seen = (
            f"of {apart[0]} runs the slowest takes {apart[1]:.2f}x as long as the fastest at "
            "nearly all sizes, so they are not rounds of one state; find what differs, or import "
            "them into studies of their own"
        )
    shape = _Shape(
        FindingKind.NOISY,
        noisy[0][1].bytes,
        noisy[-1][1].bytes,
        seen,
        {"worst_spread": spread, "sizes": float(len(noisy))},
    )
    yield _finding(analysis, shape, f"{analysis.title}: {shape.seen}")


def _fastest(curves: list[Curve]) -> Curve:
    """Return a curve of the fastest choice at every size."""
    by_size: dict[int, CurvePoint] = {}
    for curve in curves:
        for point in curve.points:
            if point.bytes not in by_size or point.time_us < by_size[point.bytes].time_us:
                by_size[point.bytes] = point
    return Curve(DEFAULT, [by_size[size] for size in sorted(by_size)])


def _finding(
    analysis: ConditionAnalysis,
    shape: _Shape,
    sentence: str,
    *,
    better: Choice | None = None,
    tuning: bool | None = None,
) -> Finding:
    return Finding(
        kind=shape.kind,
        sentence=sentence,
        where=analysis.title,
        collective=analysis.condition.collective,
        scale=analysis.condition.scale,
        min_bytes=shape.low,
        max_bytes=shape.high,
        better=better,
        tuning=tuning,
        evidence=shape.evidence,
    )


def _growth(first: CurvePoint, second: CurvePoint) -> float:
    """Return the natural log of the ratio of two bandwidths."""
    return math.log(second.busbw_gb_per_s / first.busbw_gb_per_s)


def _slope(first: CurvePoint, second: CurvePoint) -> float:
    """Return the slope of bandwidth over size on log-log axes."""
    return _growth(first, second) / math.log(second.bytes / first.bytes)


def _at(curve: Curve, size: int) -> CurvePoint | None:
    return next((point for point in curve.points if point.bytes == size), None)


def _range(sizes: list[int]) -> str:
    if sizes[0] == sizes[-1]:
        return format_bytes(sizes[0])
    return f"{format_bytes(sizes[0])} to {format_bytes(sizes[-1])}"


def rate(gb_per_s: float) -> str:
    """Return a bandwidth in GB/s with three significant digits: `0.47 GB/s`, `3600 GB/s`."""
    return f"{_digits(gb_per_s)} GB/s"


def duration(time_us: float) -> str:
    """Return a time with three significant digits: `91.7 us`, `1.25 ms`."""
    return f"{_digits(time_us)} us" if time_us < 999.5 else f"{_digits(time_us / 1e3)} ms"


def percent(share: float) -> str:
    """Return a fraction as a percentage with three significant digits: `88 %`."""
    return f"{_digits(100 * share)} %"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 999.5 else f"{value:.3g}"
