# SPDX-License-Identifier: Apache-2.0
"""The sweep of NCCL's choices: its scope, its plan and its summary.

`measure/adaptive` decides what is measured next. The sweep ends when its plan has no request left,
or when `engine/scheduler.py` finds that the next request would exceed the time budget.
"""

from collections.abc import Sequence
from typing import NamedTuple

from nccltune.measure.adaptive.collective_plan import CollectivePlan, Decide, PlanOptions
from nccltune.measure.adaptive.nccl_tables import CollectiveTables, ask_tables
from nccltune.measure.adaptive.plan import ExhaustivePlan, Plan
from nccltune.measure.bench.conditions import PLAIN, CallKind
from nccltune.measure.bench.process import Bench
from nccltune.measure.engine.communicator import PlanRun, SweepOutcome, Watcher
from nccltune.measure.engine.point_record import PointRecord
from nccltune.measure.engine.record import Summary
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale
from nccltune.study.files import Study


class SweepScope(NamedTuple):
    """What to sweep: the collectives, at sizes from `low` to `high` bytes.

    `threshold` is the smallest gain worth a measurement (0.01 is 1 %). `rounds` is that of a full
    grid; None for an adaptive plan. Calls with `registered` buffers, and groups of `group_calls`,
    are measured beside plain ones.
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
) -> Plan:
    """Return the plan of a sweep; `decide` runs the rule search on timings."""
    plans = [
        CollectivePlan(
            item.grid,
            scale,
            item.legal,
            decide,
            PlanOptions(threshold=scope.threshold, chunks=chunks),
            predicted=item.predicted,
            calls=item.calls,
        )
        for item in tables
    ]
    costs = {(item.grid.collective, item.calls): item.costs for item in tables}
    if scope.rounds is not None:
        return ExhaustivePlan(plans, costs, rounds=scope.rounds)
    return Plan(plans, costs)


class ChoicesExperiment:
    """One sweep with a running bench.

    The constructor asks NCCL for its tables and makes the plan; only `record` and `run` write to a
    study. `decide` runs the rule search on timings. Raises InputError for a collective that the
    bench cannot measure, PlatformError if NCCL offers no choice, LaunchError if the bench ends or
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

    def __init__(self, bench: Bench, scope: SweepScope, decide: Decide) -> None:
        self._bench = bench
        self._scope = scope
        self._run: PlanRun[Plan] | None = None
        tables = ask_tables(bench, scope.collectives, scope.low, scope.high, scope.kinds)
        hello = bench.hello
        self.plan = make_plan(
            tables, scope, Scale(hello.nodes, hello.ranks), decide, chunks=hello.can.chunk
        )
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
