# SPDX-License-Identifier: Apache-2.0
"""Judge the results of a trial: where the settings help, where they harm, whether to keep them.

A gain is the natural log of the default's time over the time with the settings, for one round and
one size (docs/design/statistics.md). The in-place and out-of-place timings of one process count as
one value.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal

import msgspec

from nccltune.analyze.curves import ASSUMED_NOISE, noise
from nccltune.analyze.result import Noise
from nccltune.analyze.stats import MIN_ROUNDS, Interval, estimate, median
from nccltune.analyze.timings import Series, Timings, sort_samples
from nccltune.measure.bench.conditions import CallKind
from nccltune.measure.experiments.ab.experiment import TrialOutcome
from nccltune.measure.experiments.ab.facts import differences
from nccltune.measure.experiments.ab.runs import SIDES, SettingTrial
from nccltune.measure.experiments.ab.settings import label
from nccltune.model.choice import DEFAULT, TUNED_RUN, AnyChoice
from nccltune.model.collective import Collective
from nccltune.model.sample import SCHEMA_VERSION, Purpose, Sample
from nccltune.model.scale import Scale, count
from nccltune.model.sizes import format_bytes

Effect = Literal["faster", "slower", "same"]
Decision = Literal["keep", "mixed", "harms", "no help", "failed", "open"]
LEAST_EFFECT = 0.01
"""The least relative difference at one size that counts, even if a smaller one is certain."""


class SettingGain(msgspec.Struct, frozen=True):
    """The default's time over that with the settings (1.4: 1.4 times as fast), with its 95 %
    interval.

    `known` is False if the noise is assumed, for want of rounds.
    """

    gain: float
    low: float
    high: float
    rounds: int
    known: bool


class SizeGain(msgspec.Struct, frozen=True):
    """One size: median times in us and bus bandwidths without and with the settings."""

    bytes: int
    default_us: float
    set_us: float
    default_gb_per_s: float
    set_gb_per_s: float
    gain: SettingGain
    effect: Effect


class RangeGain(msgspec.Struct, frozen=True):
    """Neighbouring sizes with the same effect, and their mean gain."""

    from_bytes: int
    to_bytes: int
    effect: Effect
    gain: SettingGain


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one collective at one scale: with `registered` buffers, in a CUDA `graph`."""

    collective: Collective
    scale: Scale
    registered: bool = False
    graph: bool = False

    @property
    def calls(self) -> CallKind:
        """Return how the calls are made."""
        return CallKind(registered=self.registered, graph=self.graph)

    @property
    def prose(self) -> str:
        """Return a name such as `all-reduce (CUDA graph, registered)`; `all-reduce` if plain."""
        how = self.calls.title
        return f"{self.collective.prose} ({how})" if how else self.collective.prose


class CollectiveGain(Calls, frozen=True, kw_only=True):
    """The gains of calls, `overall` in the mean.

    `noise` is how far two medians of the default differ (A/A), as a fraction; None if unknown.
    """

    noise: float | None
    overall: SettingGain
    ranges: list[RangeGain]
    sizes: list[SizeGain]


class TrialVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `try.json`.

    decision  `keep`, `mixed` (faster at some sizes, slower at others), `harms`, `no help`, `failed`
              (a process with the settings failed) or `open` (too few rounds)
    baseline  settings of earlier trials that both sides have
    read      proposed settings that NCCL logged as read; None without a log
    changed   differences between the two sides in NCCL's log, as text
    min_gain  the least gain that counts as help, as a fraction
    """

    schema_version: int = SCHEMA_VERSION
    decision: Decision
    why: str
    settings: dict[str, str | None]
    baseline: dict[str, str | None] = {}
    collectives: list[CollectiveGain] = []
    read: list[str] | None = None
    changed: list[str] = []
    reason: str
    rounds: int
    known: int
    processes: int
    seconds: float
    min_gain: float
    replay: str | None = None
    what: list[str] = []
    command: str = ""


def judge(
    trial: SettingTrial, samples: Iterable[Sample], outcome: TrialOutcome, *, min_gain: float
) -> TrialVerdict:
    """Return the verdict on a trial; only ranges that gain `min_gain` (0.03 is 3 %) help."""
    measured = list(_gains(trial, samples, outcome.rounds))
    decision, why = _decide(measured, outcome, min_gain)
    before, after = outcome.default_facts, outcome.set_facts
    changed = list(differences(before, after)) if before and after else []
    return TrialVerdict(
        decision=decision,
        why=why,
        settings=trial.settings,
        baseline=trial.baseline,
        collectives=measured,
        read=None if after is None else after.read,
        changed=changed,
        reason=outcome.reason,
        rounds=len(outcome.rounds),
        known=outcome.known,
        processes=outcome.processes,
        seconds=outcome.seconds,
        min_gain=min_gain,
        what=trial.what,
    )


def never_read(verdict: TrialVerdict) -> list[str]:
    """Return the proposed settings that NCCL did not log as read; none without a log."""
    if verdict.read is None:
        return []
    return [
        name
        for name, value in verdict.settings.items()
        if value is not None and name.startswith("NCCL_") and name not in verdict.read
    ]


def _gains(
    trial: SettingTrial, samples: Iterable[Sample], rounds: Sequence[int]
) -> Iterator[CollectiveGain]:
    counted, sides = frozenset(rounds), [trial.of(side) for side in SIDES]
    kinds: dict[CallKind, list[Sample]] = defaultdict(list)
    for sample in samples:
        # Trials that ran at the same time may have used the same rounds.
        if sample.round in counted and sample.settings in sides:
            kinds[calls_of(sample)].append(_as_choice(sample, trial))
    groups: dict[tuple[Collective, Scale, CallKind], list[Timings]] = defaultdict(list)
    for kind, found in kinds.items():
        for timings in sort_samples(found).timings:
            groups[timings.condition.collective, timings.condition.scale, kind].append(timings)
    sizes = sum(len({size for t in group for size in t.sizes}) for group in groups.values())
    # With this confidence the intervals are valid for all sizes together (Bonferroni).
    strict = 1 - 0.05 / max(1, sizes)
    for (collective, scale, kind), group in groups.items():
        yield _collective(collective, scale, kind, group, strict)


def calls_of(sample: Sample) -> CallKind:
    """Return how the calls of a sample were made; those of a group count as plain ones."""
    return CallKind(registered=sample.registered, graph=sample.graph)


def _as_choice(sample: Sample, trial: SettingTrial) -> Sample:
    mine = sample.settings == trial.of("set")
    return msgspec.structs.replace(
        sample,
        choice=TUNED_RUN if mine else DEFAULT,
        settings={},
        # The two sides of a round ran in different processes. With one process name for both,
        # `sort_samples` compares them round by round.
        source=msgspec.structs.replace(sample.source, purpose=Purpose.TUNE, process="rounds"),
    )


def _collective(
    collective: Collective, scale: Scale, kind: CallKind, group: list[Timings], strict: float
) -> CollectiveGain:
    noises = [_noise(timings) for timings in group]
    known = [item for item in noises if item.known]
    floor = max(LEAST_EFFECT, *(item.typical for item in known)) if known else LEAST_EFFECT
    by_size = {
        size: gains
        for size in sorted({size for timings in group for size in timings.sizes})
        if (gains := _by_round(group, size))
    }
    sizes = [
        _size(collective, scale, group, size, gains, strict, floor)
        for size, gains in by_size.items()
    ]
    return CollectiveGain(
        collective=collective,
        scale=scale,
        registered=kind.registered,
        graph=kind.graph,
        noise=max((item.typical for item in known), default=None),
        overall=SettingGain(*_pooled(list(by_size.values())).ratio),
        ranges=list(_ranges(sizes, by_size)),
        sizes=sizes,
    )


def _by_round(group: Iterable[Timings], size: int) -> dict[int, float]:
    """Return, by round, the mean gain at a size over both placements."""
    values: dict[int, list[float]] = defaultdict(list)
    for timings in group:
        for round_, gain in timings.log_gains(size, TUNED_RUN).items():
            values[round_].append(gain)
    return {round_: math.fsum(gains) / len(gains) for round_, gains in values.items()}


def _pooled(sizes: Sequence[Mapping[int, float]], confidence: float = 0.95) -> Interval:
    """Return the mean gain over `sizes` in the rounds that all have, with its interval; else 0."""
    rounds = set(sizes[0]).intersection(*sizes[1:]) if sizes else set()
    values = [math.fsum(gains[at] for gains in sizes) / len(sizes) for at in sorted(rounds)]
    found = estimate(
        values or [0.0], assumed_sd=math.sqrt(2) * ASSUMED_NOISE, confidence=confidence
    )
    assert found is not None
    return found


def _size(
    collective: Collective,
    scale: Scale,
    group: Iterable[Timings],
    size: int,
    gains: Mapping[int, float],
    strict: float,
    floor: float,
) -> SizeGain:
    plain, sure = _pooled([gains]), _pooled([gains], strict)
    effect: Effect = "same"
    if plain.n >= MIN_ROUNDS and sure.low > 0 and plain.value >= math.log1p(floor):
        effect = "faster"
    elif plain.n >= MIN_ROUNDS and sure.high < 0 and plain.value <= -math.log1p(floor):
        effect = "slower"
    default_us, set_us = (_median(group, size, choice) for choice in (DEFAULT, TUNED_RUN))
    return SizeGain(
        bytes=size,
        default_us=default_us,
        set_us=set_us,
        default_gb_per_s=collective.busbw_gb_per_s(size, default_us, scale.ranks),
        set_gb_per_s=collective.busbw_gb_per_s(size, set_us, scale.ranks),
        gain=SettingGain(*plain.ratio),
        effect=effect,
    )


def _median(group: Iterable[Timings], size: int, choice: AnyChoice) -> float:
    return median([time for timings in group for time in timings.series(size, choice).values()])


def _noise(timings: Timings) -> Noise:
    """Return how far two medians of the default differ between processes (A/A)."""
    cells: dict[int, dict[AnyChoice, Series]] = {}
    for size in timings.sizes:
        by_round: dict[int, list[float]] = defaultdict(list)
        for (round_, _), time_us in timings.series(size, DEFAULT).items():
            by_round[round_].append(time_us)
        cells[size] = {DEFAULT: {(at, 0): median(times) for at, times in by_round.items()}}
    return noise(Timings(timings.condition, cells))


def _ranges(
    sizes: Sequence[SizeGain], by_size: Mapping[int, Mapping[int, float]]
) -> Iterator[RangeGain]:
    for effect, group in groupby(sizes, key=lambda item: item.effect):
        members = [item.bytes for item in group]
        pooled = _pooled([by_size[size] for size in members])
        yield RangeGain(members[0], members[-1], effect, SettingGain(*pooled.ratio))


def _decide(
    measured: Sequence[CollectiveGain], outcome: TrialOutcome, min_gain: float
) -> tuple[Decision, str]:
    if outcome.error is not None:
        return "failed", f"the run with it failed: {outcome.error}"
    if len(outcome.rounds) < MIN_ROUNDS:
        rounds = count(len(outcome.rounds), "round")
        return "open", f"{rounds} so far: at least {MIN_ROUNDS} are needed to estimate the noise"
    if not measured:
        return "open", "no size was measured with and without it"
    helps = [_words(item, part) for item, part in _parts(measured, "faster", 1 + min_gain)]
    harms = [_words(item, part) for item, part in _parts(measured, "slower")]
    if helps and not harms:
        return "keep", f"{'; '.join(helps)}; slower nowhere"
    if helps:
        return "mixed", f"{'; '.join(helps)}; but {'; '.join(harms)}"
    if harms:
        return "harms", "; ".join(harms)
    best = max(measured, key=lambda item: item.overall.gain)
    return "no help", (
        f"nothing is faster by {100 * min_gain:.2g} % beyond noise: "
        f"{best.prose} {best.overall.gain:.3f}x "
        f"({best.overall.low:.3f}-{best.overall.high:.3f}) over all sizes"
    )


def _parts(
    measured: Iterable[CollectiveGain], effect: Effect, least: float = 0.0
) -> Iterator[tuple[CollectiveGain, RangeGain]]:
    for item in measured:
        for part in item.ranges:
            if part.effect == effect and part.gain.gain >= least:
                yield item, part


def _words(item: CollectiveGain, part: RangeGain) -> str:
    low, high = format_bytes(part.from_bytes), format_bytes(part.to_bytes)
    where = f"at {low}" if low == high else f"from {low} to {high}"
    how = part.gain.gain if part.effect == "faster" else 1 / part.gain.gain
    return f"{item.prose} is {how:.2f}x {part.effect} {where}"


def title(verdict: TrialVerdict) -> str:
    """Return a title such as `NCCL_A=1, on top of NCCL_B=2`."""
    base = f", on top of {label(verdict.baseline)}" if verdict.baseline else ""
    return f"{label(verdict.settings)}{base}"
