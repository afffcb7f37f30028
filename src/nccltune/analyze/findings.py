# SPDX-License-Identifier: Apache-2.0
"""Find defects of a curve, and whether another choice is faster there.

A dip is a fall of bandwidth, a plateau a flat range below the peak. A bad crossover is a range in
which another choice is faster than NCCL's default beyond noise. Each finding has one sentence.
"""

import math
from collections.abc import Iterator, Mapping

from nccltune.analyze.curves import ASSUMED_NOISE, SlowRuns, slow_runs
from nccltune.analyze.default_runs import ran_at
from nccltune.analyze.gains import GainTable
from nccltune.analyze.result import ConditionAnalysis, Curve, CurvePoint
from nccltune.analyze.shapes import MIN_DIP, PLATEAU_CEILING, Shape, point_at, shapes
from nccltune.analyze.stats import median
from nccltune.analyze.timings import Timings
from nccltune.model.choice import DEFAULT, Choice, choice_label
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.numbers import percent, rate
from nccltune.model.sizes import format_bytes

LATENCY_BOUND = 0.1
"""Below this share of the peak a call is dominated by latency, no evidence of the platform."""
NOISY_SPREAD = 0.10
"""A point is noisy if the relative spread of its timings is above this value."""
MIN_GAIN = 0.03
"""A choice that gains less than this over the default is not reported."""
_CHECKS = "(links, NICs and GPUDirect, CPU binding, left-over NCCL_* settings)"
_MOST_NAMED = 3
_STEADY_BYTES = 16 << 10
_LEAST_PAIRS = 6
"""The fewest sizes from this one on at which two placements show the noise of a timing."""
_FEWEST_PAIRS = 4
"""With fewer sizes than that, down to this number, their largest difference is the noise."""
_MANY_PAIRS = 40
"""From this number on, also a large noise is that: of many sizes some are slow by chance."""
NOT_TUNING = f"Not a tuning problem: check the base performance first {_CHECKS}"


def condition_findings(
    analysis: ConditionAnalysis,
    timings: Timings,
    table: GainTable | None,
    *,
    beside: ConditionAnalysis | None = None,
    names: Mapping[str, str] | None = None,
    rated: bool = True,
) -> Iterator[Finding]:
    """Yield all findings of one condition, except times that fall.

    - `table`: gains over the default; None where NCCL has no tuner.
    - `beside`: the other placement. A defect in place that it has, too, is left out.
    - `names`: the files of the processes.
    - `rated`: whether the line rate is the best known limit.
    """
    shown, other = _shown(analysis), _shown(beside) if beside is not None else None
    margin = _margin(analysis, shown, other)
    found = shapes(shown, margin, other)
    if beside is not None and other is not None and analysis.condition.in_place:
        known = shapes(other, _margin(beside, other, shown), shown)
        found = [
            shape
            for shape in found
            if not any(
                same.kind is shape.kind and same.low < shape.high and shape.low < same.high
                for same in known
            )
        ]
    for shape in found:
        yield from _explained(analysis, shape, shown, margin)
    if table is not None and analysis.curve(DEFAULT) is not None:
        yield from _bad_crossovers(analysis, table)
    yield from _not_saturated(analysis, shown)
    if rated:
        yield from _below_line_rate(analysis)
    slow = slow_runs(timings, shown.choice)
    if slow is not None:
        yield _slow_runs(analysis, shown, slow, timings, names or {})
    if slow is None or not slow.of_fastest:
        yield from _noisy(analysis, shown)


def _shown(analysis: ConditionAnalysis) -> Curve:
    return analysis.curve(DEFAULT) or _fastest(analysis.curves)


def _margin(analysis: ConditionAnalysis, shown: Curve, other: Curve | None) -> float:
    """Return the share by which bandwidth falls by noise, of single timings by placement."""
    margin = max(MIN_DIP, 2 * analysis.noise.high)
    if analysis.noise.known:
        return margin
    apart = [
        math.log(point.time_us / same.time_us)
        for point in shown.points
        if point.bytes >= _STEADY_BYTES and (same := point_at(other, point.bytes)) is not None
    ]
    if len(apart) < _FEWEST_PAIRS:
        return margin
    centre = median(apart)
    gaps = [abs(value - centre) for value in apart]
    # The median of a few pairs is small by chance: their largest gap is not.
    spread = 1.4826 * median(gaps) / math.sqrt(2) if len(apart) >= _LEAST_PAIRS else max(gaps)
    measured = max(2 * ASSUMED_NOISE, 4 * spread)
    return measured if len(apart) >= _MANY_PAIRS else min(margin, measured)


def _explained(
    analysis: ConditionAnalysis, shape: Shape, shown: Curve, margin: float
) -> Iterator[Finding]:
    """Yield the defect `shape`, with a choice that is faster beyond `margin` if there is one.

    If there is none, it is no tuning problem, unless latency dominates or nothing was compared.
    """
    here = point_at(shown, shape.high)
    assert here is not None
    others = [
        (point, curve.choice)
        for curve in analysis.curves
        if isinstance(curve.choice, Choice) and (point := point_at(curve, shape.high)) is not None
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

    Its interval at `table.strict` confidence is above zero, and it exceeds `MIN_GAIN` and the A/A
    distance. Assumed noise is no evidence.
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


_WIDEST_GAP = 16
"""Ratio of the last two sizes up to which growth between them is told."""


def _not_saturated(analysis: ConditionAnalysis, curve: Curve) -> Iterator[Finding]:
    if analysis.saturation is None or analysis.saturation.saturated:
        return
    last = curve.points[-1]
    before = curve.points[-2].bytes if len(curve.points) > 1 else last.bytes
    if 2 * curve.points[0].bytes > last.bytes or before * _WIDEST_GAP < last.bytes:
        # Over less than a doubling, noise decides what looks like growth. Over a wide gap, the peak
        # may be inside.
        return
    shape = Shape(
        FindingKind.NOT_SATURATED,
        last.bytes,
        last.bytes,
        f"bus bandwidth still grows at the largest size ({rate(last.busbw_gb_per_s)} at "
        f"{format_bytes(last.bytes)}); larger sizes show the peak",
        {"last_gb_per_s": last.busbw_gb_per_s},
    )
    yield _finding(analysis, shape, f"{analysis.title}: {shape.seen}")


def _below_line_rate(analysis: ConditionAnalysis) -> Iterator[Finding]:
    """Yield a finding if no choice reaches 80 % of a known line rate."""
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
    shape = Shape(
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
    analysis: ConditionAnalysis,
    curve: Curve,
    slow: SlowRuns,
    timings: Timings,
    names: Mapping[str, str],
) -> Finding:
    known = [names.get(timings.rounds_of.processes[place].name) for place in slow.factors]
    listed = ", ".join(
        f"{name} {factor:.2f}x"
        for name, factor in zip(known[:_MOST_NAMED], slow.factors.values(), strict=False)
        if name is not None
    )
    more = f", and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    which = f" ({listed}{more})" if listed else ""
    least, few = min(slow.factors.values()), len(slow.factors)
    where = f"from {format_bytes(slow.first)} on" if slow.first else "at nearly all sizes"
    if slow.of_fastest:
        seen = (
            f"of {slow.runs} runs the slowest takes {max(slow.factors.values()):.2f}x as long as "
            f"the fastest {where}{which}, so they are not rounds of one state; find what differs, "
            "or import them into studies of their own"
        )
    else:
        verb = "takes" if few == 1 else "take at least"
        seen = (
            f"{few} of {slow.runs} runs {verb} {least:.2f}x as long as the others {where}{which}; "
            "the medians hide it. Find what differed"
        )
    evidence = {"slow_runs": float(few), "runs": float(slow.runs), "factor": least}
    first, last = curve.points[0].bytes, curve.points[-1].bytes
    shape = Shape(FindingKind.NOISY, first, last, seen, evidence)
    return _finding(analysis, shape, f"{analysis.title}: {shape.seen}")


def _noisy(analysis: ConditionAnalysis, curve: Curve) -> Iterator[Finding]:
    noisy = [
        (point.spread, point)
        for point in curve.points
        if point.spread is not None and point.spread > NOISY_SPREAD
    ]
    if not noisy:
        return
    spread, worst = max(noisy, key=lambda item: item[0])
    shape = Shape(
        FindingKind.NOISY,
        noisy[0][1].bytes,
        noisy[-1][1].bytes,
        f"single timings spread by over {percent(NOISY_SPREAD)} at {len(noisy)} of "
        f"{len(curve.points)} sizes, most at {format_bytes(worst.bytes)} ({percent(spread)}); "
        "more rounds narrow the intervals there",
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
    shape: Shape,
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


def _range(sizes: list[int]) -> str:
    if sizes[0] == sizes[-1]:
        return format_bytes(sizes[0])
    return f"{format_bytes(sizes[0])} to {format_bytes(sizes[-1])}"
