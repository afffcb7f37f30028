# SPDX-License-Identifier: Apache-2.0
"""What is recommended, what it gains in which range of sizes, and what it costs elsewhere."""

import math
from collections.abc import Mapping, Sequence

import msgspec

from nccltune.analyze.stats import Interval, estimate
from nccltune.measure.p2p.board import Board
from nccltune.measure.p2p.effective import Effective
from nccltune.measure.p2p.race import PROOF_PAIRS, Race
from nccltune.measure.p2p.settings import DEFAULT, Settings, memory_bytes
from nccltune.measure.p2p.workload import RACED, Call
from nccltune.model.collective import Collective
from nccltune.model.sample import SCHEMA_VERSION

LEAST_EFFECT = math.log1p(0.01)
"""A smaller difference at one size is called none, however sure it is."""
_LABEL_CONFIDENCE = 0.99
"""For calling a size faster or slower: there are some dozen of them."""
_PROOF_CONFIDENCE = 0.99
"""For recommending anything."""
Gains = Sequence[Mapping[Call, float]]
"""By call, one for each process with the settings."""


class Gain(msgspec.Struct, frozen=True):
    """A gain, default over settings time (1.4 is 1.4 times as fast), with its 95 % interval from
    `processes` starts with the settings; `known` is False where they are too few to tell their own
    noise."""

    gain: float
    low: float
    high: float
    processes: int
    known: bool


class SizeEffect(msgspec.Struct, frozen=True):
    """One size: the default's time, the time with the settings, and the gain."""

    bytes: int
    default_us: float
    time_us: float
    gain: Gain
    effect: str


class RangeEffect(msgspec.Struct, frozen=True):
    """Neighbouring sizes of one effect (`faster`, `slower`, `same`), and their mean gain."""

    collective: Collective
    from_bytes: int
    to_bytes: int
    effect: str
    gain: Gain


class Effects(msgspec.Struct, frozen=True):
    """What settings do to everything that was measured. `overall` is the mean over all sizes by
    collective; `memory_bytes` are buffers of send/recv on a GPU at most."""

    settings: dict[str, int]
    overall: dict[Collective, Gain]
    ranges: list[RangeEffect]
    sizes: dict[Collective, list[SizeEffect]]
    effective: Effective | None = None
    memory_bytes: int | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`p2p.json`: how a race ended. `reason` is `done`, `budget` or `interrupted`; `settings` are
    the recommended ones, empty where the default is best; `champion` is what was proven, or led
    when it ended; `parts` tells what each of its settings does alone, as far as it ran alone."""

    schema_version: int = SCHEMA_VERSION
    reason: str
    settings: dict[str, int]
    why: str
    champion: Effects | None = None
    parts: list[Effects] = []
    failed: dict[str, str] = {}
    default_effective: Effective | None = None
    default_memory_bytes: int | None = None
    noise: float
    nodes: int
    ranks: int
    processes: int
    known: int
    seconds: float
    replay: str | None = None
    command: str = ""


def judge(race: Race, reason: str, threshold: float) -> tuple[bool, str]:
    """Whether the champion is worth it, and why or why not in words. `threshold` as in the race."""
    board, champion = race.board, race.champion
    if champion is None:
        if reason != "done":
            return False, "the race is not over: nothing is decided yet"
        return False, "no setting beats the default beyond noise"
    if race.proof_from is None or reason != "done":
        return False, "the race is not over: what leads is not proven yet"
    gains = race.proof()
    if len(gains) < PROOF_PAIRS:
        return False, "what led did not run reliably"
    raced = pooled(board, gains, _calls(board, RACED), _PROOF_CONFIDENCE)
    if raced.low <= 0 or raced.value < threshold:
        return False, (
            "what led does not beat the default beyond noise in starts of its own: "
            f"{raced.ratio.value:.3f}x ({raced.ratio.low:.3f}-{raced.ratio.high:.3f})"
        )
    for collective in _collectives(board):
        other = pooled(board, gains, _calls(board, collective))
        if collective is not RACED and other.high < 0 and other.value + raced.value < 0:
            return False, (
                f"it costs {collective.prose} more ({math.exp(other.value):.2f}x) than send/recv "
                f"gains ({math.exp(raced.value):.2f}x)"
            )
    return True, "it beats the default beyond noise in starts that had no part in choosing it"


def effects(board: Board, settings: Settings, gains: Gains, ranks: int) -> Effects:
    """What `settings` do by some gains of theirs, at least one."""
    runs = board.of(settings)
    made = next((run.effective for run in runs if run.effective is not None), None)
    sizes = {
        collective: [_size(board, gains, call) for call in _calls(board, collective)]
        for collective in _collectives(board)
    }
    return Effects(
        settings=settings.as_dict,
        overall={
            collective: Gain(*pooled(board, gains, _calls(board, collective)).ratio)
            for collective in sizes
        },
        ranges=[
            _range(board, gains, collective, group)
            for collective, points in sizes.items()
            for group in _groups(points)
        ],
        sizes=sizes,
        effective=made,
        memory_bytes=memory_bytes(settings, made, ranks),
    )


def default_effective(board: Board) -> Effective | None:
    """What NCCL makes of the default."""
    return next((run.effective for run in board.of(DEFAULT) if run.effective is not None), None)


def _collectives(board: Board) -> list[Collective]:
    return list(dict.fromkeys(collective for collective, _ in board.calls))


def _calls(board: Board, collective: Collective) -> list[Call]:
    return [call for call in board.calls if call[0] is collective]


def pooled(
    board: Board,
    gains: Gains,
    calls: Sequence[Call],
    confidence: float = 0.95,
) -> Interval:
    """The mean gain (log) over calls, one value a process; at least one of each. Fewer than four
    processes are given the noise that the defaults show."""
    values = [math.fsum(gain[call] for call in calls) / len(calls) for gain in gains]
    found = estimate(values, assumed_sd=board.noise(calls), confidence=confidence)
    assert found is not None
    return found


def _size(board: Board, gains: Gains, call: Call) -> SizeEffect:
    interval = pooled(board, gains, [call])
    sure = pooled(board, gains, [call], _LABEL_CONFIDENCE)
    effect = "same"
    if sure.low > 0 and interval.value >= LEAST_EFFECT:
        effect = "faster"
    elif sure.high < 0 and interval.value <= -LEAST_EFFECT:
        effect = "slower"
    default_us = board.default_us(call)
    return SizeEffect(
        bytes=call[1],
        default_us=default_us,
        time_us=default_us / math.exp(interval.value),
        gain=Gain(*interval.ratio),
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
    board: Board,
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
        gain=Gain(*pooled(board, gains, calls).ratio),
    )
