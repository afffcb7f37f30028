# SPDX-License-Identifier: Apache-2.0
"""The verdict of the comparison by message size.

The verdict has the recommended settings and a table by size.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from nccltune.analyze.stats import Interval, estimate, median
from nccltune.measure.experiments.copies.record import ProcessRun
from nccltune.measure.experiments.copies.settings import DEFAULT_FROM, FROM, ON, Carrier
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.model.sizes import format_bytes

_PRIOR_NOISE = 0.02
"""Assumed standard deviation of a process's mean gain, worth `_PRIOR_WEIGHT` processes."""
_PRIOR_WEIGHT = 2.0
LEAST_NOISE = 0.002


class ProcessGain(msgspec.Struct, frozen=True):
    """A gain (1.4 is 1.4 times as fast) with its 95 % interval, from `processes` pairs.

    `known` is False if the noise is assumed, because there are too few to show it.
    """

    gain: float
    low: float
    high: float
    processes: int
    known: bool


class PairGains:
    """The results of all processes so far, in the order in which they ran, at these `sizes`.

    A gain is the natural log of NCCL's time over the copy engines' time. Each pair of processes
    counts as one value, because all calls of a process share its memory placement and connections.
    """

    def __init__(self, sizes: Sequence[int], pairs: int) -> None:
        self.sizes = tuple(sizes)
        self.pairs = pairs
        """The number of pairs to compare; later ones do not count."""
        self.failed: str | None = None
        """Why a process with copy engines failed."""
        self._runs: dict[int, ProcessRun] = {}

    def add(self, run: ProcessRun) -> None:
        """Add a process; a failed one of NCCL alone is ignored."""
        missing = [size for size in self.sizes if size not in run.times_us]
        if run.error is None and not missing:
            self._runs[run.line.process] = run
        elif run.carrier is Carrier.COPY_ENGINE:
            self.failed = run.error or f"sendrecv of {missing[0]} bytes failed"

    @property
    def compared(self) -> bool:
        """Return whether all pairs have run."""
        return len(self.gains()) >= self.pairs

    def runs_with(self, carrier: Carrier) -> list[ProcessRun]:
        """Return the processes with this carrier, in order."""
        return [run for _, run in sorted(self._runs.items()) if run.carrier is carrier]

    def gains(self) -> list[dict[int, float]]:
        """Return, for each pair of neighbours in one session, the gain by size.

        No process is in two pairs, so the gains are independent.
        """
        runs = [run for _, run in sorted(self._runs.items())]
        found = []
        at = 0
        while at + 1 < len(runs):
            one, other = runs[at], runs[at + 1]
            if one.line.session == other.line.session and one.carrier is not other.carrier:
                native, copied = (one, other) if one.carrier is Carrier.NATIVE else (other, one)
                found.append({size: _gain(copied, [native], size) for size in self.sizes})
                at += 1
            at += 1
        return found[: self.pairs]

    def noise(self, sizes: Sequence[int]) -> float:
        """Return the standard deviation of one process's mean gain over `sizes`.

        It is of the differences of neighbouring processes of NCCL alone, and at first mostly
        `_PRIOR_NOISE`.
        """
        by_session: dict[int, list[ProcessRun]] = defaultdict(list)
        for run in self.runs_with(Carrier.NATIVE):
            by_session[run.line.session].append(run)
        squares = [
            _mean([_gain(runs[at], [runs[at - 1], runs[at + 1]], size) for size in sizes]) ** 2
            for runs in by_session.values()
            for at in range(1, len(runs) - 1)
        ]
        total = _PRIOR_WEIGHT * _PRIOR_NOISE**2 + math.fsum(squares)
        return max(LEAST_NOISE, math.sqrt(total / (_PRIOR_WEIGHT + len(squares))))

    def native_us(self, size: int) -> float:
        """Return the median time with NCCL alone, in us."""
        return median([run.times_us[size] for run in self.runs_with(Carrier.NATIVE)])

    def pooled(
        self, gains: Sequence[Mapping[int, float]], sizes: Sequence[int], confidence: float = 0.95
    ) -> Interval:
        """Return the mean gain over `sizes` and pairs, as a natural log with its interval.

        Neither may be empty. Fewer than four pairs use the noise of the processes.
        """
        values = [_mean([gain[size] for size in sizes]) for gain in gains]
        found = estimate(values, assumed_sd=self.noise(sizes), confidence=confidence)
        assert found is not None
        return found


def _gain(run: ProcessRun, beside: Sequence[ProcessRun], size: int) -> float:
    return _mean([math.log(other.times_us[size]) for other in beside]) - math.log(
        run.times_us[size]
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


class Effect(StrEnum):
    """The effect of a copy engine at one size, compared with NCCL.

    FASTER   proven faster, and by at least the noise floor in the mean
    SAME     proven not slower by more than the noise floor
    SLOWER   proven slower, and by at least the noise floor in the mean
    UNCLEAR  none of these is proven
    """

    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    UNCLEAR = "unclear"


class MessageSizeGain(NamedTuple):
    """The effect at one message size."""

    bytes: int
    effect: Effect


class CopyThreshold(NamedTuple):
    """The threshold in bytes (None: copy engines should carry nothing), and the reason."""

    from_bytes: int | None
    why: str


def effect_of(interval: Interval, sure: Interval, floor: float) -> Effect:
    """Return the effect of a gain (log of native over copy engine time) at one size.

    Differences below `floor` (a log) do not count. The test for "not slower" runs from the largest
    size to the first failure, so its 95 % holds for all; every size is tested for "slower", which
    needs the wider interval `sure`.
    """
    if interval.low > 0 and interval.value >= floor:
        return Effect.FASTER
    if interval.low > -floor:
        return Effect.SAME
    if sure.high < 0 and interval.value <= -floor:
        return Effect.SLOWER
    return Effect.UNCLEAR


def find_threshold(sizes: Sequence[MessageSizeGain], default: int) -> CopyThreshold:
    """Return the threshold from the effects at all sizes.

    - If copy engines are proven not slower at `default` and all larger sizes, the threshold is the
      smallest size from which on they are proven not slower.
    - If copy engines are proven slower at `default` or a larger size, the threshold is the size
      after the largest such size. It is None if there is no larger size.
    - Otherwise the threshold is `default`.

    `sizes` must be ascending and not empty, and `default` must be within their range.

    >>> sizes = [MessageSizeGain(1 << 20, Effect.SLOWER), MessageSizeGain(2 << 20, Effect.FASTER)]
    >>> find_threshold(sizes, default=2 << 20).from_bytes
    2097152
    """
    not_slower = _not_slower_from(sizes)
    slower = next((at for at in reversed(range(len(sizes))) if _slower(sizes[at])), None)
    if not_slower is not None and sizes[not_slower].bytes <= default:
        return _proven(sizes, not_slower)
    if slower is None or sizes[slower].bytes < default:
        return CopyThreshold(default, f"the default stays: {_not_proven(sizes)}")
    if slower == len(sizes) - 1:
        return CopyThreshold(None, _never(sizes))
    if slower + 1 == not_slower:
        return _proven(sizes, not_slower)
    above = sizes[slower + 1 :]
    unclear = sum(size.effect is Effect.UNCLEAR for size in above)
    return CopyThreshold(
        above[0].bytes,
        f"a copy engine is slower at {format_bytes(sizes[slower].bytes)}; at none of {len(above)} "
        f"larger sizes is it proven slower; {unclear} of them are unclear",
    )


def _not_slower_from(sizes: Sequence[MessageSizeGain]) -> int | None:
    """Return the index from which on all sizes are proven not slower; None if none is."""
    found = None
    for at in reversed(range(len(sizes))):
        if sizes[at].effect not in (Effect.FASTER, Effect.SAME):
            break
        found = at
    return found


def _slower(size: MessageSizeGain) -> bool:
    return size.effect is Effect.SLOWER


def _proven(sizes: Sequence[MessageSizeGain], at: int) -> CopyThreshold:
    taken = sizes[at:]
    faster = sum(size.effect is Effect.FASTER for size in taken)
    why = (
        f"from {format_bytes(sizes[at].bytes)} on a copy engine is slower at no size, and faster "
        f"at {faster} of {len(taken)}"
    )
    if at > 0:
        below = sizes[at - 1]
        effect = "is slower" if _slower(below) else "may be slower"
        why += f"; at {format_bytes(below.bytes)} it {effect}"
    return CopyThreshold(sizes[at].bytes, why)


def _not_proven(sizes: Sequence[MessageSizeGain]) -> str:
    unclear = [size for size in sizes if size.effect is Effect.UNCLEAR]
    if not unclear:
        return "no measurement contradicts it"
    return f"at {format_bytes(unclear[-1].bytes)} it is unclear whether a copy engine is slower"


def _never(sizes: Sequence[MessageSizeGain]) -> str:
    faster = [size.bytes for size in sizes if size.effect is Effect.FASTER]
    why = f"a copy engine is slower at {format_bytes(sizes[-1].bytes)}, the largest size"
    if not faster:
        return f"{why}, and faster at none"
    return (
        f"{why}, though faster between {format_bytes(faster[0])} and {format_bytes(faster[-1])}: "
        "a threshold cannot express that"
    )


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
