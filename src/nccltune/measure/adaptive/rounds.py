# SPDX-License-Identifier: Apache-2.0
"""Which sizes get further rounds: where the leader is in doubt, or where a rule is not proven."""

import math
from collections.abc import Mapping, Sequence

from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive.size_state import (
    SizeState,
    SizeStates,
    axis_shares,
    choice_ranges,
    gain_left,
)
from nccltune.measure.bench.round_request import FurtherRounds
from nccltune.model.choice import DEFAULT, AnyChoice, Choice

SETTLE_ROUNDS = 8
"""The most rounds for deciding which choice leads. Halving an error takes four times the rounds."""
PROOF_ROUNDS = (4, 6, 9, 12, 16)
"""Rounds after which a proof is tried. Trimmed means lose a degree of freedom at 5 and at 10
rounds."""
MOST_ROUNDS = 16
"""The most rounds at one size, for deciding which choice leads and for proofs."""
RULE_PRICE = 0.05
"""Log latency, summed over sizes, that a range must save to be worth a proof. The rule search
requires about this much of a rule."""
_SMALL_STAKE = 0.1
"""Share of the threshold: a choice with a smaller stake needs no further timing."""
_LEAST_WORTH = 0.25
"""Share of the threshold. A range is worth a proof only if the rules miss more than this in it,
weighted with its share of the size axis."""
_PROOF_COST = 0.2
"""Share of the time spent so far that a proof may cost, for each threshold of gain that it
brings."""
_START_US = 3e6
"""Time of a run before it measures, in us; part of the time spent."""
_LEAST_PROOF = 1.5
"""In standard errors. A gain with a smaller expected ratio to its error will not be proven soon."""
_LEAST_US = 2e3
"""About the least time of one timing in us, for comparing sizes."""
_PROOF_TIMINGS = 3
"""Timings in a round of one choice: its own and two of the default."""


def unsettled(
    states: SizeStates, timings: Timings, rounds: Mapping[int, int], threshold: float
) -> list[int]:
    """Return the sizes for one more round, those with the most benefit for their cost first.

    The gain still to be found exceeds `threshold` (a log) by some amount. Enough sizes are returned
    to remove about half of it. `rounds` is how many rounds each size had.
    """
    excess = gain_left(states) - threshold
    share = axis_shares(states)
    brings = {
        # A stake is proportional to the standard error.
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
    """Return the choices that take part in one more round at a size."""
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
    decided: Mapping[int, AnyChoice],
    rounds: Mapping[int, int],
    threshold: float,
) -> dict[int, FurtherRounds]:
    """Return rounds for ranges whose rules are not proven yet.

    There are two kinds of ranges:

    - The range of a rule in `decided`, until its noise is known.
    - A range where the leader has a gain that these rules do not use.
    """
    wanted: dict[int, FurtherRounds] = {}
    for choice, covered in choice_ranges(states, decided):
        wanted.update(_lacking(choice, covered, timings, rounds, PROOF_ROUNDS[0]))
    share = axis_shares(states)
    spent = spent_us(timings)
    for choice, covered in choice_ranges(
        states, {size: state.best for size, state in states.items()}
    ):
        if math.fsum(max(0.0, state.gain - threshold) for state in covered) < RULE_PRICE:
            continue
        missed = math.fsum(share[state.bytes] * _missed(state, decided) for state in covered)
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
    """Return the rounds missing until a range may be proven; none where its gain is too
    uncertain."""
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
    """Return the rounds missing until all sizes of a range have `target` rounds of `choice` in
    common.

    The rule search compares round by round over the whole range. Rounds that most sizes already
    have are preferred. A size gets only rounds that it has not passed yet.
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
    """Return, by size, the rounds that have timings of both `choice` and the default."""
    return {state.bytes: set(timings.log_gains(state.bytes, choice)) for state in states}


def _common(measured: Mapping[int, set[int]]) -> set[int]:
    first, *others = measured.values()
    return first.intersection(*others)


def _missed(state: SizeState, decided: Mapping[int, AnyChoice]) -> float:
    """Return by how much the leader's gain exceeds the gain of the rules' choice at a size."""
    chosen = state.estimate(decided.get(state.bytes, DEFAULT))
    return state.gain - (chosen.gain if chosen else 0.0)


def timing_us(timings: Timings, size: int) -> float:
    """Return about how long a timing takes at a size, in us, for comparing sizes."""
    us = timings.median(size, DEFAULT) or 0.0
    return us + max(_LEAST_US, us)


def spent_us(timings: Timings) -> float:
    """Return about how long measuring `timings` took, including the start, in us."""
    return _START_US + math.fsum(
        timing_us(timings, size) * sum(len(series) for series in by_choice.values())
        for size, by_choice in timings.cells.items()
    )
