# SPDX-License-Identifier: Apache-2.0
"""The adaptive plan of one collective: returns what to measure next, given all results so far.

explore   sizes a factor of 4 apart, every legal choice once beside the default; a choice that is
          hopelessly behind is not tried at the larger sizes
settle    further rounds where the leader may still be wrong and the error would be costly
refine    the middle of two sizes where the decision changes, until the boundary is known
channels  channel counts and chunk sizes for the choices that rules will name
confirm   further rounds for rules that the timings do not prove yet

Nothing here reads a clock, a file or a random number. The same answers lead to the same requests.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from nccltune.analyze.result import Condition
from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive import channel_trials, refine
from nccltune.measure.adaptive.dominated import dominated_choices
from nccltune.measure.adaptive.grid import Grid
from nccltune.measure.adaptive.rounds import MOST_ROUNDS, unproven, unsettled, worth_repeating
from nccltune.measure.adaptive.size_state import (
    SizeState,
    SizeStates,
    choice_ranges,
    gain_left,
    size_states,
)
from nccltune.measure.bench.conversation import BenchPoint, ExecutedChoice
from nccltune.measure.bench.round_request import FurtherRounds, PointKey, RoundRequest
from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale

Decide = Callable[[Timings], Mapping[int, AnyChoice]]
"""Runs the rule search on the timings. Returns the choice of the rules at every measured size."""

COARSE_FACTOR = 4
MOST_TRIAL_ROUNDS = 64
"""The most rounds at one size, over all stages. Every step requests new rounds, so this limit makes
a plan end whatever the answers are."""


class PlanOptions(NamedTuple):
    """The user options of a plan. `threshold` is a gain (0.01 is 1 %)."""

    threshold: float = 0.01
    chunks: bool = False


class CollectivePlan:
    """The plan of one collective. `step` returns what to measure next; `feed` takes each answer.

    `legal` are the choices that NCCL can run. `predicted` maps sizes to the choice that NCCL
    predicts for itself.
    """

    def __init__(
        self,
        grid: Grid,
        scale: Scale,
        legal: Iterable[Choice],
        decide: Decide,
        options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
        *,
        predicted: Mapping[int, Choice] | None = None,
    ) -> None:
        self.grid = grid
        self.legal = sorted(legal, key=lambda choice: choice.label)
        self.options = options
        self.timings = Timings(Condition(grid.collective, scale))
        self.stage = "explore"
        self._decide = decide
        self._predicted = dict(predicted or {})
        self._coarse = sorted({*grid.every(COARSE_FACTOR), *self._before_switches()})
        self._next_round: dict[int, int] = {}
        self._given_up: set[Choice] = set()
        self._lost: set[int] = set()
        self._excluded: dict[int, dict[Choice, str]] = {}
        self._ran: dict[tuple[int, AnyChoice], ExecutedChoice] = {}
        self._states: SizeStates | None = None

    @property
    def collective(self) -> Collective:
        """Return the collective that is measured."""
        return self.grid.collective

    @property
    def threshold(self) -> float:
        """Return the smallest gain that is worth looking for, as a log."""
        return math.log1p(self.options.threshold)

    @property
    def states(self) -> SizeStates:
        """Return the state of every size measured so far."""
        if self._states is None:
            self._states = size_states(self.timings, self.threshold, self._excluded, self._same())
        return self._states

    @property
    def gain_left(self) -> float:
        """Return the gain still to be found, as a log: the mean over the size axis."""
        return gain_left(self.states)

    @property
    def unexplored(self) -> list[int]:
        """Return the coarse sizes that were not requested yet."""
        return [size for size in self._coarse if size not in self._next_round]

    @property
    def lost(self) -> Collection[int]:
        """Return the sizes that cannot be measured because the default failed there."""
        return self._lost

    def excluded(self, size: int) -> Mapping[Choice, str]:
        """Return the choices that could not be measured at `size`, each with the reason."""
        return self._excluded.get(size, {})

    def feed(self, key: PointKey, point: BenchPoint) -> None:
        """Take one answer.

        A choice that failed, or that NCCL did not run, is not requested again at that size. If the
        default failed, the whole size is left out.
        """
        self._states = None
        if key.bytes in self._lost or key.choice in self._excluded.get(key.bytes, ()):
            return
        if point.ran is not None and point.applied:
            self._ran[key.bytes, key.choice] = point.ran
        if point.ok and point.time_us is not None:
            cell = self.timings.cells.setdefault(key.bytes, {}).setdefault(key.choice, {})
            cell[key.round, key.repeat] = point.time_us
            self.timings.samples += 1
            if point.ran is not None and point.ran.channels is not None:
                self.timings.note_channels(key.bytes, key.choice, point.ran.channels)
        elif isinstance(key.choice, Choice):
            reason = point.error.kind if point.error else "not run"
            self._excluded.setdefault(key.bytes, {})[key.choice] = reason
            self.timings.cells.get(key.bytes, {}).pop(key.choice, None)
        else:
            self._lost.add(key.bytes)
            self.timings.cells.pop(key.bytes, None)

    def step(self) -> list[RoundRequest]:
        """Return what to measure next; an empty list when nothing is worth its time.

        All of it must be fed before the next step.
        """
        stages = {
            "explore": self._explore,
            "settle": self._settle,
            "refine": self._refine,
            "channels": self._try_channels,
            "confirm": self._confirm,
        }
        for self.stage, stage in stages.items():
            asks = stage()
            if asks:
                return asks
        self.stage = "done"
        return []

    def _explore(self) -> list[RoundRequest]:
        pending = self.unexplored[:1]
        below = [state for state in self.states.values() if pending and state.bytes < pending[0]][
            -2:
        ]
        if len(below) == 2:
            before, last = below
            lost = self._dominated(before, last)
            # One slow timing must not decide. A second one costs less here than at the next size.
            doubtful = tuple(item for item in lost if last.estimates[item].n == 1)
            again = (
                {last.bytes: FurtherRounds(doubtful, self._next(last.bytes))} if doubtful else {}
            )
            if asks := self._again(again):
                return asks
            self._given_up.update(lost)
        hopeful = [choice for choice in self.legal if choice not in self._given_up]
        return self._first_round(dict.fromkeys(pending, hopeful))

    def _dominated(self, before: SizeState, last: SizeState) -> list[Choice]:
        medians = [self.timings.median(state.bytes, DEFAULT) or 1.0 for state in (before, last)]
        lost = dominated_choices(before, last, math.log(medians[1] / medians[0]))
        return [choice for choice in self.legal if choice in lost]

    def _first_round(self, wanted: Mapping[int, Sequence[Choice]]) -> list[RoundRequest]:
        self._next_round.update(dict.fromkeys(wanted, 1))
        grouped: dict[tuple[AnyChoice, ...], list[int]] = {}
        for size, choices in wanted.items():
            grouped.setdefault((DEFAULT, *choices), []).append(size)
        return [
            RoundRequest(self.collective, tuple(sizes), choices, 0, check=True)
            for choices, sizes in grouped.items()
        ]

    def _settle(self) -> list[RoundRequest]:
        unsure = {size for size, state in self.states.items() if state.unsure}
        return self._again(
            {
                size: FurtherRounds(
                    tuple(self.worth_repeating(self.states[size])), self._next(size)
                )
                for size in sorted({*unsure, *self.unsettled()})
            }
        )

    def unsettled(self) -> list[int]:
        """Return the sizes where more rounds bring most. Return none when the gain still to be
        found is below the threshold."""
        return unsettled(self.states, self.timings, self._next_round, self.threshold)

    def worth_repeating(self, state: SizeState) -> list[Choice]:
        """Return the choices that take part in one more round at a size."""
        return worth_repeating(state, self.threshold)

    def _refine(self) -> list[RoundRequest]:
        curves = refine.Curves(self.timings)
        middles = [self.grid.middle(low.bytes, high.bytes) for low, high in self.open_gaps()]
        return self._first_round(
            {
                size: refine.candidates(size, self.states, curves, self.legal)
                for size in middles
                if size is not None and size not in self._next_round
            }
        )

    def open_gaps(self) -> list[tuple[SizeState, SizeState]]:
        """Return pairs of neighbouring sizes with a size to measure between them."""
        curves = refine.Curves(self.timings)
        return refine.open_gaps(self.states, curves, self.threshold, self._predicted)

    def _confirm(self) -> list[RoundRequest]:
        if all(state.best == DEFAULT for state in self.states.values()):
            return []
        decided = self._decide(self.timings)
        return self._again(
            unproven(self.states, self.timings, decided, self._next_round, self.threshold)
        )

    def _try_channels(self) -> list[RoundRequest]:
        if not any(self._known(size) for size in self.states):
            return []
        decided = self._decide(self.timings)
        bases = {
            size: choice.without_channels() if isinstance(choice, Choice) else choice
            for size, choice in decided.items()
        }
        for base, states in choice_ranges(self.states, bases):
            if not channel_trials.affordable(states, self.timings):
                continue
            ran = {state.bytes: self._ran.get((state.bytes, base)) for state in states}
            out = [variant for state in states for variant in self.excluded(state.bytes)]
            trial = channel_trials.next_trial(
                self.collective, base, states, ran, out, chunks=self.options.chunks
            )
            if trial is not None:
                # All sizes get the same rounds, because a rule is proven from the rounds that its
                # sizes have in common.
                first = max(self._next_round[size] for size in trial.sizes)
                rounds = tuple(range(first, first + trial.rounds))
                repeat = FurtherRounds(tuple(trial.choices), rounds)
                return self._again(dict.fromkeys(trial.sizes, repeat), MOST_TRIAL_ROUNDS)
        return []

    def _known(self, size: int) -> bool:
        return any(
            ran.channels or ran.chunk_bytes for (at, _), ran in self._ran.items() if at == size
        )

    def _again(
        self, wanted: Mapping[int, FurtherRounds], most: int = MOST_ROUNDS
    ) -> list[RoundRequest]:
        """Return requests for further rounds with numbers below `most`. Sizes that need the same
        rounds share a request."""
        grouped: dict[FurtherRounds, list[int]] = {}
        for size, repeat in wanted.items():
            rounds = tuple(number for number in repeat.rounds if number < most)
            if rounds:
                grouped.setdefault(repeat._replace(rounds=rounds), []).append(size)
                self._next_round[size] = rounds[-1] + 1
        asks = []
        for repeat, sizes in grouped.items():
            # A combination that is new at a size is checked once; later rounds only time it.
            new = any(choice not in self.timings.cells[s] for s in sizes for choice in repeat[0])
            asks += [
                RoundRequest(
                    self.collective,
                    tuple(sizes),
                    (DEFAULT, *repeat.choices),
                    number,
                    check=new and number == repeat.rounds[0],
                )
                for number in repeat.rounds
            ]
        return asks

    def _next(self, size: int) -> tuple[int]:
        """Return the next round number of a size."""
        return (self._next_round[size],)

    def _before_switches(self) -> list[int]:
        """Return the last sizes before NCCL's prediction changes to another choice. If NCCL
        switches too late, these sizes lose most."""
        return [
            size
            for (size, choice), (_, after) in pairwise(sorted(self._predicted.items()))
            if choice != after
        ]

    def _same(self) -> dict[int, list[Choice]]:
        """Return, by size, the choices that ran exactly what the default ran."""
        same: dict[int, list[Choice]] = {}
        for (size, choice), ran in self._ran.items():
            if (
                isinstance(choice, Choice)
                and ran.channels is not None
                and ran == self._ran.get((size, DEFAULT))
            ):
                same.setdefault(size, []).append(choice)
        return same
