# SPDX-License-Identifier: Apache-2.0
"""Choose the sizes that get further rounds: the leader is in doubt, or a rule is not proven.

The *stake* of a size is the gain that its leader may still miss (`SizeState.stake`). A *range* is a
run of neighbouring sizes with the same choice.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive.size_state import (
    SizeAxis,
    SizeState,
    SizeStates,
    choice_ranges,
    gain_left,
    log_axis,
)
from nccltune.measure.bench.conversation import FurtherRounds
from nccltune.model.choice import DEFAULT, AnyChoice, Choice

SETTLE_ROUNDS = 8
"""The most rounds to decide which choice leads: half an error needs four times the rounds."""
PROOF_ROUNDS = (4, 6, 9, 12, 16)
"""Numbers of rounds after which the rule search tries to prove a rule.

With 5 and 10 the trimmed mean discards one more value at each end than with 4 and 9.
"""
MOST_ROUNDS = 16
"""The most rounds at one size for all stages but channel trials."""
RULE_PRICE = 0.05
"""Summed gains beyond the threshold (logs) from which a range is worth a proof, as a rule is."""
_SMALL_STAKE = 0.1
"""Share of the threshold: choices of smaller expected loss get no further timing."""
_LEAST_WORTH = 0.25
"""Share of the threshold: the weighted gain that the rules must miss for a proof."""
_PROOF_COST = 0.2
"""Share of the time spent so far that a proof of one threshold's gain may cost."""
_START_US = 3e6
"""Assumed time from the start of a run to its first measurement, in us. It counts as time spent."""
_LEAST_PROOF = 1.5
"""The least ratio of gain to expected standard error with which a proof can succeed."""
_LEAST_US = 2e3
"""About the shortest time of all calls of one timing, in us. It is used only to compare sizes."""
_PROOF_TIMINGS = 3
"""Timings in one round with one choice: one of the choice and two of the default."""


class SizeDecisions(NamedTuple):
    """The choices of the present rules, and the sizes with a rule that is not sure yet."""

    choices: Mapping[int, AnyChoice]
    candidates: frozenset[int] = frozenset()


def unsettled(
    states: SizeStates,
    timings: Timings,
    rounds: Mapping[int, int],
    threshold: float,
    axis: SizeAxis | None = None,
) -> list[int]:
    """Return the sizes for one more round, ordered by benefit for cost.

    A round at each removes about half of what `gain_left` exceeds `threshold` (a log) by. `rounds`
    is the number of rounds that each size has had.
    """
    axis = axis or log_axis(states)
    share, excess = axis.share, gain_left(states, axis) - threshold
    brings = {
        # A stake falls like the standard error: with the square root of the number of rounds.
        size: share[size] * state.stake * (1 - math.sqrt(rounds[size] / (rounds[size] + 1)))
        for size, state in states.items()
        if state.stake > threshold / 2 and rounds[size] < SETTLE_ROUNDS
    }
    ordered = sorted(brings, key=lambda size: brings[size] / timing_us(timings, size), reverse=True)
    found: list[int] = []
    while ordered and math.fsum(brings[size] for size in found) < excess / 2:
        found.append(ordered.pop(0))
    return found


def worth_repeating(state: SizeState, threshold: float) -> list[Choice]:
    """Return the choices to time again in the next round of a size."""
    wanted = set(state.unsure)
    wanted.update(
        choice
        for choice, stake in state.stakes.items()
        if isinstance(choice, Choice) and stake > _SMALL_STAKE * threshold
    )
    if isinstance(state.best, Choice):
        wanted.add(state.best)
    return sorted(wanted, key=lambda choice: choice.label)


def unproven(
    states: SizeStates,
    timings: Timings,
    decided: SizeDecisions,
    rounds: Mapping[int, int],
    threshold: float,
    axis: SizeAxis | None = None,
) -> dict[int, FurtherRounds]:
    """Return, by size, the rounds that are still needed to be sure of rules.

    They are for the range of a present rule until it is sure and shows its noise, and for a range
    where the leader has a gain that the present rules do not use.
    """
    wanted: dict[int, FurtherRounds] = {}
    for choice, covered in choice_ranges(states, decided.choices):
        wanted.update(_lacking(choice, covered, timings, rounds, PROOF_ROUNDS[0]))
        if any(state.bytes in decided.candidates for state in covered):
            wanted.update(_next_proof(choice, covered, timings, rounds))
    share = (axis or log_axis(states)).share
    spent = spent_us(timings)
    for choice, covered in choice_ranges(
        states, {size: state.best for size, state in states.items()}
    ):
        if math.fsum(max(0.0, state.gain - threshold) for state in covered) < RULE_PRICE:
            continue
        missed = math.fsum(
            share[state.bytes] * _missed(state, decided.choices) for state in covered
        )
        worth = missed / threshold
        lacking = _next_proof(choice, covered, timings, rounds)
        cost_us = math.fsum(
            _PROOF_TIMINGS * len(repeat.rounds) * timing_us(timings, size)
            for size, repeat in lacking.items()
        )
        if worth > _LEAST_WORTH and cost_us < _PROOF_COST * worth * spent:
            wanted.update(lacking)
    return wanted


def _next_proof(
    choice: Choice, states: Sequence[SizeState], timings: Timings, rounds: Mapping[int, int]
) -> dict[int, FurtherRounds]:
    """Return, by size, the rounds missing until the next proof; empty if it would fail."""
    common = len(_common(_measured(choice, states, timings)))
    target = next((number for number in PROOF_ROUNDS if number > common), common)
    more = target - common
    estimates = [state.estimates[choice] for state in states]
    error = math.sqrt(math.fsum(e.error**2 * e.n / (e.n + more) for e in estimates))
    if math.fsum(item.gain for item in estimates) < _LEAST_PROOF * error:
        return {}
    return _lacking(choice, states, timings, rounds, target)


def _lacking(
    choice: Choice,
    states: Sequence[SizeState],
    timings: Timings,
    rounds: Mapping[int, int],
    target: int,
) -> dict[int, FurtherRounds]:
    """Return, by size, the rounds missing until all have `target` common rounds of `choice`.

    The rule search uses only common rounds. The cheapest missing ones are chosen, after the last
    round of a size. Empty if `target` is reached already or cannot be reached.
    """
    measured = _measured(choice, states, timings)
    common = _common(measured)
    costs = {
        number: math.fsum(
            timing_us(timings, size) for size, had in measured.items() if number not in had
        )
        for number in range(MOST_ROUNDS)
        if number not in common
        and all(number in had or number >= rounds[size] for size, had in measured.items())
    }
    wanted = sorted(costs, key=lambda number: (costs[number], number))[: target - len(common)]
    if len(common) >= target or len(common) + len(wanted) < target:
        return {}
    return {
        size: FurtherRounds((choice,), missing)
        for size, had in measured.items()
        if (missing := tuple(sorted(set(wanted) - had)))
    }


def _measured(choice: Choice, states: Sequence[SizeState], timings: Timings) -> dict[int, set[int]]:
    return {state.bytes: set(timings.log_gains(state.bytes, choice)) for state in states}


def _common(measured: Mapping[int, set[int]]) -> set[int]:
    first, *others = measured.values()
    return first.intersection(*others)


def _missed(state: SizeState, decided: Mapping[int, AnyChoice]) -> float:
    """Return by how much the leader gains more than the choice of the rules."""
    chosen = state.estimate(decided.get(state.bytes, DEFAULT))
    return state.gain - (chosen.gain if chosen else 0.0)


def timing_us(timings: Timings, size: int) -> float:
    """Return roughly how long one timing with all its calls takes, in us, to compare sizes."""
    us = timings.median(size, DEFAULT) or 0.0
    return us + max(_LEAST_US, us)


def spent_us(timings: Timings) -> float:
    """Return about how long the run took to make these timings, including its start, in us."""
    return _START_US + math.fsum(
        timing_us(timings, size) * sum(len(series) for series in by_choice.values())
        for size, by_choice in timings.cells.items()
    )
