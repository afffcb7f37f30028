# SPDX-License-Identifier: Apache-2.0
"""Wait for an event, never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


def wait_until(
    condition: Callable[[], Seen], what: object = "", limit_s: float = 120.0, every_s: float = 0.01
) -> Seen:
    """Ask until the answer is true, and return it. The limit is for a machine at work."""
    deadline = time.monotonic() + limit_s
    while not (seen := condition()):
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(every_s)
    return seen
