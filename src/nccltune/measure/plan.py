# SPDX-License-Identifier: Apache-2.0
"""Plans over several collectives: the adaptive one, and the full grid that is its yardstick."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nccltune.analyze.timings import Timings
from nccltune.measure.ask import Ask, Key, Turn
from nccltune.measure.conversation import Point
from nccltune.measure.lane import Lane
from nccltune.measure.outlook import Clock, Predictions, seconds_left
from nccltune.measure.view import Views
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective

EXHAUSTIVE_FACTOR = 2


class Known(NamedTuple):
    """What is known of one collective, for people to watch."""

    collective: Collective
    stage: str
    views: Views
    timings: Timings
    gain_left: float


class Plan:
    """What to measure next over several collectives, step by step.

    Each of its `turns` returns questions, all of which have to be answered through `feed` before it
    is called again; none left means done. Turns do not wait for each other. A plan is a pure
    function of its answers: fed the samples of a study, it stands where the run that made them
    stood.
    """

    def __init__(
        self, lanes: Sequence[Lane], predictions: Mapping[Collective, Predictions] | None = None
    ) -> None:
        self._lanes = {lane.collective: lane for lane in lanes}
        self._predictions = predictions or {}
        self._iterations: dict[Collective, dict[int, int]] = {lane: {} for lane in self._lanes}
        self._clocks: dict[Collective, Clock] = {}

    @property
    def turns(self) -> Sequence[Turn]:
        """What to measure next of each collective, cheap things first."""
        return [lane.step for lane in self._lanes.values()]

    def outline(self) -> list[Ask]:
        """The first look at the coarse sizes, if no choice were dropped on the way."""
        return [
            Ask(lane.collective, tuple(lane.unexplored), (DEFAULT, *lane.legal), 0, check=True)
            for lane in self._lanes.values()
            if lane.unexplored
        ]

    def feed(self, key: Key, point: Point) -> None:
        """Take the answer to one point."""
        self._clocks.pop(key.collective, None)
        self._lanes[key.collective].feed(key, point)

    def seconds(self, ask: Ask) -> float:
        """About how long an ask takes."""
        return self._clock(ask.collective).seconds(ask)

    def iterations(self, collective: Collective, size: int) -> int:
        """Calls of one timing at a size. Once decided it stays, so that all timings of a point
        are of one kind."""
        decided = self._iterations[collective]
        if size not in decided:
            decided[size] = self._clock(collective).iterations(size)
        return decided[size]

    def seconds_left(self) -> float:
        """About how long everything to come takes."""
        return math.fsum(
            seconds_left(lane, self._clock(lane.collective)) for lane in self._lanes.values()
        )

    @property
    def gain_left(self) -> float:
        """The gain still to be found: the largest of the collectives', as a fraction."""
        return math.expm1(max((lane.gain_left for lane in self._lanes.values()), default=0.0))

    def known(self) -> list[Known]:
        """What is known of every collective so far."""
        return [
            Known(lane.collective, lane.stage, lane.views, lane.timings, lane.gain_left)
            for lane in self._lanes.values()
        ]

    def _clock(self, collective: Collective) -> Clock:
        if collective not in self._clocks:
            self._clocks[collective] = Clock(
                self._lanes[collective].timings,
                self._predictions.get(collective, {}),
                self._iterations[collective],
            )
        return self._clocks[collective]


class ExhaustivePlan(Plan):
    """Every factor-2 size, every legal choice, in `rounds` rounds. The lanes only keep count."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        predictions: Mapping[Collective, Predictions] | None = None,
        *,
        rounds: int,
    ) -> None:
        super().__init__(lanes, predictions)
        self._rounds = rounds
        self._round = 0

    @property
    def turns(self) -> Sequence[Turn]:
        """All collectives together, so that a round of theirs is of one time."""
        return [self._step]

    def _step(self) -> list[Ask]:
        """The next round; a choice that failed at a size is not tried there again."""
        if self._round == self._rounds:
            return []
        asks = [ask for lane in self._lanes.values() for ask in self._whole(lane, self._round)]
        self._round += 1
        return asks

    def outline(self) -> list[Ask]:
        """The first round."""
        return [ask for lane in self._lanes.values() for ask in self._whole(lane, 0)]

    def seconds_left(self) -> float:
        """About how long the rounds to come take."""
        return math.fsum(
            (self._rounds - self._round) * self.seconds(ask)
            for lane in self._lanes.values()
            for ask in self._whole(lane, 1)
        )

    @staticmethod
    def _whole(lane: Lane, round_: int) -> list[Ask]:
        grouped: dict[tuple[str, ...], list[int]] = {}
        for size in lane.grid.every(EXHAUSTIVE_FACTOR):
            if size in lane.lost:
                continue
            out = lane.excluded(size)
            labels = tuple(choice.label for choice in lane.legal if choice not in out)
            grouped.setdefault(labels, []).append(size)
        by_label = {choice.label: choice for choice in lane.legal}
        return [
            Ask(
                lane.collective,
                tuple(sizes),
                (DEFAULT, *(by_label[label] for label in labels)),
                round_,
                check=round_ == 0,
            )
            for labels, sizes in grouped.items()
        ]
