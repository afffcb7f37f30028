# SPDX-License-Identifier: Apache-2.0
"""How a run ended."""

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """What is known of a run that is over, or of which no more can be known."""

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    PENDING = "pending"
    LOST = "lost"


class End(NamedTuple):
    """The state, why in words, and the signal that stopped it from here."""

    state: State
    why: str = ""
    signal: int | None = None
