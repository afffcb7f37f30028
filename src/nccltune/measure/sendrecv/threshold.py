# SPDX-License-Identifier: Apache-2.0
"""From what is known of each size to one threshold: from there on copy engines carry messages."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from nccltune.analyze.stats import Interval
from nccltune.model.sizes import format_bytes


class Effect(StrEnum):
    """A copy engine beside NCCL at one size. `SAME` is proven not slower beyond the noise floor;
    `UNCLEAR` is neither that nor proven slower."""

    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    UNCLEAR = "unclear"


class SizeEffect(NamedTuple):
    """What is known of messages of so many bytes."""

    bytes: int
    effect: Effect


class Threshold(NamedTuple):
    """Bytes from which on copy engines carry messages, None for never, and why."""

    from_bytes: int | None
    why: str


def effect_of(interval: Interval, sure: Interval, floor: float) -> Effect:
    """From the gain (log of native over copy engine time) with its 95 % `interval` and the wider
    one by which it may be called slower; differences below `floor` (log) are none.

    Not slower is asked of sizes in turn, from the largest on and only up to the first that fails,
    so that 95 % for each are 95 % for all; slower is asked of every size.
    """
    if interval.low > 0 and interval.value >= floor:
        return Effect.FASTER
    if interval.low > -floor:
        return Effect.SAME
    if sure.high < 0 and interval.value <= -floor:
        return Effect.SLOWER
    return Effect.UNCLEAR


def find_threshold(sizes: Sequence[SizeEffect], default: int) -> Threshold:
    """The smallest size from which on no larger one is slower, as far as it is proven; else
    `default`, which lies within `sizes` (ascending, at least one)."""
    not_slower = _not_slower_from(sizes)
    slower = next((at for at in reversed(range(len(sizes))) if _slower(sizes[at])), None)
    if not_slower is not None and sizes[not_slower].bytes <= default:
        return _proven(sizes, not_slower)
    if slower is None or sizes[slower].bytes < default:
        return Threshold(default, f"the default stays: {_not_proven(sizes)}")
    if slower == len(sizes) - 1:
        return Threshold(None, _never(sizes))
    if slower + 1 == not_slower:
        return _proven(sizes, not_slower)
    above = sizes[slower + 1 :]
    unclear = sum(size.effect is Effect.UNCLEAR for size in above)
    return Threshold(
        above[0].bytes,
        f"a copy engine is slower at {format_bytes(sizes[slower].bytes)}; of {len(above)} larger "
        f"sizes it is so at none, as far as is known: {unclear} may be slower or not",
    )


def _not_slower_from(sizes: Sequence[SizeEffect]) -> int | None:
    """The first of the sizes at the end that are all proven not slower."""
    found = None
    for at in reversed(range(len(sizes))):
        if sizes[at].effect not in (Effect.FASTER, Effect.SAME):
            break
        found = at
    return found


def _slower(size: SizeEffect) -> bool:
    return size.effect is Effect.SLOWER


def _proven(sizes: Sequence[SizeEffect], at: int) -> Threshold:
    taken = sizes[at:]
    faster = sum(size.effect is Effect.FASTER for size in taken)
    why = (
        f"from {format_bytes(sizes[at].bytes)} on a copy engine is slower at no size, and faster "
        f"at {faster} of {len(taken)}"
    )
    if at > 0:
        below = sizes[at - 1]
        told = "is slower" if _slower(below) else "may be slower"
        why += f"; at {format_bytes(below.bytes)} it {told}"
    return Threshold(sizes[at].bytes, why)


def _not_proven(sizes: Sequence[SizeEffect]) -> str:
    unclear = [size for size in sizes if size.effect is Effect.UNCLEAR]
    if not unclear:
        return "what was measured beside it says nothing else"
    return f"at {format_bytes(unclear[-1].bytes)} a copy engine may be slower or not"


def _never(sizes: Sequence[SizeEffect]) -> str:
    faster = [size.bytes for size in sizes if size.effect is Effect.FASTER]
    why = f"a copy engine is slower at {format_bytes(sizes[-1].bytes)}, the largest size"
    if not faster:
        return f"{why}, and faster at none"
    return (
        f"{why}, though faster between {format_bytes(faster[0])} and {format_bytes(faster[-1])}: "
        "a threshold cannot say that"
    )
