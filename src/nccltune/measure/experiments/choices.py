# SPDX-License-Identifier: Apache-2.0
"""The sweep of NCCL's choices: its scope, its plan and its summary.

`measure/adaptive` decides what is measured next. The sweep ends when its plan has no request left,
or when `engine/scheduler.py` finds that the next request would exceed the time budget.
"""

import math
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from nccltune.analyze.result import Condition
from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive.collective_plan import (
    COARSE_FACTOR,
    CollectivePlan,
    Decide,
    JobShare,
    PlanOptions,
)
from nccltune.measure.adaptive.grid import ELEMENT_BYTES, Grid
from nccltune.measure.adaptive.nccl_tables import CollectiveTables, ask_tables
from nccltune.measure.adaptive.plan import ExhaustivePlan, Plan
from nccltune.measure.adaptive.time_estimate import TimeEstimator
from nccltune.measure.bench.conditions import PLAIN, CallKind
from nccltune.measure.bench.process import Bench
from nccltune.measure.engine.communicator import PlanRun, SweepOutcome, Watcher
from nccltune.measure.engine.point_record import PointRecord
from nccltune.measure.engine.record import Summary
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.model.scale import Scale
from nccltune.model.sizes import MAX_BYTES
from nccltune.study.files import Study
from nccltune.workload.demand import Demand, demands, sizes_to_measure
from nccltune.workload.table import Workload

LEAST_PORTION = 0.005
"""A collective with a smaller share of a job's time is not measured for it."""


class SweepScope(NamedTuple):
    """What to sweep: the collectives, at sizes from `low` to `high` bytes.

    `threshold` is the smallest gain that is worth a measurement, as a fraction (0.01 is 1 %).
    `rounds` is the number of rounds of a full grid; None for an adaptive plan. `budget_s` limits
    the time in seconds. `seed` shuffles the points of a request.

    `workload` are recordings of a job: only what it sends is measured, and a size counts by its
    time there. Then no `collectives`, and sizes of 0, are those of the job.

    With `registered` or `group_calls`, calls with registered buffers, or that many calls in a
    group, are measured beside plain calls. With both, the calls of the groups have registered
    buffers.
    """

    collectives: Sequence[Collective]
    low: int
    high: int
    threshold: float = 0.01
    rounds: int | None = None
    budget_s: float | None = None
    seed: int = 1
    registered: bool = False
    group_calls: int = 1
    workload: tuple[str, ...] = ()

    @property
    def kinds(self) -> list[CallKind]:
        """Return the kinds of calls to measure, plain calls first."""
        return list(dict.fromkeys((PLAIN, CallKind(self.registered, self.group_calls))))


def make_plan(
    tables: Sequence[CollectiveTables],
    scope: SweepScope,
    scale: Scale,
    decide: Decide,
    *,
    chunks: bool,
    wanted: Mapping[Collective, Demand] | None = None,
) -> Plan:
    """Return the plan of a sweep.

    `decide` runs the rule search on timings. `chunks` is whether the tuner interface can set chunk
    sizes. `wanted` is what a job calls, if it decides what is measured. Raises InputError if the
    full grid is asked for, too.
    """
    if wanted is not None and scope.rounds is not None:
        raise InputError("the full grid is not that of a job", where="‹workload›")
    shares, left_out = (None, None) if wanted is None else job_shares(tables, wanted)
    plans = [
        CollectivePlan(
            item.grid,
            scale,
            item.legal,
            decide,
            PlanOptions(threshold=scope.threshold, chunks=chunks),
            predicted=item.predicted,
            calls=item.calls,
            job=None if shares is None else shares[item.grid.collective],
        )
        for item in tables
        if shares is None or item.grid.collective in shares
    ]
    costs = {(item.grid.collective, item.calls): item.costs for item in tables}
    if scope.rounds is not None:
        return ExhaustivePlan(plans, costs, rounds=scope.rounds)
    return Plan(plans, costs, left_out)


def job_scope(
    scope: SweepScope, job: Workload, scale: Scale, able: Container[str] = TUNED
) -> SweepScope:
    """Return the scope with the collectives and sizes of a job, where it has none of its own.

    `able` are the collectives that can be measured. Raises InputError if the job calls nothing at
    this scale that NCCL asks a tuner about, or nothing of `able`.
    """
    wanted = demands(job, scale)
    collectives = [
        item
        for item in reversed(TUNED)
        if item in wanted and (item in scope.collectives if scope.collectives else item in able)
    ]
    if not collectives and not scope.collectives and any(item.tuned for item in wanted):
        called = ", ".join(item.prose for item in wanted if item.tuned)
        raise InputError(
            f"nothing that the job calls on {scale} can be measured here: {called}",
            where="‹workload›",
            hint="measure it with another bench or recording",
        )
    low, high = scope.low or 1, scope.high or MAX_BYTES
    sizes = [size for item in collectives for size in wanted[item].calls if low <= size <= high]
    if not sizes:
        scales = sorted({Scale(row.group.nodes, row.group.ranks) for row in job.rows})
        others = " and ".join(str(one) for one in scales[:3])
        raise InputError(
            f"the job calls nothing on {scale} that is to be measured; it ran on {others}",
            where="‹workload›",
            hint="measure at the scale of its communicators: ‹nodes›, ‹gpus› or ‹emulate_nodes›",
        )
    grids = [Grid(item, scale.ranks, 1, MAX_BYTES) for item in collectives]
    return scope._replace(
        collectives=collectives,
        low=max(ELEMENT_BYTES, scope.low or min(grid.enclosing(min(sizes))[0] for grid in grids)),
        high=scope.high or max(grid.enclosing(max(sizes))[1] for grid in grids),
    )


def unmeasured_bytes(
    wanted: Mapping[Collective, Demand], scope: SweepScope
) -> dict[Collective, float]:
    """Return what a job calls of collectives that a scope lacks, as shares of the job's bytes."""
    sent = {
        item: math.fsum(size * calls for size, calls in demand.calls.items())
        for item, demand in wanted.items()
    }
    whole = math.fsum(sent.values())
    return {item: part / whole for item, part in sent.items() if item not in scope.collectives}


def job_shares(
    tables: Sequence[CollectiveTables], wanted: Mapping[Collective, Demand]
) -> tuple[dict[Collective, JobShare], dict[Collective, float]]:
    """Return the sizes to explore and the share of the job's time, by collective.

    Times are the recorded ones or those that NCCL predicts. Collectives with less than
    `LEAST_PORTION` of the time, and sizes with less than a tenth of that, are left out. The second
    result has these collectives with their share.
    """
    times = {}
    for item in tables:
        grid = item.grid
        guess = TimeEstimator(Timings(Condition(grid.collective, Scale(1, 1))), item.costs)
        found = wanted[grid.collective].times(lambda size: guess.call_us(size, DEFAULT))  # noqa: B023
        own = {size: time for size, time in found.items() if grid.low <= size <= grid.high}
        times[grid.collective] = grid, own
    total = math.fsum(time for _, own in times.values() for time in own.values()) or 1.0
    shares, left_out = {}, {}
    for collective, (grid, own) in times.items():
        portion = math.fsum(own.values()) / total
        kept = {size: time for size, time in own.items() if time >= LEAST_PORTION * total / 10}
        if portion < LEAST_PORTION or not kept:
            left_out[collective] = portion
            continue
        sizes = sizes_to_measure(kept, len(grid.every(COARSE_FACTOR)))
        low, high = grid.enclosing(sizes[0])[0], grid.enclosing(sizes[-1])[1]
        inner = {grid.aligned(size) for size in sizes[1:-1]}
        shares[collective] = JobShare(sorted({low, *inner, high}), wanted[collective], portion)
    return shares, left_out


class ChoicesExperiment:
    """One sweep with a running bench.

    The constructor asks NCCL for its tables and makes the plan; only `record` and `run` write to a
    study. `decide` runs the rule search on timings. `job` is what `scope.workload` recorded. Raises
    InputError for a collective that the bench cannot measure and for a job that calls nothing at
    this scale, PlatformError if NCCL offers no choice, LaunchError if the bench ends or
    gives no answer.

    >>> from nccltune.examples import example
    >>> from nccltune.measure.bench.process import Launch
    >>> from nccltune.measure.engine.replayed_bench import open_bench
    >>> scope = SweepScope([Collective.ALLREDUCE], 1024, 4096)
    >>> with open_bench(Launch(replay=example("h200x4-1-node"))) as bench:
    ...     experiment = ChoicesExperiment(bench, scope, lambda timings: {})
    ...     [request.sizes for request in experiment.plan.outline()]
    [(1024, 4096)]
    """

    def __init__(
        self, bench: Bench, scope: SweepScope, decide: Decide, job: Workload | None = None
    ) -> None:
        hello = bench.hello
        scale = Scale(hello.nodes, hello.ranks)
        scope = scope if job is None else job_scope(scope, job, scale, hello.can.collectives)
        wanted = None if job is None else demands(job, scale)
        self._bench = bench
        self._scope = scope
        self._run: PlanRun[Plan] | None = None
        tables = ask_tables(bench, scope.collectives, scope.low, scope.high, scope.kinds)
        self.plan = make_plan(tables, scope, scale, decide, chunks=hello.can.chunk, wanted=wanted)
        self.plan.remarks = () if job is None else job.remarks
        self.plan.unmeasured = {} if wanted is None else unmeasured_bytes(wanted, scope)
        self._tables = {item.grid.collective: item.costs for item in tables if item.calls == PLAIN}

    def record(self, study: Study) -> PointRecord:
        """Return the record of this sweep, with NCCL's tables written. Raises StudyError."""
        record = PointRecord(study, self._bench.hello)
        record.keep_tables(self._tables)
        return record

    def run(self, record: PointRecord, watcher: Watcher[Plan]) -> SweepOutcome:
        """Measure until the plan has no request left or the budget is spent."""
        scope = self._scope
        self._run = PlanRun(
            self.plan, self._bench, record, watcher, budget_s=scope.budget_s, seed=scope.seed
        )
        return self._run.run()

    @property
    def outcome_so_far(self) -> SweepOutcome:
        """Return the outcome so far. `run` must have been called."""
        assert self._run is not None, "the sweep has not begun"
        return self._run.outcome_so_far

    def summary(self, reason: str, command: str) -> Summary:
        """Return the content of STUDY/sweep.json; `command` resumes the sweep."""
        outcome = self.outcome_so_far
        return Summary(
            reason=reason,
            points=outcome.points,
            known=outcome.known,
            failed=len(outcome.failures),
            seconds=outcome.seconds,
            gain_left=self.plan.gain_left,
            replay=self._bench.hello.replay,
            command=command,
        )
