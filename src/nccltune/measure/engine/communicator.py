# SPDX-License-Identifier: Apache-2.0
"""Executor: one bench with one communicator, in which the choice is switched from call to call.

`PlanRun` takes the requests of a plan. Points that the study already has are answered from the
study. The other points become requests to the bench, which are the tasks of the scheduler. Every
point is recorded when it arrives.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from nccltune.measure.adaptive.time_estimate import point_us
from nccltune.measure.bench.conditions import PLAIN, CallKind, conditions
from nccltune.measure.bench.conversation import (
    BenchPoint,
    Measure,
    PointKey,
    RequestSource,
    RoundRequest,
)
from nccltune.measure.bench.process import Bench
from nccltune.measure.engine.point_record import PointRecord
from nccltune.measure.engine.scheduler import Budget, Scheduler, TaskSource
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective

_REQUEST_S = 0.5
"""Target seconds of one request. The bench can only be stopped between requests."""
_AHEAD = 2
"""Requests that the bench has at a time: it works on one while another is analysed."""
_WARMUP = 1
"""Warm-up calls, in which NCCL connects and the bench checks the result."""
_UPDATE_EVERY_S = 0.1
"""The least time between two status updates, in seconds: computing a status takes time."""
_TIMEOUT_S = 30.0
_TIMEOUT_FACTOR = 20.0
"""A point hangs if it takes this many times longer than expected, and `_TIMEOUT_S`."""


class SweepStatus(NamedTuple):
    """The progress of a sweep: `points` are new, `known` are from the study.

    `default_us` is the default's time at the size of the newest `point`.
    """

    spent_s: float
    left_s: float
    points: int
    known: int
    collective: Collective | None
    point: BenchPoint | None
    default_us: float | None


class MeasurementPlan(Protocol):
    """The methods of a plan that `PlanRun` calls. `measure.adaptive.plan.Plan` documents them."""

    @property
    def turns(self) -> Sequence[RequestSource]: ...  # noqa: D102 - as in Plan
    def feed(self, key: PointKey, point: BenchPoint) -> None: ...  # noqa: D102
    def seconds(self, ask: RoundRequest) -> float: ...  # noqa: D102
    def iterations(  # noqa: D102
        self, collective: Collective, size: int, calls: CallKind = PLAIN
    ) -> int: ...
    def seconds_left(self) -> float: ...  # noqa: D102


AnyPlan = TypeVar("AnyPlan", bound=MeasurementPlan)
_Watched_contra = TypeVar("_Watched_contra", bound=MeasurementPlan, contravariant=True)


class Watcher(Protocol[_Watched_contra]):
    """Receives the status of a run."""

    def update(self, status: SweepStatus, plan: _Watched_contra) -> None:
        """Receive the status. This is called several times a second while points arrive."""


class SweepOutcome(NamedTuple):
    """How a sweep ended: `reason` is `done` or `budget`.

    `points` are new, `known` are from the study; `failures` have no valid timing.
    """

    reason: str
    points: int
    known: int
    seconds: float
    failures: list[tuple[PointKey, BenchPoint]]


class _Request:
    def __init__(
        self,
        request: Measure,
        ask: RoundRequest,
        expected_s: float,
        bench: Bench,
        take: Callable[[RoundRequest, Sequence[BenchPoint], float], None],
    ) -> None:
        self.expected_s = expected_s
        self._request = request
        self._ask = ask
        self._bench = bench
        self._take = take

    def start(self) -> None:
        self._bench.ask(self._request)

    def advance(self) -> bool:
        points, done = self._bench.answer()
        self._take(self._ask, points, self.expected_s if done else 0.0)
        return done


class PlanRun(Generic[AnyPlan]):
    """One run of a plan in one communicator, for at most `budget_s` seconds.

    `seed` shuffles the points of a request. In a replay the recorded times count, not `now`.
    """

    def __init__(
        self,
        plan: AnyPlan,
        bench: Bench,
        record: PointRecord,
        watcher: Watcher[AnyPlan],
        *,
        budget_s: float | None = None,
        seed: int = 1,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._bench = bench
        self._record = record
        self._seed = seed
        self._watcher = watcher
        self._now = now
        self._started = now()
        self._last_update = 0.0
        self._replayed_s = 0.0
        self._expected_s = 0.0
        budget = Budget(budget_s, lambda: self.spent_s, self._slowness)
        self._scheduler = Scheduler(budget, ahead=_AHEAD)
        self._points = 0
        self._reused = 0
        self._failures: list[tuple[PointKey, BenchPoint]] = []
        self._default_us: dict[tuple[Collective, CallKind, int], float] = {}

    @property
    def outcome_so_far(self) -> SweepOutcome:
        """Return the result so far, with `reason` "done"."""
        return SweepOutcome("done", self._points, self._reused, self.spent_s, self._failures)

    @property
    def spent_s(self) -> float:
        """Return the seconds spent so far; in a replay, how long the replayed timings took."""
        if self._bench.hello.replay is not None:
            return self._replayed_s
        return self._now() - self._started

    def run(self) -> SweepOutcome:
        """Measure until the plan ends or the budget is spent; every point is in the study.

        Raises the errors of `Bench`, and StudyError for a damaged line or a failed write.
        """
        try:
            known = self._record.known()
            sources = [self._source(turn, known) for turn in self._plan.turns]
            reason = self._scheduler.run(sources)
            return self.outcome_so_far._replace(reason=reason)
        finally:
            self._record.close()

    def _source(self, turn: RequestSource, known: Mapping[PointKey, BenchPoint]) -> TaskSource:
        """Return a source of the requests of `turn`; points in `known` need no task."""

        def tasks() -> Sequence[_Request] | None:
            asks = turn()
            return self._unanswered(asks, known) if asks else None

        return tasks

    def _unanswered(
        self, asks: Sequence[RoundRequest], known: Mapping[PointKey, BenchPoint]
    ) -> list[_Request]:
        missing: list[RoundRequest] = []
        for ask in asks:
            missing += ask.without(known)
            for key in ask.points():
                if key in known:
                    self._reused += 1
                    self._take(key, known[key])
        return [
            _Request(request, part, self._plan.seconds(part), self._bench, self._take_points)
            for ask in missing
            for request, part in self._requests(ask)
        ]

    def _slowness(self) -> float:
        """Return how much longer requests took than expected, 0.2 to 5; 1 at first."""
        if self._expected_s < _REQUEST_S:
            return 1.0
        return min(max(self.spent_s / self._expected_s, 0.2), 5.0)

    def _requests(self, ask: RoundRequest) -> Iterator[tuple[Measure, RoundRequest]]:
        """Yield requests of equal iterations for one of the plan, none above `_REQUEST_S`."""
        grouped: dict[int, list[int]] = {}
        for size in ask.sizes:
            grouped.setdefault(self._plan.iterations(ask.collective, size, ask.calls), []).append(
                size
            )
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

    def _request(self, ask: RoundRequest, iterations: int) -> tuple[Measure, RoundRequest]:
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
            registered=ask.calls.registered,
            group_calls=ask.calls.group_calls,
            first_round=ask.round,
            default_repeats=len(ask.repeats),
            warmup=_WARMUP,
            iterations=iterations,
            # The bench counts repeats from 0, also in a request for only the second repeat. With
            # the same seed, a replay would then return the timing of the first repeat again.
            seed=self._seed + ask.repeats[0],
            check=ask.check,
            timeout_s=max(_TIMEOUT_S, _TIMEOUT_FACTOR * longest),
        )
        return request, ask

    def _take_points(
        self, ask: RoundRequest, points: Sequence[BenchPoint], expected_s: float
    ) -> None:
        """Record points, and feed them to the plan; `expected_s` is 0 until the last ones."""
        self._expected_s += expected_s
        keyed = [(self._key(ask, point), point) for point in points]
        self._record.append(keyed)
        for key, point in keyed:
            self._points += point.is_kept
            if point.time_us is not None:
                us = point_us(key.bytes, point.time_us, point.iterations or 1)
                self._replayed_s += 1e-6 * us
            self._take(key, point)
        if keyed and time.monotonic() - self._last_update >= _UPDATE_EVERY_S:
            self._last_update = time.monotonic()
            self._update(*keyed[-1])

    @staticmethod
    def _key(ask: RoundRequest, point: BenchPoint) -> PointKey:
        repeat = ask.repeats[point.repeat] if point.choice == DEFAULT else 0
        return PointKey(ask.collective, point.bytes, point.choice, point.round, repeat, ask.calls)

    def _take(self, key: PointKey, point: BenchPoint) -> None:
        if not point.ok:
            self._failures.append((key, point))
        elif key.choice == DEFAULT and point.time_us is not None:
            self._default_us[key.collective, key.calls, key.bytes] = point.time_us
        self._plan.feed(key, point)

    def _update(self, key: PointKey, point: BenchPoint) -> None:
        status = SweepStatus(
            spent_s=self.spent_s,
            left_s=self._slowness() * self._plan.seconds_left(),
            points=self._points,
            known=self._reused,
            collective=key.collective,
            point=point,
            default_us=self._default_us.get((key.collective, key.calls, key.bytes)),
        )
        self._watcher.update(status, self._plan)
