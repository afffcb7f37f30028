# SPDX-License-Identifier: Apache-2.0
"""The verdict of a race: the recommended settings, their gains by size, and their effect on other
collectives."""

import math
from collections.abc import Sequence

import msgspec

from nccltune.measure.engine.gains import Gains, NeighbourGains, ProcessGain, pooled
from nccltune.measure.engine.settings import DEFAULT, Effective, Settings
from nccltune.measure.engine.settings_experiment import ProcessVerdict
from nccltune.measure.engine.workload import RACED, Call
from nccltune.measure.experiments.p2p.race import PROOF_PAIRS, Race
from nccltune.measure.experiments.p2p.settings import memory_bytes
from nccltune.model.collective import Collective

LEAST_EFFECT = math.log1p(0.01)
"""The least difference at one size that counts (a log), even if a smaller one is certain."""
_LABEL_CONFIDENCE = 0.99
"""Confidence to call a size faster or slower: a race judges some dozen."""
_PROOF_CONFIDENCE = 0.99
"""Confidence needed to recommend settings."""


class SizeEffect(msgspec.Struct, frozen=True):
    """One size: both times in us, and `effect`: `faster`, `slower` or `same`."""

    bytes: int
    default_us: float
    time_us: float
    gain: ProcessGain
    effect: str


class RangeEffect(msgspec.Struct, frozen=True):
    """Neighbouring sizes with the same `effect`, and their mean gain."""

    collective: Collective
    from_bytes: int
    to_bytes: int
    effect: str
    gain: ProcessGain


class Effects(msgspec.Struct, frozen=True):
    """The effects of a set of settings on send/recv and on the other measured collectives.

    `overall` is the mean gain over all sizes, by collective. `effective` are the settings that NCCL
    logged. `memory_bytes` is the most memory that the buffers of send/recv may take on one GPU.
    """

    settings: dict[str, int]
    overall: dict[Collective, ProcessGain]
    ranges: list[RangeEffect]
    sizes: dict[Collective, list[SizeEffect]]
    effective: Effective | None = None
    memory_bytes: int | None = None


class RaceVerdict(ProcessVerdict, frozen=True, kw_only=True):
    """The content of `p2p.json`: how a race ended.

    settings  the recommended settings; empty if none are recommended
    champion  the effects of the leading settings, recommended or not, if they were compared
    parts     the effects of candidates that are a part of the champion, alone
    """

    settings: dict[str, int]
    why: str
    champion: Effects | None = None
    parts: list[Effects]
    default_effective: Effective | None = None
    default_memory_bytes: int | None = None


def judge(race: Race, reason: str, threshold: float) -> tuple[bool, str]:
    """Return whether the champion is recommended, with a gain of `threshold` (a log), and why."""
    results, champion = race.results, race.champion
    if champion is None:
        if reason != "done":
            return False, "the race is not finished: nothing is decided yet"
        return False, "no setting beats the default beyond noise"
    if race.proof_from is None or reason != "done":
        return False, "the race is not finished: the leading settings are not proven yet"
    gains = race.proof_gains()
    if len(gains) < PROOF_PAIRS:
        return False, "the leading settings did not run reliably"
    raced = pooled(results, gains, _calls(results, RACED), _PROOF_CONFIDENCE)
    if raced.low <= 0 or raced.value < threshold:
        return False, (
            "the leading settings do not beat the default beyond noise in the proof: "
            f"{raced.ratio.value:.3f}x ({raced.ratio.low:.3f}-{raced.ratio.high:.3f})"
        )
    for collective in _collectives(results):
        other = pooled(results, gains, _calls(results, collective))
        if collective is not RACED and other.high < 0 and other.value + raced.value < 0:
            return False, (
                f"it costs {collective.prose} more ({math.exp(other.value):.2f}x) than send/recv "
                f"gains ({math.exp(raced.value):.2f}x)"
            )
    return True, "it beats the default beyond noise in processes that were not used to choose it"


def effects(results: NeighbourGains, settings: Settings, gains: Gains, ranks: int) -> Effects:
    """Return the effects of `settings` from the gains of their processes, at least one."""
    runs = results.runs_with(settings)
    made = next((run.effective for run in runs if run.effective is not None), None)
    sizes = {
        collective: [_size(results, gains, call) for call in _calls(results, collective)]
        for collective in _collectives(results)
    }
    return Effects(
        settings=settings.numbers,
        overall={
            collective: ProcessGain(*pooled(results, gains, _calls(results, collective)).ratio)
            for collective in sizes
        },
        ranges=[
            _range(results, gains, collective, group)
            for collective, points in sizes.items()
            for group in _groups(points)
        ],
        sizes=sizes,
        effective=made,
        memory_bytes=memory_bytes(settings, made, ranks),
    )


def default_effective(results: NeighbourGains) -> Effective | None:
    """Return the effective settings of the first default that has them; None if none has."""
    return next(
        (run.effective for run in results.runs_with(DEFAULT) if run.effective is not None), None
    )


def _collectives(results: NeighbourGains) -> list[Collective]:
    return list(dict.fromkeys(collective for collective, _ in results.calls))


def _calls(results: NeighbourGains, collective: Collective) -> list[Call]:
    return [call for call in results.calls if call[0] is collective]


def _size(results: NeighbourGains, gains: Gains, call: Call) -> SizeEffect:
    interval = pooled(results, gains, [call])
    sure = pooled(results, gains, [call], _LABEL_CONFIDENCE)
    effect = "same"
    if sure.low > 0 and interval.value >= LEAST_EFFECT:
        effect = "faster"
    elif sure.high < 0 and interval.value <= -LEAST_EFFECT:
        effect = "slower"
    default_us = results.default_us(call)
    return SizeEffect(
        bytes=call[1],
        default_us=default_us,
        time_us=default_us / math.exp(interval.value),
        gain=ProcessGain(*interval.ratio),
        effect=effect,
    )


def _groups(points: Sequence[SizeEffect]) -> list[list[SizeEffect]]:
    groups: list[list[SizeEffect]] = []
    for point in points:
        if groups and groups[-1][-1].effect == point.effect:
            groups[-1].append(point)
        else:
            groups.append([point])
    return groups


def _range(
    results: NeighbourGains,
    gains: Gains,
    collective: Collective,
    points: Sequence[SizeEffect],
) -> RangeEffect:
    calls = [(collective, point.bytes) for point in points]
    return RangeEffect(
        collective=collective,
        from_bytes=points[0].bytes,
        to_bytes=points[-1].bytes,
        effect=points[0].effect,
        gain=ProcessGain(*pooled(results, gains, calls).ratio),
    )
