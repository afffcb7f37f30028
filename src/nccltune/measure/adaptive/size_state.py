# SPDX-License-Identifier: Apache-2.0
"""What is known at every measured size: the leader, the dropped choices, and the remaining
stake."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive.estimates import Estimate, estimates, expected_loss
from nccltune.model.choice import DEFAULT, AnyChoice, Choice

FAR_BEHIND = 0.4
"""Log gain: for a choice this far behind the best, one timing is enough if the neighbouring sizes
agree."""
_EXACT = Estimate(0.0, 0.0, 0)
_SHARED = 2 / 3
"""Variance of the difference of two gains, relative to the sum of their variances. Both gains use
the same timings of the default, so part of the noise cancels."""
_BEYOND = math.log(2) / 2
"""Half an octave."""


class SizeState(NamedTuple):
    """What is known at one size; gains are natural logs of default over choice time.

    estimates  every choice measured here
    alive      choices that can still win, without own channel count or chunk size
    best       the leader; `gain` is its gain, 0 for the default
    stakes     for each rival, by how much it may be better than the leader on average
    unsure     choices that need another timing: one timing alone would decide about them, or two
               timings contradict each other
    """

    bytes: int
    rounds: int
    estimates: Mapping[Choice, Estimate]
    alive: frozenset[Choice]
    best: AnyChoice
    gain: float
    stakes: Mapping[AnyChoice, float]
    unsure: frozenset[Choice]

    @property
    def stake(self) -> float:
        """Return the average gain that complete knowledge about this size would still bring.

        Only one rival can be the best, so the value lies between the largest stake and the sum of
        all stakes. For independent rivals with equal stakes the mean of the maximum grows about
        like this.
        """
        return math.pow(math.fsum(stake**1.5 for stake in self.stakes.values()), 1 / 1.5)

    @property
    def beats_default(self) -> bool:
        """Return whether the leader is a choice that beats the default with confidence."""
        return isinstance(self.best, Choice) and self.estimates[self.best].low > 0

    def estimate(self, choice: AnyChoice) -> Estimate | None:
        """Return the gain of `choice` here: exactly 0 for the default, None where not measured."""
        return self.estimates.get(choice) if isinstance(choice, Choice) else _EXACT

    def lead(self, choice: AnyChoice, over: AnyChoice) -> float | None:
        """Return by how much `choice` is certainly faster than `over` here, as a log.

        This is the lead less two standard errors. It is infinite where `over` was not measured, and
        None where `choice` was not measured.
        """
        if self.estimate(choice) is None:
            return None
        if self.estimate(over) is None:
            return math.inf
        lead, error = self.difference(choice, over)
        return lead - 2 * error

    def difference(self, choice: AnyChoice, over: AnyChoice) -> tuple[float, float]:
        """Return by how much `choice` is faster than `over` here, as a log, and the standard error.

        Both must have been measured.
        """
        mine, other = self.estimate(choice), self.estimate(over)
        assert mine is not None
        assert other is not None
        error = math.sqrt(_SHARED * (mine.error**2 + other.error**2))
        return mine.gain - other.gain, error


SizeStates = dict[int, SizeState]


def size_states(
    timings: Timings,
    toll: float,
    excluded: Mapping[int, Collection[Choice]],
    same: Mapping[int, Collection[Choice]],
) -> SizeStates:
    """Return the state of every size that has timings of the default, in rising order.

    A choice must gain more than `toll` (a log) to be preferred to the default. `excluded` are
    choices that cannot run at a size. `same` are choices that run exactly what the default runs
    there.
    """
    found = estimates(timings)
    sizes = sorted(found)
    for size in sizes:
        for choice in excluded.get(size, ()):
            found[size].pop(choice, None)
        for choice in same.get(size, ()):
            if choice in found[size]:
                found[size][choice] = _EXACT._replace(n=found[size][choice].n)
    ordered = [found[size] for size in sizes]
    return {
        size: _state(size, len(_rounds(timings, size)), ordered, place, toll)
        for place, size in enumerate(sizes)
    }


def gain_left(states: SizeStates) -> float:
    """Return the gain still to be found: the mean stake over the size axis (log bytes)."""
    share = axis_shares(states)
    return math.fsum(share[size] * state.stake for size, state in states.items())


def axis_shares(states: Collection[int]) -> dict[int, float]:
    """Return the share of the size axis (log bytes) that each size represents; the sum is 1.

    The first and the last size also represent half an octave outside the range, because programs
    also use other sizes.
    """
    logs = [math.log(size) for size in states]
    if not logs:
        return {}
    between = ((a + b) / 2 for a, b in pairwise(logs))
    edges = [logs[0] - _BEYOND, *between, logs[-1] + _BEYOND]
    return {
        size: (high - low) / (edges[-1] - edges[0])
        for size, (low, high) in zip(states, pairwise(edges), strict=True)
    }


def choice_ranges(
    states: SizeStates, chosen: Mapping[int, AnyChoice]
) -> Iterator[tuple[Choice, list[SizeState]]]:
    """Yield each run of neighbouring sizes with the same choice, except those of the default."""
    current: list[SizeState] = []
    for size, state in states.items():
        if current and chosen.get(size) != chosen.get(current[-1].bytes):
            yield from _run(chosen, current)
            current = []
        current.append(state)
    yield from _run(chosen, current)


def _run(
    chosen: Mapping[int, AnyChoice], states: list[SizeState]
) -> Iterator[tuple[Choice, list[SizeState]]]:
    choice = chosen.get(states[0].bytes) if states else None
    if isinstance(choice, Choice):
        yield choice, states


def _rounds(timings: Timings, size: int) -> set[int]:
    return {round_ for round_, _ in timings.series(size, DEFAULT)}


def _state(
    size: int,
    rounds: int,
    ordered: Sequence[Mapping[Choice, Estimate]],
    place: int,
    toll: float,
) -> SizeState:
    here = {
        choice: estimate
        for choice, estimate in ordered[place].items()
        if choice == choice.without_channels()
    }
    bar = max([0.0, *(estimate.low for estimate in here.values())])
    beaten = {choice for choice, estimate in here.items() if estimate.high < bar}
    unsure = {
        choice
        for choice in beaten
        if here[choice].n == 1 and not _far_behind(choice, ordered, place, bar)
    }
    alive = frozenset(here.keys() - (beaten - unsure))
    best: AnyChoice = DEFAULT
    gain = 0.0
    for choice in sorted(alive, key=lambda choice: choice.label):
        if here[choice].gain - toll > (gain - toll if best != DEFAULT else 0.0):
            best, gain = choice, here[choice].gain
    if isinstance(best, Choice) and here[best].n == 1:
        unsure.add(best)
    unsure.update(choice for choice in alive if here[choice].torn)
    stakes = _stakes(here, alive, best, toll)
    return SizeState(
        bytes=size,
        rounds=rounds,
        estimates=ordered[place],
        alive=alive,
        best=best,
        gain=gain,
        stakes=stakes,
        unsure=frozenset(unsure),
    )


def _far_behind(
    choice: Choice, ordered: Sequence[Mapping[Choice, Estimate]], place: int, bar: float
) -> bool:
    """Return whether one timing is enough to drop `choice`.

    It must be far behind at this size, and behind at the measured neighbouring sizes as well.
    """
    if ordered[place][choice].gain > bar - FAR_BEHIND:
        return False
    neighbours = [
        ordered[other][choice].gain
        < max(0.0, *(item.gain for item in ordered[other].values())) - FAR_BEHIND / 2
        for other in (place - 1, place + 1)
        if 0 <= other < len(ordered) and choice in ordered[other]
    ]
    return bool(neighbours) and all(neighbours)


def _stakes(
    here: Mapping[Choice, Estimate], alive: Collection[Choice], best: AnyChoice, toll: float
) -> dict[AnyChoice, float]:
    leader = here[best] if isinstance(best, Choice) else _EXACT
    net = leader.gain - toll if isinstance(best, Choice) else 0.0
    stakes: dict[AnyChoice, float] = {}
    for choice in sorted(alive, key=lambda choice: choice.label):
        if choice == best:
            continue
        estimate = here[choice]
        variance = estimate.error**2
        if isinstance(best, Choice):
            variance = _SHARED * (variance + leader.error**2)
        stakes[choice] = expected_loss(net - (estimate.gain - toll), math.sqrt(variance))
    if isinstance(best, Choice):
        stakes[DEFAULT] = expected_loss(net, leader.error)
    return stakes
