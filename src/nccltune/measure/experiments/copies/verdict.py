# SPDX-License-Identifier: Apache-2.0
"""The verdict of the comparison by message size.

The verdict has the recommended settings, a table by size, and the effects of the policies.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from nccltune.analyze.stats import median
from nccltune.measure.engine.gains import Gains, NeighbourGains, ProcessGain, pooled
from nccltune.measure.engine.settings import DEFAULT, Settings
from nccltune.measure.engine.settings_experiment import ProcessVerdict
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

_SURE = 0.99
"""Confidence to call a size slower or a policy faster, as many are tested."""


class SizePoint(msgspec.Struct, frozen=True):
    """The results at one message size, in us; `gain` is native over copy engine time.

    With a load, `*_load_slower` is the time of a compute kernel during the calls over its time
    without them (1.2 is 20 % longer).
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
    """The results of a policy at one size: the time in us, and the gain over NCCL."""

    bytes: int
    time_us: float
    gain: ProcessGain


class PolicyPoint(msgspec.Struct, frozen=True):
    """The effect of a policy, as a mean over the sizes from the threshold on, else all.

    `over_copy_engine`, a factor, is less certain: those processes did not run in pairs.
    """

    settings: dict[str, int | str]
    over_native: ProcessGain
    over_copy_engine: float
    sizes: list[PolicySize]


class CopiesVerdict(ProcessVerdict, frozen=True, kw_only=True):
    """The content of `sendrecv.json`: how a comparison ended.

    settings    the recommended settings; empty while nothing is decided
    from_bytes  the threshold; None if copy engines should carry nothing, or nothing is decided
    load        `compute` if the GPUs ran compute kernels during the calls
    champion    the best policy, if one was worth a proof
    proof       its gain over plain copy engines in the pairs of the proof, even if not proven
                faster
    carried     number of messages by carrier (NCCL or copy engine); None if unknown
    """

    settings: dict[str, int | str]
    decided: bool
    from_bytes: int | None
    default_from_bytes: int = DEFAULT_FROM
    why: str
    load: str | None = None
    noise_floor: float
    points: list[SizePoint]
    policies: list[PolicyPoint] = msgspec.field(default_factory=list)
    champion: dict[str, int | str] | None = None
    proof: ProcessGain | None = None
    carried: dict[str, int] | None = None


class ThresholdDecision(NamedTuple):
    """What to set, and why; `decided` is False if not all pairs have run."""

    settings: dict[str, int | str]
    decided: bool
    from_bytes: int | None
    why: str


def decide(order: CopyOrder, floor: float) -> ThresholdDecision:
    """Return the decision so far; differences below `floor` (a log) do not count."""
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
    """Return the threshold from the pairs that have run. At least one pair must have run."""
    gains = order.pair_gains()
    sizes = [
        MessageSizeGain(call[1], _effect(order.results, gains, call, floor))
        for call in _calls(order)
    ]
    return find_threshold(sizes, DEFAULT_FROM)


def leader(order: CopyOrder, floor: float) -> Settings | None:
    """Return the policy with the largest mean gain from the threshold on, if it is worth a
    proof."""
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
    """Return whether the proof is complete and shows the champion faster.

    That is in the mean by `floor` (a log), with confidence `_SURE`, and slower at no size.
    """
    gains = order.proof_gains()
    if len(gains) < order.proof_pairs or order.champion in order.results.failed:
        return False
    taken = _taken(order, from_bytes)
    mean = pooled(order.results, gains, taken, _SURE)
    slower = [call for call in taken if _effect(order.results, gains, call, floor) is Effect.SLOWER]
    return mean.low > 0 and mean.value >= floor and not slower


def points(order: CopyOrder, floor: float, from_bytes: int | None) -> list[SizePoint]:
    """Return the results by size from the pairs that have run; empty if no pair has run."""
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
    """Return the median of `loads_slower` over these processes; None if unknown."""
    known = [
        run.loads_slower[call] for run in results.runs_with(settings) if call in run.loads_slower
    ]
    return median(known) if known else None


def policy_points(order: CopyOrder, from_bytes: int | None) -> list[PolicyPoint]:
    """Return the effect of each policy that has run, the fastest first."""
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
    """Return the champion's gain in the proof, from the threshold on; None without either."""
    gains, taken = order.proof_gains(), _taken(order, from_bytes)
    return ProcessGain(*pooled(order.results, gains, taken).ratio) if gains and taken else None


def carried(results: NeighbourGains) -> dict[str, int] | None:
    """Return the messages by carrier of plain copy engines; None if no process has counts."""
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
