# SPDX-License-Identifier: Apache-2.0
"""How a run ended."""

from enum import StrEnum
from typing import NamedTuple


class RunState(StrEnum):
    """How a run ended, as far as it is known."""

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    PENDING = "pending"
    LOST = "lost"


class RunEnd(NamedTuple):
    """The state of a run, its reason in words, and the signal with which a user stopped it."""

    state: RunState
    why: str = ""
    signal: int | None = None
