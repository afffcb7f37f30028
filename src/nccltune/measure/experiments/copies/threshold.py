# SPDX-License-Identifier: Apache-2.0
"""Find the threshold: the size from which on copy engines should carry messages."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from nccltune.analyze.stats import Interval
from nccltune.model.sizes import format_bytes


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
