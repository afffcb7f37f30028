# SPDX-License-Identifier: Apache-2.0
"""Whether copies are to be cut so that other messages come between: what chunks gain messages
beside traffic, and what they cost the traffic."""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from nccltune.analyze.stats import Interval, estimate, median, relative_spread
from nccltune.measure.p2p.runs import Run
from nccltune.measure.p2p.settings import DEFAULT, Settings
from nccltune.measure.p2p.verdict import Gain
from nccltune.measure.sendrecv.rounds import Rounds
from nccltune.measure.sendrecv.settings import CHUNK, COPY_ENGINE
from nccltune.measure.sendrecv.threshold import Effect, effect_of
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.model.sizes import format_bytes

_SURE = 0.99
"""For calling messages faster and traffic slower: some chunks are asked."""


class Outcome(StrEnum):
    """`CHUNK` is recommended; `TRADE`: one makes messages faster and costs traffic, which only its
    user can weigh; `OPEN`: nothing is decided yet."""

    CHUNK = "chunk"
    DEFAULT = "default"
    TRADE = "trade"
    OPEN = "open"


class SizeTime(msgspec.Struct, frozen=True):
    """One size beside traffic: the median over processes in us, and how far they spread (0.02 is
    2 %; None for fewer than two)."""

    bytes: int
    time_us: float
    spread: float | None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """What a setting does. `chunk` in bytes is None for NCCL itself and 0 for whole messages, which
    the gains are over: `messages` in the mean over all sizes, `traffic` of an exchange by itself.
    `traffic_alone_us` and `traffic_us` are of one exchange by itself and while messages went."""

    name: str
    chunk: int | None
    processes: int
    sizes: list[SizeTime]
    traffic_alone_us: float | None
    traffic_us: float | None
    messages: Gain | None = None
    traffic: Gain | None = None
    messages_effect: Effect | None = None
    traffic_effect: Effect | None = None


class FairnessVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """`sendrecv-fairness.json`: how the comparison ended. `reason` is `done`, `budget` or
    `interrupted`; `settings` are the recommended ones, empty unless the outcome is `chunk`; `trade`
    are lines that its user may set, the cheapest for traffic first."""

    schema_version: int = SCHEMA_VERSION
    reason: str
    outcome: Outcome
    settings: dict[str, int | str]
    trade: list[dict[str, int | str]]
    decided: bool
    why: str
    traffic_bytes: int
    noise_floor: float
    candidates: list[Candidate]
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
    """What to set and why."""

    outcome: Outcome
    why: str
    settings: dict[str, int | str]
    trade: list[dict[str, int | str]]


def decide(rounds: Rounds, floor: float) -> Decision:
    """What is recommended by the rounds that have run; differences below `floor` (log) are none."""
    if (error := rounds.board.failed.get(COPY_ENGINE)) is not None:
        why = f"copy engines did not run here: {error}. The same command tries again"
        return Decision(Outcome.OPEN, why, {}, [])
    if not rounds.compared:
        return Decision(Outcome.OPEN, "not all rounds have run: nothing is decided yet", {}, [])
    faster = [one for one in candidates(rounds, floor) if one.messages_effect is Effect.FASTER]
    free = [one for one in faster if one.traffic_effect in (Effect.FASTER, Effect.SAME)]
    if free:
        best = max(free, key=lambda one: _value(one.messages))
        why = f"{_words(best)}: no cost beyond {_percent(floor)}"
        return Decision(Outcome.CHUNK, why, _lines(best), [])
    if not faster:
        least = _percent(floor)
        why = f"the default stays: no chunk makes messages beside traffic faster by {least}"
        return Decision(Outcome.DEFAULT, why, {}, [])
    faster.sort(key=lambda one: -_value(one.traffic))
    why = "; ".join(_words(one) for one in _ends(faster))
    return Decision(
        Outcome.TRADE,
        f"{why}. The default stays unless you say that the former counts more",
        {},
        [_lines(one) for one in faster],
    )


def candidates(rounds: Rounds, floor: float) -> list[Candidate]:
    """What is known of each that has not failed; nothing where copy engines did not run."""
    complete = rounds.complete()
    if not complete or COPY_ENGINE in rounds.board.failed:
        return []
    found = []
    for item in (DEFAULT, COPY_ENGINE, *rounds.chunks):
        if item in rounds.board.failed:
            continue
        runs = [one[item] for one in complete]
        candidate = Candidate(
            name=_name(item),
            chunk=None if item == DEFAULT else item.as_dict.get(CHUNK, 0),
            processes=len(runs),
            sizes=[
                SizeTime(
                    call[1],
                    median(times := [run.times_us[call] for run in runs]),
                    relative_spread(times),
                )
                for call in rounds.board.calls
            ],
            traffic_alone_us=_median(runs, alone_us),
            traffic_us=_median(runs, _beside_us),
        )
        if item in rounds.chunks:
            candidate = _compared(candidate, item, rounds, floor)
        found.append(candidate)
    return found


def _compared(candidate: Candidate, item: Settings, rounds: Rounds, floor: float) -> Candidate:
    """With its gains over whole messages, one of each round."""
    complete, calls = rounds.complete(), rounds.board.calls
    messages = [
        math.fsum(
            math.log(one[COPY_ENGINE].times_us[call] / one[item].times_us[call]) for call in calls
        )
        / len(calls)
        for one in complete
    ]
    traffic = [
        math.log(whole / cut)
        for one in complete
        if (whole := alone_us(one[COPY_ENGINE])) and (cut := alone_us(one[item]))
    ]
    noise = rounds.board.noise(calls)
    mean, sure = (estimate(messages, assumed_sd=noise, confidence=c) for c in (0.95, _SURE))
    assert mean is not None
    assert sure is not None
    faster = sure.low > 0 and sure.value >= floor
    cost, sure_cost = (estimate(traffic, assumed_sd=noise, confidence=c) for c in (0.95, _SURE))
    return msgspec.structs.replace(
        candidate,
        messages=Gain(*mean.ratio),
        messages_effect=Effect.FASTER if faster else _no_gain(mean, sure, floor),
        traffic=Gain(*cost.ratio) if cost is not None else None,
        traffic_effect=effect_of(cost, sure_cost, floor)
        if cost is not None and sure_cost is not None
        else Effect.UNCLEAR,
    )


def _no_gain(mean: Interval, sure: Interval, floor: float) -> Effect:
    """Faster is asked of every chunk, and therefore with 99 %."""
    effect = effect_of(mean, sure, floor)
    return Effect.UNCLEAR if effect is Effect.FASTER else effect


def alone_us(run: Run) -> float | None:
    """An exchange of traffic by itself, in a process."""
    return median(list(run.traffic_alone_us.values())) if run.traffic_alone_us else None


def _beside_us(run: Run) -> float | None:
    return median(list(run.traffic_us.values())) if run.traffic_us else None


def _median(runs: Sequence[Run], what: Callable[[Run], float | None]) -> float | None:
    known = [value for run in runs if (value := what(run)) is not None]
    return median(known) if known else None


def _name(item: Settings) -> str:
    if item == DEFAULT:
        return "native"
    chunk = item.as_dict.get(CHUNK)
    return "whole messages" if chunk is None else format_bytes(chunk)


def _lines(candidate: Candidate) -> dict[str, int | str]:
    return {CHUNK: candidate.chunk or 0}


def _ends(sorted_by_cost: Sequence[Candidate]) -> list[Candidate]:
    """The cheapest, and the fastest where it is another."""
    fastest = max(sorted_by_cost, key=lambda one: _value(one.messages))
    cheapest = sorted_by_cost[0]
    return [cheapest] if fastest is cheapest else [cheapest, fastest]


def _value(gain: Gain | None) -> float:
    return gain.gain if gain is not None else 0.0


def _words(candidate: Candidate) -> str:
    """What a chunk gains and costs."""
    return (
        f"with {CHUNK}={candidate.chunk} messages beside traffic are "
        f"{_value(candidate.messages):.2f}x as fast, and traffic by itself goes at "
        f"{100 * _value(candidate.traffic):.3g} % of its rate"
    )


def _percent(floor: float) -> str:
    return f"{100 * math.expm1(floor):.2g} %"
