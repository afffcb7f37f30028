# SPDX-License-Identifier: Apache-2.0
"""The verdict of the comparison by size: the recommended settings, the table by size, and the
effects of policies."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from nccltune.analyze.stats import median
from nccltune.measure.engine.gains import Gains, NeighbourGains, ProcessGain, pooled
from nccltune.measure.engine.settings import DEFAULT, Settings
from nccltune.measure.engine.workload import RACED, Call
from nccltune.measure.experiments.copies.order import CopyOrder
from nccltune.measure.experiments.copies.settings import COPY_ENGINE, DEFAULT_FROM, FROM, ON, label
from nccltune.measure.experiments.copies.threshold import (
    CopyThreshold,
    Effect,
    MessageSizeGain,
    effect_of,
    find_threshold,
)
from nccltune.model.sample import SCHEMA_VERSION

_SURE = 0.99
"""Confidence for calling a size slower, which is tested at every size, and a policy faster."""


class SizePoint(msgspec.Struct, frozen=True):
    """One size: times in us, the gain of the copy engine (1.4 is 1.4 times as fast), and its
    effect.

    `taken` is which of the two carries this size (`native` or `copy engine`). With a load, the two
    `..._load_slower` are how many times longer the load took beside each (1.2 is 20 % longer), None
    where unknown.
    """

    bytes: int
    native_us: float
    copy_engine_us: float
    gain: ProcessGain
    effect: Effect
    taken: str
    native_load_slower: float | None = None
    copy_engine_load_slower: float | None = None


class PolicySize(msgspec.Struct, frozen=True):
    """One size under a policy: its time in us, and its gain over NCCL."""

    bytes: int
    time_us: float
    gain: ProcessGain


class PolicyPoint(msgspec.Struct, frozen=True):
    """The effect of a policy over the sizes that copy engines carry, or over all where they carry
    none.

    `over_native` is its mean gain over NCCL. `over_copy_engine` is its gain over copy engines
    without a policy: a factor, from processes that are not paired.
    """

    settings: dict[str, int | str]
    over_native: ProcessGain
    over_copy_engine: float
    sizes: list[PolicySize]


class CopiesVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `sendrecv.json`: how a comparison ended.

    reason      `done`, `budget` or `interrupted`
    settings    the recommended settings, empty where nothing is decided
    from_bytes  the threshold in bytes; None for never, and while nothing is decided
    load        what the GPUs computed at the same time; None for nothing
    champion    the policy that led, if any
    proof       gain of that policy over copy engines without one, whether proven or not
    """

    schema_version: int = SCHEMA_VERSION
    reason: str
    settings: dict[str, int | str]
    decided: bool
    from_bytes: int | None
    default_from_bytes: int = DEFAULT_FROM
    why: str
    load: str | None = None
    noise_floor: float
    points: list[SizePoint]
    policies: list[PolicyPoint] = []
    champion: dict[str, int | str] | None = None
    proof: ProcessGain | None = None
    failed: dict[str, str] = {}
    carried: dict[str, int] | None = None
    noise: float
    nodes: int
    ranks: int
    processes: int
    known: int
    seconds: float
    replay: str | None = None
    command: str = ""


class ThresholdDecision(NamedTuple):
    """The settings to use, and the reason. `decided` is False while nothing is known."""

    settings: dict[str, int | str]
    decided: bool
    from_bytes: int | None
    why: str


def decide(order: CopyOrder, floor: float) -> ThresholdDecision:
    """Return the recommendation from the results. Differences below `floor` (log) count as none."""
    if (error := order.results.failed.get(COPY_ENGINE)) is not None:
        why = f"it did not run here: {error}. The same command tries again"
        return ThresholdDecision({ON: 0}, True, None, why)
    if not order.compared:
        return ThresholdDecision({}, False, None, "not all pairs have run: nothing is decided yet")
    found = threshold(order, floor)
    if found.from_bytes is None:
        return ThresholdDecision({ON: 0}, True, None, found.why)
    why = found.why
    if order.champion is not None and proven(order, found.from_bytes, floor):
        lines = order.champion.without(FROM).without(ON).environment
        setting_words = " ".join(f"{name}={value}" for name, value in lines.items())
        why += (
            f". {label(order.champion)} is faster still in the proof, but a send may wait for its "
            f"receive: set {setting_words} only for programs that allow that"
        )
    return ThresholdDecision({FROM: found.from_bytes}, True, found.from_bytes, why)


def threshold(order: CopyOrder, floor: float) -> CopyThreshold:
    """Return the threshold from the pairs that have run, at least one."""
    gains = order.pair_gains()
    sizes = [
        MessageSizeGain(call[1], _effect(order.results, gains, call, floor))
        for call in _calls(order)
    ]
    return find_threshold(sizes, DEFAULT_FROM)


def leader(order: CopyOrder, floor: float) -> Settings | None:
    """Return the policy that is worth a proof; None where there is none.

    It is the best policy over the sizes that copy engines carry. It must be faster than copy
    engines without a policy by more than the noise floor.
    """
    taken = _taken(order, threshold(order, floor).from_bytes)
    if not taken:
        return None
    ours = pooled(order.results, order.pair_gains(), taken).value
    ahead = {
        item: pooled(order.results, gains, taken).value - ours
        for item in order.policies
        if item not in order.results.failed and (gains := order.results.gains(item))
    }
    best = max(ahead, key=lambda item: ahead[item], default=None)
    return best if best is not None and ahead[best] > floor else None


def proven(order: CopyOrder, from_bytes: int, floor: float) -> bool:
    """Return whether the proof shows that the champion is faster.

    It must be faster in the mean over the sizes from `from_bytes` on, and slower at none of them.
    """
    gains = order.proof_gains()
    if len(gains) < order.proof_pairs or order.champion in order.results.failed:
        return False
    taken = _taken(order, from_bytes)
    mean = pooled(order.results, gains, taken, _SURE)
    slower = [call for call in taken if _effect(order.results, gains, call, floor) is Effect.SLOWER]
    return mean.low > 0 and mean.value >= floor and not slower


def points(order: CopyOrder, floor: float, from_bytes: int | None) -> list[SizePoint]:
    """Return the table by size, as far as pairs have run."""
    results, gains = order.results, order.pair_gains()
    if not gains:
        return []
    found = []
    for call in _calls(order):
        interval = pooled(results, gains, [call])
        native_us = results.default_us(call)
        taken = from_bytes is not None and call[1] >= from_bytes
        found.append(
            SizePoint(
                bytes=call[1],
                native_us=native_us,
                copy_engine_us=native_us / math.exp(interval.value),
                gain=ProcessGain(*interval.ratio),
                effect=_effect(results, gains, call, floor),
                taken="copy engine" if taken else "native",
                native_load_slower=_load_slower(results, DEFAULT, call),
                copy_engine_load_slower=_load_slower(results, COPY_ENGINE, call),
            )
        )
    return found


def _load_slower(results: NeighbourGains, settings: Settings, call: Call) -> float | None:
    """Return the median over the processes that have a value."""
    known = [
        run.loads_slower[call] for run in results.runs_with(settings) if call in run.loads_slower
    ]
    return median(known) if known else None


def policy_points(order: CopyOrder, from_bytes: int | None) -> list[PolicyPoint]:
    """Return the effects of each policy that has run, the best first."""
    results = order.results
    if not order.pair_gains():
        return []
    calls = _taken(order, from_bytes) or _calls(order)
    ours = pooled(results, order.pair_gains(), calls).value
    found = []
    for item in order.policies:
        gains = results.gains(item)
        if item in results.failed or not gains:
            continue
        over_native = pooled(results, gains, calls)
        found.append(
            PolicyPoint(
                settings=item.recorded,
                over_native=ProcessGain(*over_native.ratio),
                over_copy_engine=math.exp(over_native.value - ours),
                sizes=[_policy_size(results, gains, call) for call in _calls(order)],
            )
        )
    return sorted(found, key=lambda point: -point.over_copy_engine)


def proof_gain(order: CopyOrder, from_bytes: int | None) -> ProcessGain | None:
    """Return the champion's gain over copy engines without a policy, over the sizes that these
    carry."""
    gains, taken = order.proof_gains(), _taken(order, from_bytes)
    return ProcessGain(*pooled(order.results, gains, taken).ratio) if gains and taken else None


def carried(results: NeighbourGains) -> dict[str, int] | None:
    """Return the number of messages by carrier, summed over the processes of copy engines without a
    policy.

    Return None where nothing counted them.
    """
    counted = [run.carried for run in results.runs_with(COPY_ENGINE) if run.carried is not None]
    if not counted:
        return None
    total: dict[str, int] = {}
    for messages_by_carrier in counted:
        for carrier, messages in messages_by_carrier.items():
            total[carrier] = total.get(carrier, 0) + messages
    return total


def _policy_size(results: NeighbourGains, gains: Gains, call: Call) -> PolicySize:
    interval = pooled(results, gains, [call])
    time_us = results.default_us(call) / math.exp(interval.value)
    return PolicySize(bytes=call[1], time_us=time_us, gain=ProcessGain(*interval.ratio))


def _effect(
    results: NeighbourGains, gains: Sequence[Mapping[Call, float]], call: Call, floor: float
) -> Effect:
    return effect_of(pooled(results, gains, [call]), pooled(results, gains, [call], _SURE), floor)


def _calls(order: CopyOrder) -> list[Call]:
    return [call for call in order.results.calls if call[0] is RACED]


def _taken(order: CopyOrder, from_bytes: int | None) -> list[Call]:
    return [call for call in _calls(order) if from_bytes is not None and call[1] >= from_bytes]
