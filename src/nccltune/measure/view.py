# SPDX-License-Identifier: Apache-2.0
"""What is known at every measured size: who leads, who is out, and what is still at stake."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from nccltune.analyze.timings import Timings
from nccltune.measure.estimates import Estimate, estimates, expected_loss
from nccltune.model.choice import DEFAULT, AnyChoice, Choice

FAR_BEHIND = 0.4
"""Log gain: this far behind the best, one timing is enough where the neighbouring sizes agree."""
_EXACT = Estimate(0.0, 0.0, 0)
_SHARED = 2 / 3
"""Variance of the difference of two choices' gains in the sum of their variances: both are
compared with the same timings of the default, whose noise cancels."""
_BEYOND = math.log(2) / 2
"""Half an octave."""


class SizeView(NamedTuple):
    """What is known at one size; gains are natural logs of default over choice time.

    `estimates` holds every choice measured, `alive` those (without a channel count or chunk size of
    their own) that can still win. `best` leads; `gain` is its gain, 0 for the default. `stakes` is
    what each rival may be better by on average, `unsure` those that need another look because a
    single timing would decide about them, or two that contradict each other.
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
        """The gain that knowing everything about this size would still bring, on average.

        Only one rival can be the best: more than the largest of the stakes, less than their sum.
        For independent rivals with equal stakes the mean of the maximum grows about like this.
        """
        return math.pow(math.fsum(stake**1.5 for stake in self.stakes.values()), 1 / 1.5)

    @property
    def better(self) -> bool:
        """Whether the leader is a choice that beats the default beyond doubt."""
        return isinstance(self.best, Choice) and self.estimates[self.best].low > 0

    def estimate(self, choice: AnyChoice) -> Estimate | None:
        """The gain of `choice` here: exactly 0 for the default, None where not measured."""
        return self.estimates.get(choice) if isinstance(choice, Choice) else _EXACT

    def lead(self, choice: AnyChoice, over: AnyChoice) -> float | None:
        """How much faster `choice` is than `over` here for certain (less two standard errors),
        as a log; infinite where `over` was not worth measuring, None where `choice` was not."""
        if self.estimate(choice) is None:
            return None
        if self.estimate(over) is None:
            return math.inf
        lead, error = self.difference(choice, over)
        return lead - 2 * error

    def difference(self, choice: AnyChoice, over: AnyChoice) -> tuple[float, float]:
        """How much faster `choice` is than `over` here, as a log, and its standard error; both
        were measured."""
        mine, other = self.estimate(choice), self.estimate(over)
        assert mine is not None
        assert other is not None
        error = math.sqrt(_SHARED * (mine.error**2 + other.error**2))
        return mine.gain - other.gain, error


Views = dict[int, SizeView]


def look(
    timings: Timings,
    toll: float,
    excluded: Mapping[int, Collection[Choice]],
    same: Mapping[int, Collection[Choice]],
) -> Views:
    """The view of every size that has timings of the default, by rising size.

    A choice must gain `toll` to be preferred to the default. `excluded` cannot run at a size,
    `same` are the default there under another name.
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
        size: _view(size, len(_rounds(timings, size)), ordered, place, toll)
        for place, size in enumerate(sizes)
    }


def gain_left(views: Views) -> float:
    """The gain still to be found: the mean stake over the size axis (log bytes)."""
    share = shares(views)
    return math.fsum(share[size] * view.stake for size, view in views.items())


def shares(views: Collection[int]) -> dict[int, float]:
    """The share of the size axis (log bytes) that stands for each size; together 1. The first and
    the last stand for half an octave beyond, too: programs do not stop where a range does."""
    logs = [math.log(size) for size in views]
    if not logs:
        return {}
    between = ((a + b) / 2 for a, b in pairwise(logs))
    edges = [logs[0] - _BEYOND, *between, logs[-1] + _BEYOND]
    return {
        size: (high - low) / (edges[-1] - edges[0])
        for size, (low, high) in zip(views, pairwise(edges), strict=True)
    }


def runs(views: Views, chosen: Mapping[int, AnyChoice]) -> Iterator[tuple[Choice, list[SizeView]]]:
    """Neighbouring sizes with the same choice; the default's are left out."""
    current: list[SizeView] = []
    for size, view in views.items():
        if current and chosen.get(size) != chosen.get(current[-1].bytes):
            yield from _run(chosen, current)
            current = []
        current.append(view)
    yield from _run(chosen, current)


def _run(
    chosen: Mapping[int, AnyChoice], views: list[SizeView]
) -> Iterator[tuple[Choice, list[SizeView]]]:
    choice = chosen.get(views[0].bytes) if views else None
    if isinstance(choice, Choice):
        yield choice, views


def _rounds(timings: Timings, size: int) -> set[int]:
    return {round_ for round_, _ in timings.series(size, DEFAULT)}


def _view(
    size: int,
    rounds: int,
    ordered: Sequence[Mapping[Choice, Estimate]],
    place: int,
    toll: float,
) -> SizeView:
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
    return SizeView(
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
    """Whether one timing is enough to leave `choice` out: it is far behind here and behind at the
    neighbouring sizes, too."""
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
