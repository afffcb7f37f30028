# SPDX-License-Identifier: Apache-2.0
"""The verdict of the comparison by message size.

The verdict has the recommended settings and a table by size.
"""

import math
from collections import Counter
from typing import NamedTuple

import msgspec

from nccltune.analyze.stats import median
from nccltune.measure.experiments.copies.gains import PairGains, ProcessGain
from nccltune.measure.experiments.copies.settings import DEFAULT_FROM, FROM, ON, Carrier
from nccltune.measure.experiments.copies.threshold import (
    Effect,
    MessageSizeGain,
    effect_of,
    find_threshold,
)
from nccltune.model.sample import SCHEMA_VERSION

_SURE = 0.99
"""Confidence to call a size slower, as many are tested."""


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


class CopiesVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `sendrecv.json`: how a comparison ended.

    reason      `done`, `budget` or `interrupted`
    failed      why copy engines did not run
    processes   the number of processes of this run; `known` are those of earlier ones
    settings    the recommended settings; empty while nothing is decided
    from_bytes  the threshold; None if copy engines should carry nothing, or nothing is decided
    load        `compute` if the GPUs ran compute kernels during the calls
    carried     number of messages by carrier (NCCL or copy engine); None if unknown
    """

    schema_version: int = SCHEMA_VERSION
    reason: str
    failed: dict[str, str] = {}
    noise: float
    nodes: int
    ranks: int
    processes: int
    known: int
    seconds: float
    replay: str | None = None
    command: str = ""
    settings: dict[str, int | str]
    decided: bool
    from_bytes: int | None
    default_from_bytes: int = DEFAULT_FROM
    why: str
    load: str | None = None
    noise_floor: float
    points: list[SizePoint]
    carried: dict[str, int] | None = None


class ThresholdDecision(NamedTuple):
    """What to set, and why; `decided` is False if not all pairs have run."""

    settings: dict[str, int | str]
    decided: bool
    from_bytes: int | None
    why: str


def decide(results: PairGains, floor: float) -> ThresholdDecision:
    """Return the decision so far; differences below `floor` (a log) do not count."""
    if results.failed is not None:
        why = f"it did not run here: {results.failed}. The same command tries again"
        return ThresholdDecision({ON: 0}, True, None, why)
    if not results.compared:
        return ThresholdDecision({}, False, None, "not all pairs have run: nothing is decided yet")
    sizes = [MessageSizeGain(size, _effect(results, size, floor)) for size in results.sizes]
    found = find_threshold(sizes, DEFAULT_FROM)
    settings: dict[str, int | str] = (
        {ON: 0} if found.from_bytes is None else {FROM: found.from_bytes}
    )
    return ThresholdDecision(settings, True, found.from_bytes, found.why)


def points(results: PairGains, floor: float, from_bytes: int | None) -> list[SizePoint]:
    """Return the results by size from the pairs that have run; empty if no pair has run."""
    gains = results.gains()
    if not gains:
        return []
    found = []
    for size in results.sizes:
        interval = results.pooled(gains, [size])
        native_us = results.native_us(size)
        taken = from_bytes is not None and size >= from_bytes
        found.append(
            SizePoint(
                bytes=size,
                native_us=native_us,
                copy_engine_us=native_us / math.exp(interval.value),
                gain=ProcessGain(*interval.ratio),
                effect=_effect(results, size, floor),
                taken=(Carrier.COPY_ENGINE if taken else Carrier.NATIVE).value,
                native_load_slower=_load_slower(results, Carrier.NATIVE, size),
                copy_engine_load_slower=_load_slower(results, Carrier.COPY_ENGINE, size),
            )
        )
    return found


def _load_slower(results: PairGains, carrier: Carrier, size: int) -> float | None:
    """Return the median of `loads_slower` over these processes; None if unknown."""
    runs = results.runs_with(carrier)
    known = [run.loads_slower[size] for run in runs if size in run.loads_slower]
    return median(known) if known else None


def carried(results: PairGains) -> dict[str, int] | None:
    """Return the messages by carrier with copy engines; None if no process has counts."""
    counted = [run.line.carried for run in results.runs_with(Carrier.COPY_ENGINE)]
    total = Counter[str]()
    for messages_by_carrier in counted:
        total.update(messages_by_carrier or {})
    return dict(total) if any(item is not None for item in counted) else None


def _effect(results: PairGains, size: int, floor: float) -> Effect:
    gains = results.gains()
    sure = results.pooled(gains, [size], _SURE)
    return effect_of(results.pooled(gains, [size]), sure, floor)
