# SPDX-License-Identifier: Apache-2.0
"""The verdict on chunk sizes: whether to split large copies into chunks.

*Traffic* are large background messages. Other messages can run between the chunks of a large
message, so other messages wait less; but chunks may slow the traffic down. The verdict compares the
gain of the messages with the cost for the traffic. A gain is the natural log of the time with whole
messages over the time with chunks.
"""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from nccltune.analyze.stats import Interval, estimate, median, relative_spread
from nccltune.measure.engine.gains import ProcessGain
from nccltune.measure.engine.process_record import ProcessRun
from nccltune.measure.engine.settings import DEFAULT, Settings
from nccltune.measure.experiments.copies.rounds import RoundsBesideTraffic
from nccltune.measure.experiments.copies.settings import CHUNK, COPY_ENGINE
from nccltune.measure.experiments.copies.threshold import Effect, effect_of
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.model.sizes import format_bytes

_SURE = 0.99
"""Confidence needed to call messages faster or traffic slower. It is above 95 % because several
chunk sizes are compared."""


class FairnessOutcome(StrEnum):
    """The outcome of a comparison of chunk sizes.

    CHUNK    a chunk size is recommended: messages are faster, and traffic is not slower
    DEFAULT  no chunk size makes messages faster, so messages stay whole
    TRADE    a chunk size makes messages faster, but traffic may be slower; the user has to decide
    OPEN     the results are not sufficient for a decision
    """

    CHUNK = "chunk"
    DEFAULT = "default"
    TRADE = "trade"
    OPEN = "open"


class SizeTime(msgspec.Struct, frozen=True):
    """The time of messages of one size during traffic.

    `time_us` is the median over processes. `spread` is the relative spread over processes, as a
    fraction (0.02 is 2 %); None for fewer than two processes.
    """

    bytes: int
    time_us: float
    spread: float | None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one chunk size, of whole messages, or of NCCL itself.

    chunk             bytes of a chunk; 0 for whole messages, None for NCCL itself
    sizes             times of the messages during traffic
    traffic_alone_us  time of one exchange of traffic without other messages
    traffic_us        time of one exchange of traffic while other messages were sent
    messages          mean gain of messages over all sizes, compared with whole messages
    traffic           gain of traffic without other messages, compared with whole messages
    """

    name: str
    chunk: int | None
    processes: int
    sizes: list[SizeTime]
    traffic_alone_us: float | None
    traffic_us: float | None
    messages: ProcessGain | None = None
    traffic: ProcessGain | None = None
    messages_effect: Effect | None = None
    traffic_effect: Effect | None = None


class FairnessVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `sendrecv-fairness.json`: how the comparison ended.

    reason         `done`, `budget` or `interrupted`
    settings       the recommended settings; empty unless the outcome is `chunk`
    trade          if the outcome is `trade`, the settings that the user may choose; first those
                   that slow traffic down least
    traffic_bytes  bytes of each background message
    failed         settings with which a process failed, each with the reason
    carried        number of messages by carrier (NCCL or copy engine); None if unknown
    processes      number of processes that this run started
    known          number of processes taken from earlier runs
    """

    schema_version: int = SCHEMA_VERSION
    reason: str
    outcome: FairnessOutcome
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


class ChunkDecision(NamedTuple):
    """The outcome, the reason, and the settings. `settings` and `trade` are as in
    `FairnessVerdict`."""

    outcome: FairnessOutcome
    why: str
    settings: dict[str, int | str]
    trade: list[dict[str, int | str]]


def decide(rounds: RoundsBesideTraffic, floor: float) -> ChunkDecision:
    """Return the decision from the rounds so far.

    Differences below `floor` (a log) do not count.
    """
    if (error := rounds.results.failed.get(COPY_ENGINE)) is not None:
        why = f"copy engines did not run here: {error}. The same command tries again"
        return ChunkDecision(FairnessOutcome.OPEN, why, {}, [])
    if not rounds.compared:
        return ChunkDecision(
            FairnessOutcome.OPEN, "not all rounds have run: nothing is decided yet", {}, []
        )
    faster = [one for one in candidates(rounds, floor) if one.messages_effect is Effect.FASTER]
    free = [one for one in faster if one.traffic_effect in (Effect.FASTER, Effect.SAME)]
    if free:
        best = max(free, key=lambda one: _value(one.messages))
        why = f"{_words(best)}: no cost beyond {_percent(floor)}"
        return ChunkDecision(FairnessOutcome.CHUNK, why, _lines(best), [])
    if not faster:
        least = _percent(floor)
        why = f"the default stays: no chunk makes messages beside traffic faster by {least}"
        return ChunkDecision(FairnessOutcome.DEFAULT, why, {}, [])
    faster.sort(key=lambda one: -_value(one.traffic))
    why = "; ".join(_words(one) for one in _ends(faster))
    return ChunkDecision(
        FairnessOutcome.TRADE,
        f"{why}. The default stays unless the messages matter more to you",
        {},
        [_lines(one) for one in faster],
    )


def candidates(rounds: RoundsBesideTraffic, floor: float) -> list[Candidate]:
    """Return the results of NCCL, of whole messages and of each chunk size that has not failed.

    The list is empty if copy engines failed or no round is complete.
    """
    complete = rounds.complete()
    if not complete or COPY_ENGINE in rounds.results.failed:
        return []
    found = []
    for item in (DEFAULT, COPY_ENGINE, *rounds.chunks):
        if item in rounds.results.failed:
            continue
        runs = [one[item] for one in complete]
        candidate = Candidate(
            name=_name(item),
            chunk=None if item == DEFAULT else item.numbers.get(CHUNK, 0),
            processes=len(runs),
            sizes=[
                SizeTime(
                    call[1],
                    median(times := [run.times_us[call] for run in runs]),
                    relative_spread(times),
                )
                for call in rounds.results.calls
            ],
            traffic_alone_us=_median(runs, alone_us),
            traffic_us=_median(runs, _beside_us),
        )
        if item in rounds.chunks:
            candidate = _compared(candidate, item, rounds, floor)
        found.append(candidate)
    return found


def _compared(
    candidate: Candidate, item: Settings, rounds: RoundsBesideTraffic, floor: float
) -> Candidate:
    """Return the candidate with its gains and effects, compared with whole messages in each
    round."""
    complete, calls = rounds.complete(), rounds.results.calls
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
    noise = rounds.results.noise(calls)
    mean, sure = (estimate(messages, assumed_sd=noise, confidence=c) for c in (0.95, _SURE))
    assert mean is not None
    assert sure is not None
    faster = sure.low > 0 and sure.value >= floor
    cost, sure_cost = (estimate(traffic, assumed_sd=noise, confidence=c) for c in (0.95, _SURE))
    return msgspec.structs.replace(
        candidate,
        messages=ProcessGain(*mean.ratio),
        messages_effect=Effect.FASTER if faster else _no_gain(mean, sure, floor),
        traffic=ProcessGain(*cost.ratio) if cost is not None else None,
        traffic_effect=effect_of(cost, sure_cost, floor)
        if cost is not None and sure_cost is not None
        else Effect.UNCLEAR,
    )


def _no_gain(mean: Interval, sure: Interval, floor: float) -> Effect:
    """Return the effect of a gain that is not faster with the confidence `_SURE`.

    A gain that is faster only with 95 % confidence is unclear.
    """
    effect = effect_of(mean, sure, floor)
    return Effect.UNCLEAR if effect is Effect.FASTER else effect


def alone_us(run: ProcessRun) -> float | None:
    """Return the median time in us of an exchange of traffic without other messages, in one
    process.

    Return None if the process has no such time.
    """
    return median(list(run.traffic_alone_us.values())) if run.traffic_alone_us else None


def _beside_us(run: ProcessRun) -> float | None:
    return median(list(run.traffic_us.values())) if run.traffic_us else None


def _median(runs: Sequence[ProcessRun], what: Callable[[ProcessRun], float | None]) -> float | None:
    known = [value for run in runs if (value := what(run)) is not None]
    return median(known) if known else None


def _name(item: Settings) -> str:
    if item == DEFAULT:
        return "native"
    chunk = item.numbers.get(CHUNK)
    return "whole messages" if chunk is None else format_bytes(chunk)


def _lines(candidate: Candidate) -> dict[str, int | str]:
    return {CHUNK: candidate.chunk or 0}


def _ends(sorted_by_cost: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidate that slows traffic down least and the one with the fastest messages.

    If both are the same, return it once.
    """
    fastest = max(sorted_by_cost, key=lambda one: _value(one.messages))
    cheapest = sorted_by_cost[0]
    return [cheapest] if fastest is cheapest else [cheapest, fastest]


def _value(gain: ProcessGain | None) -> float:
    return gain.gain if gain is not None else 0.0


def _words(candidate: Candidate) -> str:
    """Return a clause on the gain of messages and the cost for traffic with a chunk size."""
    return (
        f"with {CHUNK}={candidate.chunk} messages beside traffic are "
        f"{_value(candidate.messages):.2f}x as fast, and traffic alone runs at "
        f"{100 * _value(candidate.traffic):.3g} % of its rate"
    )


def _percent(floor: float) -> str:
    return f"{100 * math.expm1(floor):.2g} %"
