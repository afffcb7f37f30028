# SPDX-License-Identifier: Apache-2.0
"""The scheduler that all experiments share.

The scheduler starts tasks in the order in which an experiment requests them, until no task is left
or the next task would exceed the time budget. A task is one request to a running bench, one
process, or one round of processes. The scheduler knows only how long a task should take.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

FIRST_GUESS_S = 5.0
"""Assumed seconds of a process before any has run, mostly to start NCCL."""


class Budget:
    """A time limit of `limit_s` seconds (None: no limit), of the recorded ones in a replay.

    `pace` returns how many times longer tasks take than expected.
    """

    def __init__(
        self,
        limit_s: float | None,
        spent_s: Callable[[], float],
        pace: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self._limit_s = limit_s
        self._spent_s = spent_s
        self._pace = pace

    def affords(self, seconds: float) -> bool:
        """Return whether a task that is expected to take `seconds` still fits into the limit."""
        return self._limit_s is None or self._spent_s() + seconds * self._pace() <= self._limit_s


class ProcessTimes:
    """The number of processes that an experiment has run, and their seconds.

    Those of earlier runs (`before`) count only for `expected_s`.
    """

    def __init__(self, before: Iterable[float]) -> None:
        self.processes = 0
        self.spent_s = 0.0
        self._seconds = list(before)

    def add(self, seconds: float) -> None:
        """Count a process that has ended after `seconds`."""
        self.processes += 1
        self.spent_s += seconds
        self._seconds.append(seconds)

    @property
    def is_known(self) -> bool:
        """Return whether a process has run."""
        return bool(self._seconds)

    @property
    def expected_s(self) -> float:
        """Return about how long the next process takes: the mean of all, or `FIRST_GUESS_S`."""
        if not self._seconds:
            return FIRST_GUESS_S
        return math.fsum(self._seconds) / len(self._seconds)


class ExperimentStatus(NamedTuple):
    """The progress of an experiment: process number `process` of `processes` (None: unknown).

    `gain` is the mean gain of the settings `what` over the default (1.1: 1.1 times as fast).
    """

    process: int
    processes: int | None
    what: str
    spent_s: float
    left_s: float
    stage: str = ""
    gain: float | None = None


StatusCallback = Callable[[ExperimentStatus], None]


def ignore_status(status: ExperimentStatus) -> None:
    """Report nothing."""


EndReason = Literal["done", "budget"]


class Task(Protocol):
    """One piece of work. It is started once, then advanced until it is finished."""

    @property
    def expected_s(self) -> float:
        """Return about how long the task takes, in seconds."""

    def start(self) -> None:
        """Start the task without waiting for results."""

    def advance(self) -> bool:
        """Wait for results and record them; True after the last. An exception ends the run."""


class CallTask:
    """A task that calls a function once, for example to run a process to its end."""

    def __init__(self, expected_s: float, run: Callable[[], None]) -> None:
        self.expected_s = expected_s
        self._run = run

    def start(self) -> None:
        """Do nothing: the work is done in `advance`."""

    def advance(self) -> bool:
        """Do all the work."""
        self._run()
        return True


TaskSource = Callable[[], Sequence[Task] | None]
"""Returns the tasks to run next, when all others are finished; None at the end.

An empty sequence, if the study already had all results, asks for another call.
"""


def sequential_source(steps: Iterator[Sequence[Task]]) -> TaskSource:
    """Return a source whose tasks come from an iterator, one item after the other."""
    return lambda: next(steps, None)


class Scheduler:
    """Runs the tasks of several sources. Sources do not wait for each other.

    At most `ahead` tasks run at a time. With 2, an executor already has its next task while the
    results of the last one are analysed.

    >>> ran = []
    >>> source = sequential_source(iter([[CallTask(1.0, lambda: ran.append("a"))]]))
    >>> Scheduler(Budget(60.0, lambda: 0.0)).run([source]), ran
    ('done', ['a'])
    """

    def __init__(self, budget: Budget, *, ahead: int = 1) -> None:
        self._budget = budget
        self._ahead = ahead
        self._waiting: deque[tuple[TaskSource, Task]] = deque()
        self._running: deque[tuple[TaskSource, Task]] = deque()

    def run(self, sources: Sequence[TaskSource]) -> EndReason:
        """Run until no source has a task left ("done") or the next one exceeds the budget.

        Running tasks are finished. An exception of a task or a source is not caught.
        """
        idle = deque(sources)
        while True:
            if not self._start_waiting():
                while self._running:
                    self._advance()
                return "budget"
            if idle:
                source = idle.popleft()
                tasks = source()
                if tasks is not None:
                    self._waiting.extend((source, task) for task in tasks)
                    if not tasks:
                        idle.append(source)
            elif self._running:
                source, _ = self._running[0]
                self._advance()
                if all(other is not source for other, _ in (*self._running, *self._waiting)):
                    idle.append(source)
            else:
                return "done"

    def _start_waiting(self) -> bool:
        """Start what may run now; False if the next task would exceed the budget."""
        while self._waiting and len(self._running) < self._ahead:
            _, task = self._waiting[0]
            ahead_s = math.fsum(other.expected_s for _, other in self._running)
            if not self._budget.affords(ahead_s + task.expected_s):
                return False
            # Remove the task first: if `start` raises, the task is neither waiting nor running.
            source, _ = self._waiting.popleft()
            task.start()
            self._running.append((source, task))
        return True

    def _advance(self) -> None:
        _, task = self._running[0]
        if task.advance():
            self._running.popleft()
