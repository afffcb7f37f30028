# SPDX-License-Identifier: Apache-2.0
"""The adaptive plan of one collective: returns what to measure next, given all results so far.

A plan runs the first of these stages that has a request:

explore   time every legal choice once and the default twice, at sizes a factor of 4 apart, or at
          those that a job sends; a choice
          that cannot win at larger sizes is not tried there
settle    time the leading choices again where the leader may be wrong and an error is costly
refine    measure between two sizes with different decisions, until the boundary is known
channels  try channel counts and chunk sizes for the choices of the rules
confirm   time choices again at sizes where the rule search needs more rounds to prove a rule

Nothing here reads a clock, a file or a random number. The same answers lead to the same requests.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from nccltune.analyze.result import Condition
from nccltune.analyze.stats import normal_z
from nccltune.analyze.timings import Timings, WrongResults, leave_out_wrong
from nccltune.measure.adaptive import channel_trials, refine
from nccltune.measure.adaptive.estimates import CONFIDENCE
from nccltune.measure.adaptive.grid import Grid
from nccltune.measure.adaptive.rounds import (
    MOST_ROUNDS,
    SizeDecisions,
    unproven,
    unsettled,
    worth_repeating,
)
from nccltune.measure.adaptive.size_state import (
    SizeAxis,
    SizeState,
    SizeStates,
    choice_ranges,
    gain_left,
    job_axis,
    log_axis,
    size_states,
)
from nccltune.measure.bench.conditions import PLAIN, CallKind
from nccltune.measure.bench.conversation import (
    BenchPoint,
    ExecutedChoice,
    FurtherRounds,
    PointKey,
    RoundRequest,
)
from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale
from nccltune.workload.demand import Demand

LEAST_DISADVANTAGE = 0.15
"""How much slower (a log) a dominated choice is at least, in time and in slope.

It must be so at both sizes, so that one disturbed timing does not decide; the margin is large
because curves are not quite straight.
"""


class _Line(NamedTuple):
    """The times of one choice at the last two sizes, and their difference `slope`.

    The unit is the default's time at the last size. Errors are relative standard errors.
    """

    before: float
    time: float
    time_error: float
    slope: float
    slope_error: float


def dominated_choices(before: SizeState, last: SizeState, growth: float) -> set[Choice]:
    """Return the choices that cannot be the fastest at any size above `last`.

    `growth` is the natural log of the default's time at `last` over its time at `before`.
    """
    known: list[AnyChoice] = [DEFAULT, *last.estimates]
    lines = {
        choice: line
        for choice in known
        if (line := _line(choice, before, last, growth)) is not None
    }
    steep = math.sqrt(last.bytes / before.bytes)
    return {
        choice
        for choice, line in lines.items()
        if isinstance(choice, Choice)
        and line.time > steep * line.before
        and any(_behind(line, other) for other in lines.values())
    }


def _line(choice: AnyChoice, before: SizeState, last: SizeState, growth: float) -> _Line | None:
    then, now = before.estimate(choice), last.estimate(choice)
    if then is None or now is None:
        return None
    start, end = math.exp(-growth - then.gain), math.exp(-now.gain)
    if end <= start:
        return None
    slope = end - start
    error = math.hypot(start * then.error, end * now.error) / slope
    return _Line(start, end, now.error, slope, error)


def _behind(line: _Line, other: _Line) -> bool:
    z = normal_z(CONFIDENCE)
    before = math.log(line.before / other.before)
    now = math.log(line.time / other.time) - z * math.hypot(line.time_error, other.time_error)
    ever = math.log(line.slope / other.slope) - z * math.hypot(line.slope_error, other.slope_error)
    return min(before, now, ever) > LEAST_DISADVANTAGE


Decide = Callable[[Timings], SizeDecisions]
"""Runs the rule search: the choice that the rules give each measured size."""

COARSE_FACTOR = 4
MOST_TRIAL_ROUNDS = 64
"""The most rounds that channel trials may reach. Every step adds a size or a round, so plans end.
"""


class JobShare(NamedTuple):
    """What a job calls of one collective: the sizes to explore, rising, and the calls of each size.

    `portion` is the share of these calls in the job's time of all collectives that are measured.
    """

    sizes: list[int]
    demand: Demand
    portion: float


class PlanOptions(NamedTuple):
    """`threshold` is the smallest gain worth a measurement, as a fraction (0.01 is 1 %)."""

    threshold: float = 0.01
    chunks: bool = False


class CollectivePlan:
    """The plan of one collective. `step` returns what to measure next; `feed` takes each answer.

    `calls` is how its calls are made. `legal` are the choices that NCCL can run. `predicted` maps
    sizes to the choice that is the fastest by NCCL's own cost model. With `job`, only sizes that
    the job sends are explored, and a size counts by the job's time there.
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
        calls: CallKind = PLAIN,
        job: JobShare | None = None,
    ) -> None:
        self.grid = grid
        self.calls = calls
        self.legal = sorted(legal, key=lambda choice: choice.label)
        self.options = options
        self.timings = Timings(
            Condition(
                grid.collective, scale, registered=calls.registered, group_calls=calls.group_calls
            )
        )
        self.stage = "explore"
        self._decide = decide
        self._predicted = dict(predicted or {})
        self._job = job
        if job is None:
            self._coarse = sorted({*grid.every(COARSE_FACTOR), *self._before_switches()})
        else:
            self._coarse = job.sizes
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
        """Return the smallest gain that is worth a measurement, as a natural log."""
        return math.log1p(self.options.threshold)

    @property
    def states(self) -> SizeStates:
        """Return the state of every size measured so far."""
        if self._states is None:
            self._states = size_states(self.timings, self.threshold, self._excluded, self._same())
        return self._states

    @property
    def gain_left(self) -> float:
        """Return the gain that further measurements may still find, as a natural log.

        Each size has an expected loss from choosing a wrong leader (its stake). The result is the
        mean of these losses over the size axis, or over the time of a job.
        """
        return gain_left(self.states, self.axis)

    @property
    def axis(self) -> SizeAxis:
        """Return how much each measured size counts."""
        if self._job is None:
            return log_axis(self.states)
        curves = refine.Curves(self.timings)
        times = self._job.demand.times(lambda size: curves.estimate_us(size, DEFAULT))
        return job_axis(times, self.states, self._job.portion)

    @property
    def unexplored(self) -> list[int]:
        """Return the sizes of the stage `explore` that were not requested yet."""
        return [size for size in self._coarse if size not in self._next_round]

    @property
    def lost(self) -> Collection[int]:
        """Return the sizes that cannot be measured because the default failed there."""
        return self._lost

    def decided(self) -> SizeDecisions:
        """Return the choices of the rules that the timings so far give."""
        return self._decide(self.timings)

    def excluded(self, size: int) -> Mapping[Choice, str]:
        """Return the choices that could not be measured at `size`, each with the reason."""
        return self._excluded.get(size, {})

    def feed(self, key: PointKey, point: BenchPoint) -> None:
        """Record the answer to one requested point.

        A choice that failed or was not executed is not requested there again; one that gave wrong
        results, at no size; after a failed default, nothing is.
        """
        self._states = None
        if key.bytes in self._lost or key.choice in self._excluded.get(key.bytes, ()):
            return
        if isinstance(key.choice, Choice) and key.choice.without_channels() in self.timings.wrong:
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
            if point.applied and (point.wrong or reason == "wrong"):
                bare = key.choice.without_channels()
                self.legal = [item for item in self.legal if item.without_channels() != bare]
                where = (self.collective, self.timings.condition.scale)
                leave_out_wrong(self.timings, [WrongResults(*where, bare, [key.bytes])])
        else:
            self._lost.add(key.bytes)
            self.timings.cells.pop(key.bytes, None)

    def step(self) -> list[RoundRequest]:
        """Return the next requests, all to be answered before the next call; empty at the end."""
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
            # One slow timing must not exclude a choice. Choices with a single timing are therefore
            # timed again first, at this size, because the next size is larger and costs more.
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
            RoundRequest(self.collective, tuple(sizes), choices, 0, check=True, calls=self.calls)
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
        """Return the sizes where one more round is worth most for its cost. The list is empty if
        `gain_left` is below the threshold."""
        return unsettled(self.states, self.timings, self._next_round, self.threshold, self.axis)

    def worth_repeating(self, state: SizeState) -> list[Choice]:
        """Return the choices to time again in the next round of a size."""
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
        """Return the pairs of neighbouring sizes between which a size should be measured."""
        curves = refine.Curves(self.timings)
        predicted = self._predicted
        return refine.open_gaps(self.states, curves, self.threshold, predicted, self.axis)

    def _confirm(self) -> list[RoundRequest]:
        if all(state.best == DEFAULT for state in self.states.values()):
            return []
        decided = self.decided()
        return self._again(
            unproven(
                self.states, self.timings, decided, self._next_round, self.threshold, self.axis
            )
        )

    def _try_channels(self) -> list[RoundRequest]:
        if not any(self._known(size) for size in self.states):
            return []
        decided = self.decided()
        bases = {
            size: choice.without_channels() if isinstance(choice, Choice) else choice
            for size, choice in decided.choices.items()
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
                # All sizes get the same round numbers: a rule is proven only by the rounds that all
                # its sizes have.
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
        """Return requests for the wanted rounds below `most`, shared by sizes that need the
        same."""
        grouped: dict[FurtherRounds, list[int]] = {}
        for size, repeat in wanted.items():
            rounds = tuple(number for number in repeat.rounds if number < most)
            if rounds:
                grouped.setdefault(repeat._replace(rounds=rounds), []).append(size)
                self._next_round[size] = rounds[-1] + 1
        asks = []
        for repeat, sizes in grouped.items():
            # The results of a choice are checked only in its first round at a size.
            new = any(choice not in self.timings.cells[s] for s in sizes for choice in repeat[0])
            asks += [
                RoundRequest(
                    self.collective,
                    tuple(sizes),
                    (DEFAULT, *repeat.choices),
                    number,
                    check=new and number == repeat.rounds[0],
                    calls=self.calls,
                )
                for number in repeat.rounds
            ]
        return asks

    def _next(self, size: int) -> tuple[int]:
        return (self._next_round[size],)

    def _before_switches(self) -> list[int]:
        """Return each size after which NCCL's prediction changes: a late change loses most
        there."""
        return [
            size
            for (size, choice), (_, after) in pairwise(sorted(self._predicted.items()))
            if choice != after
        ]

    def _same(self) -> dict[int, list[Choice]]:
        same: dict[int, list[Choice]] = {}
        for (size, choice), ran in self._ran.items():
            if (
                isinstance(choice, Choice)
                and ran.channels is not None
                and ran == self._ran.get((size, DEFAULT))
            ):
                same.setdefault(size, []).append(choice)
        return same
