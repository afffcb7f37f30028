# SPDX-License-Identifier: Apache-2.0
"""Findings about times that fall as the size grows: the sentence, its doubts and what to do."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nccltune.analyze.default_runs import ran_at
from nccltune.analyze.result import Condition, ConditionAnalysis
from nccltune.analyze.stats import MIN_ROUNDS, curve_scatter, median
from nccltune.analyze.timings import Timings
from nccltune.model.choice import DEFAULT, AnyChoice, Choice, choice_label
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.numbers import duration
from nccltune.model.sizes import format_bytes

_CHANCE = 0.01
"""The accepted chance of a false fall over all pairs of sizes, on one or both curves."""
_LEAST_FALL = math.log(1.1)
"""A smaller fall is no finding."""
_RARE = 10
"""A larger factor of few timings is rather an outlier than a choice."""
_LEAST_NOISE = 0.01
"""The least relative noise of a point, however many timings it has."""
_RELIABLE_BYTES = 16 << 10
"""With fewer than four timings a point, latency varies too much at smaller sizes."""

_LEAST_DEGREES = 6
"""The least degrees of freedom with which noise counts as measured."""
_UNKNOWN, _MANY = 3, 1000
"""With fewer, noise is taken as known, at this multiple of the assumed noise."""
_MOST_SIZES = 500
"""With more sizes, all pairs are assumed to rise by nothing, because their number is too large."""

Floats = npt.NDArray[np.float64]


class Fall(NamedTuple):
    """A range of sizes, `first` to `last`, at which a larger message is `factor` times faster.

    A call of `worst` bytes takes `time_us`, a call of `larger` bytes only `larger_us`.
    """

    first: int
    last: int
    worst: int
    larger: int
    time_us: float
    larger_us: float

    @property
    def factor(self) -> float:
        """Return the least factor by which the time at `worst` is too long."""
        return self.time_us / self.larger_us


class _Points(NamedTuple):
    sizes: list[int]
    logs: Floats
    errors: Floats
    degrees: int


def falls(
    timings: Timings, choice: AnyChoice, beside: Timings | None, assumed_noise: float
) -> list[Fall]:
    """Return the falls of a curve beyond noise, one for each range of sizes.

    `beside` has the other placement, which shows the noise if every point has a single timing.
    """
    points = _points(timings, choice, beside, assumed_noise)
    if len(points.sizes) < 2:
        return []
    found = _falling(points, _CHANCE if beside is None else _CHANCE / 2)
    return [_fall(points, run, found) for run in _runs(list(found))]


def _falling(points: _Points, chance: float) -> dict[int, int]:
    """Return the index of every falling point, and that of the fastest larger message."""
    threshold = _threshold(points, chance)
    found: dict[int, int] = {}
    for place in range(len(points.sizes) - 1):
        drops = points.logs[place] - points.logs[place + 1 :]
        errors = np.hypot(points.errors[place], points.errors[place + 1 :])
        beyond = (drops / errors > threshold) & (drops > _LEAST_FALL)
        if beyond.any():
            found[place] = place + 1 + int(np.argmax(np.where(beyond, drops, -np.inf)))
    return found


def _fall(points: _Points, run: Sequence[int], larger: dict[int, int]) -> Fall:
    worst = max(run, key=lambda place: points.logs[place] - points.logs[larger[place]])
    return Fall(
        points.sizes[run[0]],
        points.sizes[run[-1]],
        points.sizes[worst],
        points.sizes[larger[worst]],
        math.exp(points.logs[worst]),
        math.exp(points.logs[larger[worst]]),
    )


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Return ascending numbers as runs of consecutive ones."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _points(
    timings: Timings, choice: AnyChoice, beside: Timings | None, assumed_noise: float
) -> _Points:
    every = {
        size: [math.log(time_us) for time_us in series.values()]
        for size in timings.sizes
        if (series := timings.series(size, choice))
    }
    fewest = min(map(len, every.values()), default=0)
    noise, degrees = _noise(every, beside, choice, assumed_noise)
    if fewest < MIN_ROUNDS:
        noise = max(noise, assumed_noise)
    kept = [size for size in every if fewest >= MIN_ROUNDS or size >= _RELIABLE_BYTES]
    errors = [max(noise, _own_noise(every[size])) / math.sqrt(len(every[size])) for size in kept]
    return _Points(
        kept,
        np.array([median(every[size]) for size in kept]),
        np.maximum(np.array(errors), _LEAST_NOISE),
        degrees,
    )


def _noise(
    every: dict[int, list[float]], beside: Timings | None, choice: AnyChoice, assumed: float
) -> tuple[float, int]:
    """Return the relative noise of one timing and its degrees of freedom.

    It is of repeated timings, else of the other placement, else of the scatter; else `assumed`
    times a factor.
    """
    replicated = [
        (log - math.fsum(logs) / len(logs)) * math.sqrt(len(logs) / (len(logs) - 1))
        for logs in every.values()
        if len(logs) > 1
        for log in logs
    ]
    degrees = sum(len(logs) - 1 for logs in every.values())
    if degrees >= _LEAST_DEGREES:
        return _spread(replicated), degrees
    placed = [] if beside is None else _placed(every, beside, choice)
    if len(placed) >= _LEAST_DEGREES:
        return _spread(placed), len(placed)
    unknown = _UNKNOWN * assumed
    sizes, logs = list(every), np.array([median(values) for values in every.values()])
    # Points that fall whatever the noise is are no noise. Curvature adds to the scatter.
    fallen = _falling(_Points(sizes, logs, np.full(len(logs), unknown), _MANY), _CHANCE)
    kept = [place for place in range(len(sizes)) if place not in fallen]
    along = curve_scatter(
        [math.log(sizes[place]) for place in kept], [float(logs[place]) for place in kept]
    )
    if len(along) >= _LEAST_DEGREES:
        return _spread(along), len(along)
    return unknown, _MANY


def _spread(residuals: Sequence[float]) -> float:
    return 1.4826 * median([abs(value) for value in residuals])


def _placed(every: dict[int, list[float]], beside: Timings, choice: AnyChoice) -> list[float]:
    """Return the differences of the placements less their median, scaled to one timing."""
    found = [
        median(logs) - math.log(other)
        for size, logs in every.items()
        if size >= _RELIABLE_BYTES and (other := beside.median(size, choice)) is not None
    ]
    if not found:
        return []
    centre = median(found)
    return [(value - centre) / math.sqrt(2) for value in found]


def _own_noise(logs: Sequence[float]) -> float:
    if len(logs) < MIN_ROUNDS:
        return 0.0
    centre = median(logs)
    return 1.4826 * median([abs(log - centre) for log in logs])


def _threshold(points: _Points, chance: float) -> float:
    from scipy.special import stdtr, stdtrit

    if len(points.sizes) > _MOST_SIZES:
        pairs = len(points.sizes) * (len(points.sizes) - 1) / 2
        return -float(stdtrit(points.degrees, chance / pairs))
    fit = _isotonic(points.logs, 1 / points.errors**2)
    before, after = np.triu_indices(len(fit), 1)
    errors = np.hypot(points.errors[before], points.errors[after])
    rises = (fit[after] - fit[before]) / errors
    low, high = 0.0, 1e3
    while high - low > 1e-3:
        middle = (low + high) / 2
        if float(stdtr(points.degrees, -(middle + rises)).sum()) > chance:
            low = middle
        else:
            high = middle
    return high


def _isotonic(values: Floats, weights: Floats) -> Floats:
    """Return the nearest values that never fall (pool adjacent violators)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        block = (float(value), float(weight), 1)
        while blocks and blocks[-1][0] > block[0]:
            mean, total, number = blocks.pop()
            whole = total + block[1]
            block = ((mean * total + block[0] * block[1]) / whole, whole, number + block[2])
        blocks.append(block)
    return np.array([mean for mean, _, number in blocks for _ in range(number)])


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
    # NCCL moves parts of ranks that are not aligned to 16 bytes more slowly, whatever the choice.
    collective, block = condition.collective, 16
    if collective.tuned:
        block = 16 * condition.scale.ranks if collective.counts_per_rank else 1
    unaligned = block and fall.worst % block and not fall.larger % block
    few = len(timings.series(fall.worst, shown.choice)) < MIN_ROUNDS
    if chance is None and few and fall.factor > _RARE:
        chance = "So much is seldom NCCL's choice"
    tuning = chance is None and collective.tuned and not unaligned
    cost = f": {what} at {worst} costs at least {factor}" if tuning else f", {factor} as long"
    parts = [
        f"{analysis.title}: {larger} takes {duration(fall.larger_us)} and {worst} "
        f"{duration(fall.time_us)}{cost} (a larger message is faster{span})"
    ]
    before, after = (ran_at(shown.points, [size]) for size in (fall.worst, fall.larger))
    if before and after:
        parts.append(f"NCCL ran {before[0]} at {worst} and {after[0]} at {larger}")
    if chance is not None:
        again = "what differs between these runs is not NCCL's choice by size"
        parts.append(f"{chance}: {'run it again' if few else again}")
    if few and fall.worst == timings.sizes[0]:
        parts.append("The first size of a run may include start-up: begin with a smaller size")
    if unaligned:
        parts.append(
            f"{fall.worst} B is no multiple of {block}, so unaligned: measure sizes that are"
        )
    if tuning:
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

    Nearly all runs must show it, and of one run the other placement, by half of the log ratio.
    """
    series, later = (timings.series(size, choice) for size in (fall.worst, fall.larger))
    limit = fall.larger_us * math.sqrt(fall.factor)
    usual = [time_us for time_us in series.values() if time_us < limit]
    if len(usual) > len(series) // 10:
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
