# SPDX-License-Identifier: Apache-2.0
"""The state of every measured size: the leader, its rivals, and the gain that may still be missed.

The *leader* is the choice that a rule should use by the timings so far; it may be the default. The
*stake* of a rival is the mean gain that is lost if the rival is in fact faster than the leader.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive.estimates import Estimate, estimates, expected_loss
from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.workload.demand import at_nearest

FAR_BEHIND = 0.4
"""A choice this far behind (a log), also at the neighbours, is excluded after one timing."""
_EXACT = Estimate(0.0, 0.0, 0)
_SHARED = 2 / 3
"""Variance of the difference of two gains over their sum: they share the default's noise."""
_BEYOND = math.log(2) / 2
"""Half an octave on the natural log axis of sizes."""


class SizeState(NamedTuple):
    """The state of one size. Gains are natural logs of default time over choice time.

    alive   the choices without channels or chunk size that may still be the fastest
    gain    the gain of the leader `best`; 0 if that is the default
    stakes  for each rival, the expected loss of using the leader instead
    unsure  choices with one timing that would decide, or two that contradict each other
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
        """Return the mean gain lost because the fastest choice is not known for certain.

        It is between the largest and the sum of all stakes, as only one rival can be the fastest;
        the 1.5-norm approximates the mean of the largest loss.
        """
        return math.pow(math.fsum(stake**1.5 for stake in self.stakes.values()), 1 / 1.5)

    @property
    def beats_default(self) -> bool:
        """Return whether the leader is faster than the default with confidence."""
        return isinstance(self.best, Choice) and self.estimates[self.best].low > 0

    def estimate(self, choice: AnyChoice) -> Estimate | None:
        """Return the gain of `choice`: exactly 0 for the default, None if it was not measured."""
        return self.estimates.get(choice) if isinstance(choice, Choice) else _EXACT

    def lead(self, choice: AnyChoice, over: AnyChoice) -> float | None:
        """Return by how much (a log) `choice` is faster than `over`, less two standard errors.

        Infinite if `over` was not measured, None if `choice` was not.
        """
        if self.estimate(choice) is None:
            return None
        if self.estimate(over) is None:
            return math.inf
        lead, error = self.difference(choice, over)
        return lead - 2 * error

    def difference(self, choice: AnyChoice, over: AnyChoice) -> tuple[float, float]:
        """Return the gain of `choice` less that of `over` (a log), and its standard error."""
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

    A choice must gain more than `toll` (a log). `excluded` cannot run at a size; `same` are
    executed exactly as the default, so their gain is 0.
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


class SizeAxis(NamedTuple):
    """How much sizes count. By default each part of the axis of log bytes counts by its length.

    share    the share of each measured size; the sum is 1, or less if other collectives count, too
    between  returns the share of the sizes between two measured ones, these excluded
    """

    share: Mapping[int, float]
    between: Callable[[int, int], float]


def log_axis(sizes: Collection[int]) -> SizeAxis:
    """Return the axis of log bytes of these sizes, which must be in rising order."""
    ordered = list(sizes)
    length = math.log(ordered[-1] / ordered[0]) if len(ordered) > 1 else 1.0
    return SizeAxis(axis_shares(ordered), lambda low, high: math.log(high / low) / length)


def job_axis(times: Mapping[int, float], sizes: Collection[int], portion: float) -> SizeAxis:
    """Return the axis of a job's time: `times` are those of its sizes in us.

    `portion` is the share of these times in the time of all collectives that are measured.
    """
    scale = portion / (math.fsum(times.values()) or 1.0)
    near = at_nearest(times, sizes)
    return SizeAxis(
        {size: scale * time for size, time in near.items()},
        lambda low, high: scale
        * math.fsum(time for size, time in times.items() if low < size < high),
    )


def gain_left(states: SizeStates, axis: SizeAxis | None = None) -> float:
    """Return the gain that further measurements may still find, as a natural log.

    The result is the mean, over the size axis, of the expected losses from a wrong leader
    (`SizeState.stake`).
    """
    share = (axis or log_axis(states)).share
    return math.fsum(share[size] * state.stake for size, state in states.items())


def axis_shares(states: Collection[int]) -> dict[int, float]:
    """Return the share of the size axis (log bytes) of each size; the ends count half an octave
    more."""
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
    """Yield each range of neighbouring sizes with one choice in `chosen`, but the default."""
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
    size: int, rounds: int, ordered: Sequence[Mapping[Choice, Estimate]], place: int, toll: float
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
    """Return whether one timing excludes `choice`: behind here, and by half where near."""
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
