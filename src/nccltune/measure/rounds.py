# SPDX-License-Identifier: Apache-2.0
"""Which sizes deserve further rounds: where the leader is in doubt, where a rule is not proven."""

import math
from collections.abc import Mapping, Sequence

from nccltune.analyze.timings import Timings
from nccltune.measure.ask import Repeat
from nccltune.measure.view import SizeView, Views, gain_left, runs, shares
from nccltune.model.choice import DEFAULT, AnyChoice, Choice

SETTLE_ROUNDS = 8
"""The most rounds for finding out who leads; halving a doubt takes four times the rounds."""
PROOF_ROUNDS = (4, 6, 9, 12, 16)
"""Rounds at which a proof is tried: trimmed means lose a degree of freedom at 5 and at 10."""
MOST_ROUNDS = 16
"""At one size, for finding out who leads and for proofs."""
RULE_PRICE = 0.05
"""Log latency, summed over sizes, that a range must save to be worth proving: about what the rule
search asks of a rule."""
_SMALL_STAKE = 0.1
"""Of the threshold: a choice with less at stake needs no further timing."""
_LEAST_WORTH = 0.25
"""Of the threshold: what the rules miss in a range, as a share of the whole axis, is below this not
worth a proof."""
_PROOF_COST = 0.2
"""Of the time spent so far: what a proof may cost for each threshold that it is worth."""
_START_US = 3e6
"""What a run takes besides measuring: it is part of what was spent."""
_LEAST_PROOF = 1.5
"""Standard errors: a gain that would be known less well than this is not on its way to a proof."""
_LEAST_US = 2e3
"""About what a timing takes at least, for comparing sizes."""
_PROOF_TIMINGS = 3
"""In a round of one choice: its own and the default's two."""


def unsettled(
    views: Views, timings: Timings, rounds: Mapping[int, int], threshold: float
) -> list[int]:
    """The sizes for one more round: those that bring most for what they cost, as many as take away
    about half of what the gain still to be found is above `threshold` (a log).

    `rounds` is how many rounds each size had.
    """
    excess = gain_left(views) - threshold
    share = shares(views)
    brings = {
        # A stake is in proportion to the standard error.
        size: share[size] * view.stake * (1 - math.sqrt(rounds[size] / (rounds[size] + 1)))
        for size, view in views.items()
        if view.stake > threshold / 2 and rounds[size] < SETTLE_ROUNDS
    }
    ordered = sorted(brings, key=lambda size: brings[size] / timing_us(timings, size), reverse=True)
    found: list[int] = []
    while ordered and math.fsum(brings[size] for size in found) < excess / 2:
        found.append(ordered.pop(0))
    return found


def worth_repeating(view: SizeView, threshold: float) -> list[Choice]:
    """The choices that take part in one more round at a size."""
    wanted = set(view.unsure)
    wanted.update(
        choice
        for choice, stake in view.stakes.items()
        if isinstance(choice, Choice) and stake > _SMALL_STAKE * threshold
    )
    if isinstance(view.best, Choice):
        wanted.add(view.best)
    return sorted(wanted, key=lambda choice: choice.label)


def unproven(
    views: Views,
    timings: Timings,
    decided: Mapping[int, AnyChoice],
    rounds: Mapping[int, int],
    threshold: float,
) -> dict[int, Repeat]:
    """Rounds for the ranges of the rules in `decided` until their noise is known, and for ranges in
    which the leader gains something that these rules do not take."""
    wanted: dict[int, Repeat] = {}
    for choice, covered in runs(views, decided):
        wanted.update(_lacking(choice, covered, timings, rounds, PROOF_ROUNDS[0]))
    share = shares(views)
    spent = spent_us(timings)
    for choice, covered in runs(views, {size: view.best for size, view in views.items()}):
        if math.fsum(max(0.0, view.gain - threshold) for view in covered) < RULE_PRICE:
            continue
        missed = math.fsum(share[view.bytes] * _missed(view, decided) for view in covered)
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
    choice: Choice, views: Sequence[SizeView], timings: Timings, rounds: Mapping[int, int]
) -> dict[int, Repeat]:
    """What is missing until a range may be proven; nothing where the gain is too much in doubt."""
    common = len(_common(_measured(choice, views, timings)))
    target = next((number for number in PROOF_ROUNDS if number > common), common)
    more = target - common
    estimates = [view.estimates[choice] for view in views]
    error = math.sqrt(math.fsum(e.error**2 * e.n / (e.n + more) for e in estimates))
    if math.fsum(item.gain for item in estimates) < _LEAST_PROOF * error:
        return {}
    return _lacking(choice, views, timings, rounds, target)


def _lacking(
    choice: Choice,
    views: Sequence[SizeView],
    timings: Timings,
    rounds: Mapping[int, int],
    target: int,
) -> dict[int, Repeat]:
    """What is missing until all sizes of a range have `target` rounds of `choice` in common: the
    rule search compares round by round, over the whole range.

    Rounds that most of the sizes have are filled up at the others, where they are still to come.
    """
    measured = _measured(choice, views, timings)
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
        size: Repeat((choice,), missing)
        for size, had in measured.items()
        if (missing := tuple(sorted(set(wanted) - had)))
    }


def _measured(choice: Choice, views: Sequence[SizeView], timings: Timings) -> dict[int, set[int]]:
    """By size: the rounds in which `choice` stands beside the default."""
    return {view.bytes: set(timings.log_gains(view.bytes, choice)) for view in views}


def _common(measured: Mapping[int, set[int]]) -> set[int]:
    first, *others = measured.values()
    return first.intersection(*others)


def _missed(view: SizeView, decided: Mapping[int, AnyChoice]) -> float:
    """What the leader gains over what the rules choose at a size."""
    chosen = view.estimate(decided.get(view.bytes, DEFAULT))
    return view.gain - (chosen.gain if chosen else 0.0)


def timing_us(timings: Timings, size: int) -> float:
    """About what a timing takes at a size, for comparing sizes."""
    us = timings.median(size, DEFAULT) or 0.0
    return us + max(_LEAST_US, us)


def spent_us(timings: Timings) -> float:
    """About how long it took to come by `timings`, starting included."""
    return _START_US + math.fsum(
        timing_us(timings, size) * sum(len(series) for series in by_choice.values())
        for size, by_choice in timings.cells.items()
    )
