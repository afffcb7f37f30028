# SPDX-License-Identifier: Apache-2.0
"""What was compared: whether the default and other choices were measured at the same sizes.

A verdict on the default needs such a comparison at every size, with measured noise.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from nccltune.analyze.default_runs import is_before
from nccltune.analyze.result import Analysis, Condition, ConditionAnalysis
from nccltune.model.choice import DEFAULT, AnyChoice, Choice, choice_label, rest_of
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.numbers import size_form
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes

_Items = Sequence[ConditionAnalysis]
_FEW, _MANY = 3, 5
_DOUBTS = (FindingKind.SINGLE_SAMPLES, FindingKind.BAD_CROSSOVER)
_EQUAL = 1.02
"""Times whose ratio is smaller are as fast as each other."""


class FastestRange(msgspec.Struct, frozen=True):
    """A range of sizes with its fastest runs; `least` and `most`: by how much the next is
    slower."""

    low_bytes: int
    high_bytes: int
    names: tuple[str, ...]
    least: float
    most: float


def fastest_ranges(times: Mapping[str, Mapping[int, float]]) -> list[FastestRange]:
    """Return the fastest runs by ranges of neighbouring sizes; `times` are in us, by name."""
    found: list[tuple[tuple[str, ...], int, float]] = []
    for size in sorted({size for own in times.values() for size in own}):
        here = {name: own[size] for name, own in times.items() if size in own}
        least = min(here.values())
        names = tuple(name for name, time in here.items() if time < _EQUAL * least)
        rest = [time for name, time in here.items() if name not in names]
        if len(here) > 1:
            found.append((names, size, min(rest, default=least) / least))
    return [
        FastestRange(own[0][1], own[-1][1], names, min(x[2] for x in own), max(x[2] for x in own))
        for names, group in groupby(found, lambda item: item[0])
        for own in [list(group)]
    ]


_LOOKS = 0.03
"""A choice looks faster than the default if it gains more than this."""


class Compared(NamedTuple):
    """What was compared with the default: `choices` others, at `sizes`, but at none of `alone`.

    `choices` are the least and the largest number of others at one size. Without the default they
    are those at sizes with several, which were compared with each other.
    `rounds` is the least number of timings of the default and of the most timed choice, at any
    size. `known` is whether the noise was measured.
    """

    choices: tuple[int, int]
    sizes: int
    alone: list[int]
    has_default: bool
    rounds: int
    known: bool

    @property
    def anything(self) -> bool:
        """Return whether the default was compared with another choice at any size."""
        return self.sizes > 0

    @property
    def everywhere(self) -> bool:
        """Return whether the default was compared with another choice at every size."""
        return self.anything and not self.alone

    @property
    def conclusive(self) -> bool:
        """Return whether the timings can show that the default is right at every size."""
        return self.everywhere and self.known


def compared(conditions: Iterable[ConditionAnalysis]) -> Compared:
    """Return what was compared under conditions that NCCL's tuner cannot distinguish; one is
    enough."""
    items = list(conditions)
    others: dict[int, set[Choice]] = {}
    default: set[int] = set()
    rounds: dict[int, int] = {}
    for item in items:
        timings: dict[int, dict[AnyChoice, int]] = {}
        for curve in item.curves:
            for point in curve.points:
                timings.setdefault(point.bytes, {})[curve.choice] = point.n
        for size, counts in timings.items():
            rivals = {choice: n for choice, n in counts.items() if isinstance(choice, Choice)}
            others.setdefault(size, set()).update(rivals)
            if DEFAULT not in counts:
                continue
            default.add(size)
            if rivals:
                here = min(counts[DEFAULT], max(rivals.values()))
                rounds[size] = max(here, rounds.get(size, 0))
    several = [size for size, own in others.items() if len(own) > 1]
    together = list(rounds) if default else several
    numbers = [len(others[size]) for size in together or others]
    return Compared(
        choices=(min(numbers, default=0), max(numbers, default=0)),
        sizes=len(rounds),
        alone=sorted(default - rounds.keys()),
        has_default=bool(default),
        rounds=min(rounds.values(), default=0),
        known=any(item.noise.known for item in items),
    )


class Comparison(NamedTuple):
    """A comparison in words; `missing` is why nothing was compared with the default, if so."""

    where: str
    text: str
    missing: str
    compared: Compared
    conditions: list[ConditionAnalysis]


def comparisons(analysis: Analysis) -> list[Comparison]:
    """Return what was compared for each collective, scale and kind of buffer."""
    kinds = {(item.collective, item.scale, item.kind) for item in analysis.findings}
    found: list[Comparison] = []
    nccl = analysis.platform.nccl_version
    groups = _groups(analysis.conditions)
    for items in groups:
        condition = items[0].condition.for_tuner
        result = compared(items)
        what = (condition.collective, condition.scale)
        claim = result.conclusive and kinds.isdisjoint({(*what, kind) for kind in _DOUBTS})
        missing = _missing(items, result, groups)
        if missing and (*what, FindingKind.WRONG_RESULTS) in kinds:
            missing = "results were wrong, so no rule can be found"
        elif missing.startswith("only the default") and is_before(nccl):
            missing = f"NCCL {nccl} takes no forced choice (NCCL_ALGO came with 2.5)"
        text = missing if missing.startswith("no whole") else f"with nothing: {missing}"
        beside = _beside(items, groups)
        condition = msgspec.structs.replace(condition, limits=None) if beside else condition
        if any((condition.title, beside) == (other.where, other.text) for other in found):
            continue
        text = beside or (text if missing else _text(items, result, claim))
        found.append(Comparison(condition.title, text, missing, result, items))
    return found


def is_right(analysis: Analysis) -> bool:
    """Return whether the default is right at every size: all compared, and no doubt."""
    found = comparisons(analysis)
    doubts = (*_DOUBTS, FindingKind.SUSPECT_RUN)
    return (
        bool(found)
        and all(item.compared.conclusive for item in found)
        and not any(finding.kind in doubts for finding in analysis.findings)
    )


def not_compared(conditions: Sequence[ConditionAnalysis]) -> Iterator[Finding]:
    """Yield a finding for each comparison that lacks the other choices at some sizes."""
    for items in (groups := _groups(conditions)):
        condition, found = items[0].condition.for_tuner, compared(items)
        if (
            not condition.collective.tuned
            or not found.alone
            or 0 in (condition.scale.nodes, condition.scale.ranks)
        ):
            continue
        at = f"at {_ranges(found.alone, _sizes(items))} " if found.sizes else ""
        yield Finding(
            kind=FindingKind.NOT_COMPARED,
            sentence=f"{condition.title}: {at}{_alone(items, groups)}, so no rule can be found. "
            "Measure the other choices (nccltune sweep), or run again with NCCL_ALGO and "
            "NCCL_PROTO forced and import those",
            where=items[0].title,
            collective=condition.collective,
            scale=condition.scale,
            min_bytes=found.alone[0],
            max_bytes=found.alone[-1],
        )


def _groups(conditions: Sequence[ConditionAnalysis]) -> list[list[ConditionAnalysis]]:
    grouped: dict[Condition, list[ConditionAnalysis]] = {}
    for item in conditions:
        grouped.setdefault(item.condition.for_tuner, []).append(item)
    return list(grouped.values())


def _sizes(items: Sequence[ConditionAnalysis]) -> list[int]:
    return sorted({point.bytes for item in items for one in item.curves for point in one.points})


def _alone(items: _Items, groups: Sequence[_Items]) -> str:
    """Return that no whole choice, or nothing at all, was measured beside the default."""
    own = items[0].condition.for_tuner
    others = [group[0].condition.for_tuner for group in groups]
    if any(msgspec.structs.replace(x, limits=own.limits) == own != x for x in others):
        return "no whole choice was measured beside the default"
    return "only the default was measured"


def _missing(items: _Items, found: Compared, groups: Sequence[_Items]) -> str:
    if not items[0].condition.collective.tuned:
        return "NCCL asks no tuner about it"
    limits = items[0].condition.limits
    if limits is not None:
        return f"{limits}, {rest_of(limits)}, is neither the default nor a whole choice"
    scale = items[0].condition.scale
    if not (scale.nodes and scale.ranks):
        unknown = [word for word in ("nodes", "ranks") if not getattr(scale, word)]
        return f"the number of {' and '.join(unknown)} is unknown, and a rule needs it"
    if not found.has_default:
        return "" if found.choices[1] > 1 else "the default was not measured"
    return "" if found.sizes else f"{_alone(items, groups)}, so no rule can be found"


def _text(items: Sequence[ConditionAnalysis], found: Compared, claim: bool) -> str:
    """Return what the default was compared with. `claim` allows the claim that none is faster."""
    low, high = found.choices
    choices = count(high, "choice") if low == high else f"{low} to {high} choices"
    if not found.has_default:
        fastest = _fastest_words(_times(items[0]))
        words = f"{choices} a size with each other" + f": {fastest}" * bool(fastest)
        return f"{words}; the default was not measured"
    measured = found.sizes + len(found.alone)
    sizes = f"{found.sizes} of {measured}" if found.alone else str(found.sizes)
    text = f"with {choices} at {sizes} sizes, "
    if found.known:
        text += f"{count(found.rounds, 'round')} or more"
        return text + (": none is faster beyond noise" if claim else "")
    text += f"{count(found.rounds, 'timing')} a point: "
    best = _fastest(items)
    looks = "the default looks right" if best is None else f"{best} faster"
    return text + f"{looks}, but so few timings cannot show it"


def _beside(items: _Items, groups: Sequence[_Items]) -> str:
    """Return which runs are the fastest where some are limited to an algorithm or protocol."""
    own = items[0].condition.for_tuner
    times: dict[str, dict[int, float]] = {}
    for group in groups:
        if msgspec.structs.replace(group[0].condition.for_tuner, limits=own.limits) == own:
            times |= _times(group[0])
    if own.limits is None or len(times) < 2:
        return ""
    names = ", ".join(times) if len(times) < _MANY else f"{len(times)} runs"
    fastest = _fastest_words(times) or "nothing, no two have a common size"
    return f"{names}: {fastest}; {rest_of(own.limits)}, so none of it is a rule"


def _times(item: ConditionAnalysis) -> dict[str, dict[int, float]]:
    return {
        item.condition.limits or choice_label(curve.choice): {
            point.bytes: point.time_us for point in curve.points
        }
        for curve in item.curves
    }


def _fastest_words(times: Mapping[str, Mapping[int, float]]) -> str:
    """Return which of some runs are the fastest at which sizes, and by how much at most."""
    found = fastest_ranges(times)
    form = size_form(size for own in times.values() for size in own)
    by_names: dict[tuple[str, ...], list[FastestRange]] = {}
    for item in found:
        by_names.setdefault(item.names, []).append(item)
    words = []
    for names, ranges in by_names.items():
        where = ", ".join(
            " to ".join(dict.fromkeys((form(own.low_bytes), form(own.high_bytes))))
            for own in ranges
        )
        if len(ranges) > _FEW and len(found) > _MANY:
            where = f"{count(len(ranges), 'range')} of sizes"
        most = max(own.most for own in ranges)
        if len(names) == len(times):
            words.append(f"as fast as each other at {where}")
        else:
            least = f" (by up to {most:.2f}x)" if len(names) == 1 else ""
            words.append(f"fastest {' and '.join(names)} at {where}{least}")
    return ", ".join(words)


def _fastest(items: Sequence[ConditionAnalysis]) -> str | None:
    most: tuple[float, str, int] | None = None
    for item in items:
        default = {point.bytes: point.time_us for point in item.shown.points}
        for curve in item.curves:
            for point in curve.points:
                gain = default.get(point.bytes, 0.0) / point.time_us
                if isinstance(curve.choice, Choice) and gain > (most[0] if most else 1 + _LOOKS):
                    most = (gain, curve.choice.label, point.bytes)
    if most is None:
        return None
    return f"most at {format_bytes(most[2])}, where {most[1]} looks {most[0]:.2f}x"


def _ranges(sizes: Sequence[int], measured: Sequence[int]) -> str:
    wanted = set(sizes)
    runs = [list(run) for inside, run in groupby(measured, wanted.__contains__) if inside]
    return ", ".join(
        format_bytes(run[0]) + (f" to {format_bytes(run[-1])}" if len(run) > 1 else "")
        for run in runs
    )
