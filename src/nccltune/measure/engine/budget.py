# SPDX-License-Identifier: Apache-2.0
"""The time limit of an experiment, and how long its processes take."""

import math
from collections.abc import Callable, Iterable

FIRST_GUESS_S = 5.0
"""Assumed duration of a process in seconds, before any process has run. Most of it is the start of
NCCL."""


class Budget:
    """A time limit of `limit_s` seconds (None: no limit).

    `spent_s` returns the seconds spent so far; in a replay, the seconds that the recorded
    measurements took. `pace` returns how many times longer tasks take than expected.
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
    """The number of processes that an experiment has run, and the seconds they took.

    `before` are the durations, in seconds, of the processes of earlier runs of this experiment.
    These processes count for `expected_s`, but not for `processes` and `spent_s`.
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
        """Return about how long the next process takes, in seconds: the mean of all so far.

        Before any process has run, return `FIRST_GUESS_S`.
        """
        if not self._seconds:
            return FIRST_GUESS_S
        return math.fsum(self._seconds) / len(self._seconds)
