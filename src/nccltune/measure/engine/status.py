# SPDX-License-Identifier: Apache-2.0
"""What an experiment of processes reports while it runs."""

from collections.abc import Callable
from typing import NamedTuple


class ExperimentStatus(NamedTuple):
    """The progress of an experiment: process number `process` of `processes` (None: unknown).

    `what` describes what runs, or has just run. `gain` is the mean gain of `what` over the default
    so far (1.1 is 1.1 times as fast), None where unknown.
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
