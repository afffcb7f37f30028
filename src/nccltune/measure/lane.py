# SPDX-License-Identifier: Apache-2.0
"""The adaptive plan of one collective: given everything measured so far, what to measure next.

explore   factor-4 sizes, every legal choice once beside the default; a choice that falls hopelessly
          behind as sizes grow is not tried at the next one
settle    further rounds where the leader may still be wrong and that would cost something
refine    the middle of two sizes where the decision changes, until the boundary is known
trim      channel counts and chunk sizes, for the choices that rules will name
confirm   further rounds where a rule is wanted that the timings do not prove yet

Nothing here reads a clock, a file or a random number: the same answers give the same questions.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from nccltune.analyze.result import Condition
from nccltune.analyze.timings import Timings
from nccltune.measure import refine, trim
from nccltune.measure.ask import Ask, Key, Repeat
from nccltune.measure.conversation import Point, Ran
from nccltune.measure.grid import Grid
from nccltune.measure.hopeless import hopeless
from nccltune.measure.rounds import MOST_ROUNDS, unproven, unsettled, worth_repeating
from nccltune.measure.view import SizeView, Views, gain_left, look, runs
from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale

Decide = Callable[[Timings], Mapping[int, AnyChoice]]
"""What the rules would choose at every measured size, by the rule search."""

COARSE_FACTOR = 4
MOST_TRIM_ROUNDS = 64
"""At one size in all: every step asks for new rounds, so that a plan ends whatever it is told."""


class Options(NamedTuple):
    """What a plan was told. `threshold` is a gain (0.01 is 1 %)."""

    threshold: float = 0.01
    chunks: bool = False


class Lane:
    """One collective. `step` says what to measure next, `feed` takes every answer to it."""

    def __init__(
        self,
        grid: Grid,
        scale: Scale,
        legal: Iterable[Choice],
        decide: Decide,
        options: Options = Options(),  # noqa: B008 - frozen
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
        self._ran: dict[tuple[int, AnyChoice], Ran] = {}
        self._views: Views | None = None

    @property
    def collective(self) -> Collective:
        """What this lane is about."""
        return self.grid.collective

    @property
    def threshold(self) -> float:
        """The gain that is worth looking for, as a log."""
        return math.log1p(self.options.threshold)

    @property
    def views(self) -> Views:
        """What is known at every size so far."""
        if self._views is None:
            self._views = look(self.timings, self.threshold, self._excluded, self._same())
        return self._views

    @property
    def gain_left(self) -> float:
        """The gain still to be found, as a log: the mean over the size axis."""
        return gain_left(self.views)

    @property
    def unexplored(self) -> list[int]:
        """Coarse sizes not asked about yet."""
        return [size for size in self._coarse if size not in self._next_round]

    @property
    def lost(self) -> Collection[int]:
        """Sizes that cannot be measured: the default failed there."""
        return self._lost

    def excluded(self, size: int) -> Mapping[Choice, str]:
        """The choices that could not be measured at `size`, and why."""
        return self._excluded.get(size, {})

    def feed(self, key: Key, point: Point) -> None:
        """Take one answer. A choice that failed, or that NCCL did not run, is not asked for again
        at that size; a default that failed leaves the size out."""
        self._views = None
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

    def step(self) -> list[Ask]:
        """What to measure next; empty when nothing is worth it. All of it must be fed before the
        next step."""
        stages = {
            "explore": self._explore,
            "settle": self._settle,
            "refine": self._refine,
            "trim": self._trim,
            "confirm": self._confirm,
        }
        for self.stage, stage in stages.items():
            asks = stage()
            if asks:
                return asks
        self.stage = "done"
        return []

    def _explore(self) -> list[Ask]:
        pending = self.unexplored[:1]
        below = [view for view in self.views.values() if pending and view.bytes < pending[0]][-2:]
        if len(below) == 2:
            before, last = below
            lost = self._hopeless(before, last)
            # A hiccup must not decide: a second look here costs less than one at the next size.
            doubtful = tuple(item for item in lost if last.estimates[item].n == 1)
            again = {last.bytes: Repeat(doubtful, self._next(last.bytes))} if doubtful else {}
            if asks := self._again(again):
                return asks
            self._given_up.update(lost)
        hopeful = [choice for choice in self.legal if choice not in self._given_up]
        return self._first_look(dict.fromkeys(pending, hopeful))

    def _hopeless(self, before: SizeView, last: SizeView) -> list[Choice]:
        medians = [self.timings.median(view.bytes, DEFAULT) or 1.0 for view in (before, last)]
        lost = hopeless(before, last, math.log(medians[1] / medians[0]))
        return [choice for choice in self.legal if choice in lost]

    def _first_look(self, wanted: Mapping[int, Sequence[Choice]]) -> list[Ask]:
        self._next_round.update(dict.fromkeys(wanted, 1))
        grouped: dict[tuple[AnyChoice, ...], list[int]] = {}
        for size, choices in wanted.items():
            grouped.setdefault((DEFAULT, *choices), []).append(size)
        return [
            Ask(self.collective, tuple(sizes), choices, 0, check=True)
            for choices, sizes in grouped.items()
        ]

    def _settle(self) -> list[Ask]:
        unsure = {size for size, view in self.views.items() if view.unsure}
        return self._again(
            {
                size: Repeat(tuple(self.worth_repeating(self.views[size])), self._next(size))
                for size in sorted({*unsure, *self.unsettled()})
            }
        )

    def unsettled(self) -> list[int]:
        """The sizes at which more rounds are worth most; none when the gain still to be found is
        below the threshold."""
        return unsettled(self.views, self.timings, self._next_round, self.threshold)

    def worth_repeating(self, view: SizeView) -> list[Choice]:
        """The choices that take part in one more round at a size."""
        return worth_repeating(view, self.threshold)

    def _refine(self) -> list[Ask]:
        curves = refine.Curves(self.timings)
        middles = [self.grid.middle(low.bytes, high.bytes) for low, high in self.open_gaps()]
        return self._first_look(
            {
                size: refine.candidates(size, self.views, curves, self.legal)
                for size in middles
                if size is not None and size not in self._next_round
            }
        )

    def open_gaps(self) -> list[tuple[SizeView, SizeView]]:
        """Neighbouring sizes that are not near enough to each other yet."""
        curves = refine.Curves(self.timings)
        return refine.open_gaps(self.views, curves, self.threshold, self._predicted)

    def _confirm(self) -> list[Ask]:
        if all(view.best == DEFAULT for view in self.views.values()):
            return []
        decided = self._decide(self.timings)
        return self._again(
            unproven(self.views, self.timings, decided, self._next_round, self.threshold)
        )

    def _trim(self) -> list[Ask]:
        if not any(self._known(size) for size in self.views):
            return []
        decided = self._decide(self.timings)
        bases = {
            size: choice.without_channels() if isinstance(choice, Choice) else choice
            for size, choice in decided.items()
        }
        for base, views in runs(self.views, bases):
            if not trim.affordable(views, self.timings):
                continue
            ran = {view.bytes: self._ran.get((view.bytes, base)) for view in views}
            out = [variant for view in views for variant in self.excluded(view.bytes)]
            trial = trim.next_trial(
                self.collective, base, views, ran, out, chunks=self.options.chunks
            )
            if trial is not None:
                # The same rounds at all sizes: rules are proven by what their sizes have in common.
                first = max(self._next_round[size] for size in trial.sizes)
                rounds = tuple(range(first, first + trial.rounds))
                repeat = Repeat(tuple(trial.choices), rounds)
                return self._again(dict.fromkeys(trial.sizes, repeat), MOST_TRIM_ROUNDS)
        return []

    def _known(self, size: int) -> bool:
        return any(
            ran.channels or ran.chunk_bytes for (at, _), ran in self._ran.items() if at == size
        )

    def _again(self, wanted: Mapping[int, Repeat], most: int = MOST_ROUNDS) -> list[Ask]:
        """Further rounds below `most`, the sizes that need the same together."""
        grouped: dict[Repeat, list[int]] = {}
        for size, repeat in wanted.items():
            rounds = tuple(number for number in repeat.rounds if number < most)
            if rounds:
                grouped.setdefault(repeat._replace(rounds=rounds), []).append(size)
                self._next_round[size] = rounds[-1] + 1
        asks = []
        for repeat, sizes in grouped.items():
            # A combination seen for the first time is checked; later rounds only time it.
            new = any(choice not in self.timings.cells[s] for s in sizes for choice in repeat[0])
            asks += [
                Ask(
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
        """The next round of a size."""
        return (self._next_round[size],)

    def _before_switches(self) -> list[int]:
        """The sizes after which NCCL means to change its choice: where it holds on to one for too
        long, that is where it costs most."""
        return [
            size
            for (size, choice), (_, after) in pairwise(sorted(self._predicted.items()))
            if choice != after
        ]

    def _same(self) -> dict[int, list[Choice]]:
        """By size: choices that ran exactly what the default ran."""
        same: dict[int, list[Choice]] = {}
        for (size, choice), ran in self._ran.items():
            if (
                isinstance(choice, Choice)
                and ran.channels is not None
                and ran == self._ran.get((size, DEFAULT))
            ):
                same.setdefault(size, []).append(choice)
        return same
