# SPDX-License-Identifier: Apache-2.0
"""What is recommended, with the table by size, and what policies do."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from nccltune.analyze.stats import median
from nccltune.measure.p2p.board import Board
from nccltune.measure.p2p.settings import DEFAULT, Settings
from nccltune.measure.p2p.verdict import Gain, Gains, pooled
from nccltune.measure.p2p.workload import RACED, Call
from nccltune.measure.sendrecv.order import Order
from nccltune.measure.sendrecv.settings import COPY_ENGINE, DEFAULT_FROM, FROM, ON, label
from nccltune.measure.sendrecv.threshold import (
    Effect,
    SizeEffect,
    Threshold,
    effect_of,
    find_threshold,
)
from nccltune.model.sample import SCHEMA_VERSION

_SURE = 0.99
"""For calling a size slower, which each of them is asked, and a policy faster."""


class SizePoint(msgspec.Struct, frozen=True):
    """One size: the time of NCCL and of a copy engine in us, the gain of the latter (1.4 is 1.4
    times as fast), and which of them takes it (`native` or `copy engine`); with a load, by how much
    that was slower beside each (1.2 is 20 %), as far as it is known."""

    bytes: int
    native_us: float
    copy_engine_us: float
    gain: Gain
    effect: Effect
    taken: str
    native_load_slower: float | None = None
    copy_engine_load_slower: float | None = None


class PolicySize(msgspec.Struct, frozen=True):
    """One size under a policy: its time in us, and its gain over NCCL."""

    bytes: int
    time_us: float
    gain: Gain


class PolicyPoint(msgspec.Struct, frozen=True):
    """What a policy does: its mean gain over NCCL, and over copy engines without one by the same
    sizes (a factor, of unpaired starts), both over the sizes that copy engines take, or over all
    where they take none."""

    settings: dict[str, int | str]
    over_native: Gain
    over_copy_engine: float
    sizes: list[PolicySize]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`sendrecv.json`: how a comparison ended. `reason` is `done`, `budget` or `interrupted`;
    `settings` are the recommended ones, empty where nothing is decided; `from_bytes` is the
    threshold in bytes, None for never and while nothing is decided. `proof` is the gain of the best
    policy over copy engines without one, where it led and was proven or not. `load` is what the
    GPUs computed meanwhile, None for nothing."""

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
    proof: Gain | None = None
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


class Decision(NamedTuple):
    """What to set and why; `decided` is False while nothing can be said."""

    settings: dict[str, int | str]
    decided: bool
    from_bytes: int | None
    why: str


def decide(order: Order, floor: float) -> Decision:
    """What is recommended by what is on the board; differences below `floor` (log) are none."""
    if (error := order.board.failed.get(COPY_ENGINE)) is not None:
        why = f"it did not run here: {error}. The same command tries again"
        return Decision({ON: 0}, True, None, why)
    if not order.compared:
        return Decision({}, False, None, "not all pairs have run: nothing is decided yet")
    found = threshold(order, floor)
    if found.from_bytes is None:
        return Decision({ON: 0}, True, None, found.why)
    why = found.why
    if order.champion is not None and proven(order, found.from_bytes, floor):
        lines = order.champion.without(FROM).without(ON).environment
        told = " ".join(f"{name}={value}" for name, value in lines.items())
        why += (
            f". {label(order.champion)} is faster still in starts of its own, but a send may wait "
            f"for its receive there: {told} is for programs that allow that"
        )
    return Decision({FROM: found.from_bytes}, True, found.from_bytes, why)


def threshold(order: Order, floor: float) -> Threshold:
    """The threshold by the pairs that have run, at least one."""
    gains = order.gains()
    sizes = [
        SizeEffect(call[1], _effect(order.board, gains, call, floor)) for call in _calls(order)
    ]
    return find_threshold(sizes, DEFAULT_FROM)


def leader(order: Order, floor: float) -> Settings | None:
    """The policy that is worth a proof: the best over the sizes that copy engines take, where it is
    ahead of them by more than the noise floor. None where they take none."""
    taken = _taken(order, threshold(order, floor).from_bytes)
    if not taken:
        return None
    ours = pooled(order.board, order.gains(), taken).value
    ahead = {
        item: pooled(order.board, gains, taken).value - ours
        for item in order.policies
        if item not in order.board.failed and (gains := order.board.gains(item))
    }
    best = max(ahead, key=lambda item: ahead[item], default=None)
    return best if best is not None and ahead[best] > floor else None


def proven(order: Order, from_bytes: int, floor: float) -> bool:
    """Whether the champion's proof has shown it faster in the mean over the sizes from `from_bytes`
    on, and slower at none of them."""
    gains = order.proof()
    if len(gains) < order.proof_pairs or order.champion in order.board.failed:
        return False
    taken = _taken(order, from_bytes)
    mean = pooled(order.board, gains, taken, _SURE)
    slower = [call for call in taken if _effect(order.board, gains, call, floor) is Effect.SLOWER]
    return mean.low > 0 and mean.value >= floor and not slower


def points(order: Order, floor: float, from_bytes: int | None) -> list[SizePoint]:
    """The table by size, as far as pairs have run."""
    board, gains = order.board, order.gains()
    if not gains:
        return []
    found = []
    for call in _calls(order):
        interval = pooled(board, gains, [call])
        native_us = board.default_us(call)
        taken = from_bytes is not None and call[1] >= from_bytes
        found.append(
            SizePoint(
                bytes=call[1],
                native_us=native_us,
                copy_engine_us=native_us / math.exp(interval.value),
                gain=Gain(*interval.ratio),
                effect=_effect(board, gains, call, floor),
                taken="copy engine" if taken else "native",
                native_load_slower=_load_slower(board, DEFAULT, call),
                copy_engine_load_slower=_load_slower(board, COPY_ENGINE, call),
            )
        )
    return found


def _load_slower(board: Board, settings: Settings, call: Call) -> float | None:
    """The median of the processes that know it."""
    known = [run.loads_slower[call] for run in board.of(settings) if call in run.loads_slower]
    return median(known) if known else None


def policy_points(order: Order, from_bytes: int | None) -> list[PolicyPoint]:
    """What each policy does that has run, the best first."""
    board = order.board
    if not order.gains():
        return []
    calls = _taken(order, from_bytes) or _calls(order)
    ours = pooled(board, order.gains(), calls).value
    found = []
    for item in order.policies:
        gains = board.gains(item)
        if item in board.failed or not gains:
            continue
        over_native = pooled(board, gains, calls)
        found.append(
            PolicyPoint(
                settings=item.recorded,
                over_native=Gain(*over_native.ratio),
                over_copy_engine=math.exp(over_native.value - ours),
                sizes=[_policy_size(board, gains, call) for call in _calls(order)],
            )
        )
    return sorted(found, key=lambda point: -point.over_copy_engine)


def proof_gain(order: Order, from_bytes: int | None) -> Gain | None:
    """The champion over copy engines without a policy, over the sizes that these take."""
    gains, taken = order.proof(), _taken(order, from_bytes)
    return Gain(*pooled(order.board, gains, taken).ratio) if gains and taken else None


def carried(board: Board) -> dict[str, int] | None:
    """Messages of copy engines without a policy by who carried them, over all their starts; None
    where nothing counted them."""
    counted = [run.carried for run in board.of(COPY_ENGINE) if run.carried is not None]
    if not counted:
        return None
    total: dict[str, int] = {}
    for ways in counted:
        for way, messages in ways.items():
            total[way] = total.get(way, 0) + messages
    return total


def _policy_size(board: Board, gains: Gains, call: Call) -> PolicySize:
    interval = pooled(board, gains, [call])
    time_us = board.default_us(call) / math.exp(interval.value)
    return PolicySize(bytes=call[1], time_us=time_us, gain=Gain(*interval.ratio))


def _effect(
    board: Board, gains: Sequence[Mapping[Call, float]], call: Call, floor: float
) -> Effect:
    return effect_of(pooled(board, gains, [call]), pooled(board, gains, [call], _SURE), floor)


def _calls(order: Order) -> list[Call]:
    return [call for call in order.board.calls if call[0] is RACED]


def _taken(order: Order, from_bytes: int | None) -> list[Call]:
    return [call for call in _calls(order) if from_bytes is not None and call[1] >= from_bytes]
