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


class End(NamedTuple):
    """The state, its reason as a sentence, and the signal by which the user stopped it."""

    state: RunState
    why: str = ""
    signal: int | None = None
