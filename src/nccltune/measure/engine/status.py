# SPDX-License-Identifier: Apache-2.0
"""The progress that an experiment reports while it runs one process after the other."""

from collections.abc import Callable
from typing import NamedTuple


class ExperimentStatus(NamedTuple):
    """The progress of an experiment: process number `process` of `processes` (None: unknown).

    `what` describes the settings of the present or the last process. `gain` is the mean gain of
    these settings over the default so far (1.1 is 1.1 times as fast); None if unknown. `stage` is
    the stage of the experiment. `spent_s` and `left_s` are seconds.
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
