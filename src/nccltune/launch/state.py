# SPDX-License-Identifier: Apache-2.0
"""The ways in which a run can end."""

from enum import StrEnum
from typing import NamedTuple


class RunState(StrEnum):
    """How a run ended. PENDING: it did not start in time. LOST: its state is unknown."""

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    PENDING = "pending"
    LOST = "lost"


class RunEnd(NamedTuple):
    """The state of a run, its reason in words, and the signal if a user stopped the run."""

    state: RunState
    why: str = ""
    signal: int | None = None
