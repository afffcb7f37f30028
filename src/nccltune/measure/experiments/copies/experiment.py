# SPDX-License-Identifier: Apache-2.0
"""The comparison of NCCL with copy engines by message size, in pairs of alternating order."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from nccltune.analyze.stats import MIN_ROUNDS
from nccltune.measure.bench.conversation import Hello
from nccltune.measure.engine.scheduler import (
    Budget,
    CallTask,
    EndReason,
    ExperimentStatus,
    Scheduler,
    StatusCallback,
    ignore_status,
    sequential_source,
)
from nccltune.measure.engine.workload import Workload
from nccltune.measure.experiments.copies.processes import BenchProcess, CopyProcesses, Starter
from nccltune.measure.experiments.copies.record import COMPUTE, ProcessRecord
from nccltune.measure.experiments.copies.settings import Carrier, check_sizes
from nccltune.measure.experiments.copies.verdict import (
    CopiesVerdict,
    PairGains,
    carried,
    decide,
    points,
)
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, PlatformError

PAIRS = 6
LEAST_PAIRS = MIN_ROUNDS
"""The least number of pairs. Fewer pairs do not show the noise."""
NOISE_FLOOR = 0.02
_STEP_BYTES = 16


class CopiesScope(NamedTuple):
    """A comparison of sizes from `low` to `high` bytes in `pairs`: NCCL, copy engines.

    With `load`, the GPUs compute meanwhile. Differences below `noise_floor` (0.02 is 2 %) do not
    count.
    """

    low: int
    high: int
    pairs: int = PAIRS
    load: bool = False
    noise_floor: float = NOISE_FLOOR
    budget_s: float | None = None
    seed: int = 1


def check_scope(scope: CopiesScope) -> None:
    """Raise InputError for options that cannot lead to a decision."""
    check_sizes(scope.low, scope.high)
    if scope.pairs < LEAST_PAIRS:
        raise InputError(
            f"{LEAST_PAIRS} pairs at least are needed to estimate the noise", where="‹pairs›"
        )


class CopiesExperiment:
    """One comparison in one study; `start` starts a process, `first` is a running one of NCCL.

    Raises InputError for a scope that cannot lead to a decision, PlatformError for several nodes
    and for a machine that cannot measure it, StudyError for a damaged study.
    """

    def __init__(
        self,
        start: Starter,
        first: BenchProcess,
        files: ProcessRecord,
        scope: CopiesScope,
        on_status: StatusCallback = ignore_status,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        check_scope(scope)
        _check(first.hello, scope)
        self._scope = scope
        self._on_status = on_status
        calls = Workload({Collective.SENDRECV: _sizes(scope.low, scope.high)}, scope.load)
        self._processes = CopyProcesses(start, first, files, calls, seed=scope.seed, now=now)
        self._results = PairGains(self._processes.sizes, scope.pairs)

    @property
    def processes_to_come(self) -> int:
        """Return about how many processes must still be started."""
        return 2 * max(0, self._scope.pairs - len(self._results.gains()))

    @property
    def seconds_to_come(self) -> float:
        """Return about how long the processes still to start take, in seconds."""
        return self.processes_to_come * self._processes.times.expected_s

    def run(self) -> CopiesVerdict:
        """Measure, and return the verdict. Raises the errors of `measure`."""
        return self.verdict(self.measure())

    def measure(self) -> EndReason:
        """Measure until the result is decided or the budget is spent; all is in the study.

        Raises LaunchError, PlatformError or InputError if NCCL alone does not run or is wrong,
        LaunchError if no size can be measured, StudyError for a failed write.
        """
        budget = Budget(self._scope.budget_s, lambda: self._processes.times.spent_s)
        return Scheduler(budget).run([sequential_source(self._tasks())])

    def verdict(self, reason: str) -> CopiesVerdict:
        """Return the verdict on the results so far. `reason` is why the measurement ended."""
        results, floor = self._results, math.log1p(self._scope.noise_floor)
        decision, hello = decide(results, floor), self._processes.hello
        failed = results.failed
        return CopiesVerdict(
            reason=reason,
            failed={} if failed is None else {Carrier.COPY_ENGINE.value: failed},
            noise=results.noise(results.sizes),
            nodes=hello.nodes,
            ranks=hello.ranks,
            processes=self._processes.times.processes,
            known=self._processes.known,
            seconds=self._processes.times.spent_s,
            replay=hello.replay,
            settings=decision.settings,
            decided=decision.decided,
            from_bytes=decision.from_bytes,
            why=decision.why,
            load=COMPUTE if self._scope.load else None,
            noise_floor=self._scope.noise_floor,
            points=points(results, floor, decision.from_bytes),
            carried=carried(results),
        )

    def steps(self) -> Iterator[Carrier]:
        """Yield what carries each next process, until all pairs have run."""
        pair = [Carrier.NATIVE, Carrier.COPY_ENGINE]
        # An interruption can split a pair, and a split pair does not count. Allow twice the pairs.
        for _ in range(2 * self._scope.pairs):
            if self._results.compared or self._results.failed is not None:
                return
            yield from pair
            pair.reverse()  # Drift of the machine cancels.

    def _tasks(self) -> Iterator[Sequence[CallTask]]:
        if self._processes.probe is None:
            yield [CallTask(self._processes.times.expected_s, self._probe)]
        for carrier in self.steps():
            recorded = self._processes.recorded(carrier)
            for run in recorded:
                self._results.add(run)
            if recorded:
                self._report(carrier)
                continue
            for item in self._processes.to_measure(carrier):
                yield [self._task(item, report=item is carrier)]

    def _task(self, carrier: Carrier, *, report: bool) -> CallTask:
        def run() -> None:
            self._results.add(self._processes.measure(carrier))
            if report:
                self._report(carrier)

        return CallTask(self._processes.times.expected_s, run)

    def _probe(self) -> None:
        self._processes.measure_probe()
        self._results = PairGains(self._processes.sizes, self._scope.pairs)

    def _report(self, carrier: Carrier) -> None:
        times, results = self._processes.times, self._results
        gains = results.gains() if carrier is Carrier.COPY_ENGINE else []
        self._on_status(
            ExperimentStatus(
                process=times.processes + self._processes.known,
                processes=None,
                what=carrier.value,
                spent_s=times.spent_s,
                left_s=self.seconds_to_come,
                gain=math.exp(results.pooled(gains, results.sizes).value) if gains else None,
            )
        )


def _check(hello: Hello, scope: CopiesScope) -> None:
    if hello.nodes > 1:
        raise PlatformError(
            f"copy engines reach the GPUs of one node; this bench is on {hello.nodes}",
            hint="measure on one node: a threshold holds for all that are alike",
        )
    if Collective.SENDRECV.value not in hello.can.collectives:
        raise PlatformError("the bench cannot measure send/recv here")
    if scope.load and not hello.can.load:
        raise PlatformError(
            "the bench cannot compute beside the calls here", hint="leave ‹load› out"
        )


def _sizes(low: int, high: int) -> list[int]:
    """Return sizes that double from `low` to `high`, whole vectors of 16 bytes."""
    sizes = [high]
    size = low
    while size < high:
        sizes.append(size)
        size *= 2
    return sorted({max(1, round(item / _STEP_BYTES)) * _STEP_BYTES for item in sizes})
