# SPDX-License-Identifier: Apache-2.0
"""Findings about times that fall as the size grows: the sentence, its doubts and what to do."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from nccltune.analyze.default_runs import ran_at
from nccltune.analyze.falling import Fall, falls
from nccltune.analyze.result import Condition, ConditionAnalysis
from nccltune.analyze.stats import MIN_ROUNDS
from nccltune.analyze.timings import Timings
from nccltune.analyze.units import duration
from nccltune.model.choice import DEFAULT, AnyChoice, Choice, choice_label
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.sizes import format_bytes


def falling_findings(
    items: Sequence[tuple[ConditionAnalysis, Timings]],
    crossovers: Sequence[Finding],
    assumed_noise: float,
    names: Mapping[str, str],
) -> Iterator[Finding]:
    """Yield a finding for each range of sizes at which a larger message is faster.

    A fall that the other placement shows, too, is told once; one at a size of `crossovers`, where a
    faster choice is known, is not. `names` are the files of processes.
    """
    placed = {analysis.condition: timings for analysis, timings in items}
    found: dict[Condition, list[Fall]] = {}
    for analysis, timings in items:
        condition, choice = analysis.condition, analysis.shown.choice
        other = condition.other_placement
        beside = placed.get(other)
        found[condition] = falls(timings, choice, beside, assumed_noise)
        for fall in found[condition]:
            again = any(
                fall.first <= same.last and same.first <= fall.last for same in found.get(other, [])
            )
            crossed = choice == DEFAULT and _crossed(crossovers, analysis, fall)
            if not crossed and not (again and condition.in_place):
                yield _finding(
                    analysis, timings, fall, _chance(timings, fall, beside, choice, names)
                )


def _crossed(crossovers: Iterable[Finding], analysis: ConditionAnalysis, fall: Fall) -> bool:
    return any(
        item.where == analysis.title
        and (item.min_bytes or 0) <= fall.worst <= (item.max_bytes or 0)
        for item in crossovers
    )


def _finding(
    analysis: ConditionAnalysis, timings: Timings, fall: Fall, chance: str | None
) -> Finding:
    shown, condition = analysis.shown, analysis.condition
    worst, larger = format_bytes(fall.worst), format_bytes(fall.larger)
    what = "the choice" if shown.choice == DEFAULT else choice_label(shown.choice)
    factor = f"{fall.factor:.2f}x" if fall.factor < 2 else f"{fall.factor:.1f}x"
    span = ""
    if fall.first != fall.last:
        span = f" from {format_bytes(fall.first)} to {format_bytes(fall.last)}"
    cost = (
        f": {what} at {worst} costs at least {factor}" if chance is None else f", {factor} as long"
    )
    parts = [
        f"{analysis.title}: {larger} takes {duration(fall.larger_us)} and {worst} "
        f"{duration(fall.time_us)}{cost} (a larger message is faster{span})"
    ]
    before, after = (ran_at(shown.points, [size]) for size in (fall.worst, fall.larger))
    if before and after:
        parts.append(f"NCCL ran {before[0]} at {worst} and {after[0]} at {larger}")
    if chance is not None:
        parts.append(f"{chance}: run it again")
    few = len(timings.series(fall.worst, shown.choice)) < MIN_ROUNDS
    if few and fall.worst == timings.sizes[0]:
        parts.append("The first size of a run may include start-up: begin with a smaller size")
    if chance is None:
        parts.append(_advice(analysis, fall))
    return Finding(
        kind=FindingKind.FALLING_TIME,
        sentence=". ".join(parts),
        where=analysis.title,
        collective=condition.collective,
        scale=condition.scale,
        min_bytes=fall.first,
        max_bytes=fall.last,
        evidence={
            "factor": fall.factor,
            "worst_bytes": float(fall.worst),
            "larger_bytes": float(fall.larger),
            "worst_us": fall.time_us,
            "larger_us": fall.larger_us,
        },
    )


def _chance(
    timings: Timings,
    fall: Fall,
    beside: Timings | None,
    choice: AnyChoice,
    names: Mapping[str, str],
) -> str | None:
    """Return why a fall may be one slow timing; None if it is none.

    Each of a few runs must show it, or the other placement, by half of the log ratio.
    """
    series, later = (timings.series(size, choice) for size in (fall.worst, fall.larger))
    limit = fall.larger_us * math.sqrt(fall.factor)
    usual = [time_us for time_us in series.values() if time_us < limit]
    if len(series) >= MIN_ROUNDS:
        return None
    if usual:
        slow = {key: time_us for key, time_us in series.items() if time_us >= limit}
        places = [timings.rounds_of.process(round_) for round_, _ in slow]
        processes = timings.rounds_of.processes
        known = [names.get(processes[at].name) for at in places if at < len(processes)]
        where = f" ({', '.join(sorted({name for name in known if name}))})" if any(known) else ""
        verb = "takes" if len(slow) == 1 else "take"
        return (
            f"{len(slow)} of {len(series)} timings{where} {verb} {duration(max(slow.values()))} "
            f"there, the others {duration(min(usual))}"
        )
    if len(series) > 1 or len(later) > 1:
        return None
    if beside is None:
        return "It is one timing" if fall.first == fall.last else None
    worst, larger = beside.median(fall.worst, choice), beside.median(fall.larger, choice)
    if worst is None or larger is None or worst > larger * math.sqrt(fall.factor):
        return None
    where = "in place" if beside.condition.in_place else "out of place"
    return (
        f"It is one timing, and {where} {format_bytes(fall.worst)} takes {duration(worst)} and "
        f"{format_bytes(fall.larger)} {duration(larger)}"
    )


def _advice(analysis: ConditionAnalysis, fall: Fall) -> str:
    worst = format_bytes(fall.worst)
    times = {
        curve.choice: point.time_us
        for curve in analysis.curves
        for point in curve.points
        if isinstance(curve.choice, Choice)
        and curve.choice != analysis.shown.choice
        and point.bytes == fall.worst
    }
    if not times:
        return f"Measure the other choices to find one that is faster at {worst}"
    best = min(times, key=lambda choice: times[choice])
    if times[best] < fall.time_us / math.sqrt(fall.factor):
        return f"{best.label} takes {duration(times[best])} there"
    return (
        f"No choice that was measured is faster at {worst}, so look at channels, chunk sizes and "
        "the network first"
    )
