# SPDX-License-Identifier: Apache-2.0
"""Carries a plan out: asks the study first, then the bench; keeps every point; minds the budget."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from nccltune.measure.ask import Ask, Key, Turn
from nccltune.measure.bench import Bench
from nccltune.measure.conversation import Measure, Point
from nccltune.measure.outlook import point_us
from nccltune.measure.record import Record, conditions
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective

_REQUEST_S = 0.5
"""About how long one request may take: the bench cannot be stopped within one, only between."""
_AHEAD = 2
"""Requests at a time: while the answers to one are thought about, the bench has the next."""
_WARMUP = 1
"""The call that the bench looks at, in which a choice connects what it uses first."""
_TELL_EVERY_S = 0.1
"""What a watcher is told is worked out anew each time; no eye follows faster."""
_TIMEOUT_S = 30.0
_TIMEOUT_FACTOR = 20.0
"""A point that takes this many times longer than expected is stuck."""


class Wanted(NamedTuple):
    """What to sweep. `rounds` is the number of rounds of a full grid, None for an adaptive plan;
    `threshold` is a gain (0.01 is 1 %)."""

    collectives: Sequence[Collective]
    low: int
    high: int
    threshold: float = 0.01
    rounds: int | None = None
    budget_s: float | None = None
    seed: int = 1


class Status(NamedTuple):
    """Where a sweep stands. `point` is the newest timing, `default_us` the default's at that size;
    `left_s` is a rough guess."""

    spent_s: float
    left_s: float
    points: int
    known: int
    collective: Collective | None
    point: Point | None
    default_us: float | None


class Questions(Protocol):
    """What a plan is to a run of it: `nccltune.measure.plan.Plan` says what each method does."""

    @property
    def turns(self) -> Sequence[Turn]: ...  # noqa: D102 - as in Plan
    def feed(self, key: Key, point: Point) -> None: ...  # noqa: D102
    def seconds(self, ask: Ask) -> float: ...  # noqa: D102
    def iterations(self, collective: Collective, size: int) -> int: ...  # noqa: D102
    def seconds_left(self) -> float: ...  # noqa: D102


AnyPlan = TypeVar("AnyPlan", bound=Questions)
_Watched_contra = TypeVar("_Watched_contra", bound=Questions, contravariant=True)


class Watcher(Protocol[_Watched_contra]):
    """Is told how it goes."""

    def update(self, status: Status, plan: _Watched_contra) -> None:
        """Called several times a second while points come in."""


class Outcome(NamedTuple):
    """How a sweep ended: `reason` is `done` or `budget`. `failures` are the points that gave no
    timing, new ones and those known from the study."""

    reason: str
    points: int
    known: int
    seconds: float
    failures: list[tuple[Key, Point]]


class _Question(NamedTuple):
    """A request, what it asks for, whose it is and how long it may take."""

    turn: Turn
    request: Measure
    ask: Ask
    expected_s: float


class Sweep(Generic[AnyPlan]):
    """One run of a plan. `now` is a clock in seconds; a replay counts recorded time instead."""

    def __init__(
        self,
        plan: AnyPlan,
        bench: Bench,
        record: Record,
        wanted: Wanted,
        watcher: Watcher[AnyPlan],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._bench = bench
        self._record = record
        self._wanted = wanted
        self._watcher = watcher
        self._now = now
        self._started = now()
        self._told = 0.0
        self._replayed_s = 0.0
        self._expected_s = 0.0
        self._asked: deque[_Question] = deque()
        self._points = 0
        self._reused = 0
        self._failures: list[tuple[Key, Point]] = []
        self._default_us: dict[tuple[Collective, int], float] = {}

    @property
    def outcome(self) -> Outcome:
        """How far it has come."""
        return Outcome("done", self._points, self._reused, self.spent_s, self._failures)

    @property
    def spent_s(self) -> float:
        """Seconds so far: of a replay those that were recorded."""
        if self._bench.hello.replay is not None:
            return self._replayed_s
        return self._now() - self._started

    def run(self) -> Outcome:
        """Measure until the plan has no question left or the budget is spent. What is measured is
        in the study when this returns or raises."""
        try:
            return self._run(self._record.known())
        finally:
            self._record.close()

    def _run(self, known: Mapping[Key, Point]) -> Outcome:
        idle = deque(self._plan.turns)
        waiting: deque[_Question] = deque()
        while True:
            while waiting and len(self._asked) < _AHEAD:
                if not self._affordable(waiting[0].expected_s):
                    while self._asked:
                        self._take_answer()
                    return self.outcome._replace(reason="budget")
                self._asked.append(waiting.popleft())
                self._bench.ask(self._asked[-1].request)
            if idle:
                turn = idle.popleft()
                if asks := turn():
                    questions = self._questions(turn, asks, known)
                    waiting.extend(questions)
                    if not questions:
                        idle.append(turn)
            elif self._asked:
                turn = self._asked[0].turn
                self._take_answer()
                if all(question.turn != turn for question in (*self._asked, *waiting)):
                    idle.append(turn)
            else:
                return self.outcome

    def _questions(
        self, turn: Turn, asks: Sequence[Ask], known: Mapping[Key, Point]
    ) -> list["_Question"]:
        """What of `asks` the study does not answer."""
        missing: list[Ask] = []
        for ask in asks:
            missing += ask.without(known)
            for key in ask.points():
                if key in known:
                    self._reused += 1
                    self._take(key, known[key])
        return [
            _Question(turn, request, part, self._plan.seconds(part))
            for ask in missing
            for request, part in self._requests(ask)
        ]

    def _affordable(self, seconds: float) -> bool:
        budget = self._wanted.budget_s
        asked = math.fsum(question.expected_s for question in self._asked)
        return budget is None or self.spent_s + (asked + seconds) * self._slowness() <= budget

    def _slowness(self) -> float:
        """How long things really take beside what was expected of them."""
        if self._expected_s < _REQUEST_S:
            return 1.0
        return min(max(self.spent_s / self._expected_s, 0.2), 5.0)

    def _requests(self, ask: Ask) -> Iterator[tuple[Measure, Ask]]:
        """Requests for an ask: sizes that need the same number of iterations together, and none
        that takes long if it can be split."""
        grouped: dict[int, list[int]] = {}
        for size in ask.sizes:
            grouped.setdefault(self._plan.iterations(ask.collective, size), []).append(size)
        for iterations, sizes in grouped.items():
            part: list[int] = []
            seconds = 0.0
            for size in sizes:
                one = self._plan.seconds(ask._replace(sizes=(size,)))
                if part and seconds + one > _REQUEST_S:
                    yield self._request(ask._replace(sizes=tuple(part)), iterations)
                    part, seconds = [], 0.0
                part.append(size)
                seconds += one
            yield self._request(ask._replace(sizes=tuple(part)), iterations)

    def _request(self, ask: Ask, iterations: int) -> tuple[Measure, Ask]:
        dtype, redop, root = conditions(ask.collective)
        longest = max(self._plan.seconds(ask._replace(sizes=(size,))) for size in ask.sizes)
        request = Measure(
            id=0,
            collective=ask.collective,
            bytes=list(ask.sizes),
            choices=list(ask.choices),
            dtype=dtype,
            redop=redop or "sum",
            root=root or 0,
            first_round=ask.round,
            default_repeats=len(ask.repeats),
            warmup=_WARMUP,
            iterations=iterations,
            # The bench counts repeats from 0: the second one alone must not be the first again.
            seed=self._wanted.seed + ask.repeats[0],
            check=ask.check,
            timeout_s=max(_TIMEOUT_S, _TIMEOUT_FACTOR * longest),
        )
        return request, ask

    def _take_answer(self) -> None:
        """Take what has come of the oldest question, and that off the list if it was its last."""
        question = self._asked[0]
        points, done = self._bench.answer()
        told = [(self._key(question.ask, point), point) for point in points]
        self._record.append(told)
        for key, point in told:
            self._points += point.lasts
            if point.time_us is not None:
                us = point_us(key.bytes, point.time_us, point.iterations or 1)
                self._replayed_s += 1e-6 * us
            self._take(key, point)
        if done:
            self._asked.popleft()
            self._expected_s += question.expected_s
        if told and time.monotonic() - self._told >= _TELL_EVERY_S:
            self._told = time.monotonic()
            self._tell(*told[-1])

    @staticmethod
    def _key(ask: Ask, point: Point) -> Key:
        """Which of the points asked for this is: the bench counts repeats from 0."""
        repeat = ask.repeats[point.repeat] if point.choice == DEFAULT else 0
        return Key(ask.collective, point.bytes, point.choice, point.round, repeat)

    def _take(self, key: Key, point: Point) -> None:
        if not point.ok:
            self._failures.append((key, point))
        elif key.choice == DEFAULT and point.time_us is not None:
            self._default_us[key.collective, key.bytes] = point.time_us
        self._plan.feed(key, point)

    def _tell(self, key: Key, point: Point) -> None:
        status = Status(
            spent_s=self.spent_s,
            left_s=self._slowness() * self._plan.seconds_left(),
            points=self._points,
            known=self._reused,
            collective=key.collective,
            point=point,
            default_us=self._default_us.get((key.collective, key.bytes)),
        )
        self._watcher.update(status, self._plan)
