# SPDX-License-Identifier: Apache-2.0
"""The order of processes: candidates run next to defaults, so that drift of the machine cancels.

A *default* is a process with NCCL's default settings, a *candidate* a process with other settings.
"""

import random
from collections.abc import Generator, Iterator, Sequence
from typing import Protocol

from nccltune.measure.engine.gains import NeighbourGains
from nccltune.measure.engine.settings import DEFAULT, Settings

_SPACING = 2
"""The number of candidates between two defaults."""

ProcessSteps = Generator[Settings, None, None]
"""Yields the settings of the process to start next. The results of that process must be added
before the next value is requested."""


class ProcessPlan(Protocol):
    """Decides which process to start next. `stage` is the present stage, for display."""

    results: NeighbourGains
    stage: str

    def steps(self) -> ProcessSteps:
        """Yield the settings of every process, until nothing is left to decide."""

    def still_to_start(self) -> int:
        """Return about how many processes must still be started."""


def shuffled_starts(
    results: NeighbourGains, settings: Sequence[Settings], starts: int, order: random.Random
) -> ProcessSteps:
    """Yield the settings of processes until each of `settings` has run `starts` times.

    The order is shuffled by `order`. A default runs before and after every two candidates. Settings
    that have failed are skipped.
    """
    missing = [item for item in settings for _ in range(starts - len(results.runs_with(item)))]
    order.shuffle(missing)
    for item in missing:
        if item in results.failed:
            continue
        since = results.candidates_since_default()
        if since is None or since >= _SPACING:
            yield DEFAULT
        yield item
    if results.candidates_since_default():
        yield DEFAULT


def alternating(one: Settings, other: Settings, most: int) -> Iterator[tuple[Settings, Settings]]:
    """Yield `most` pairs of processes to start one after the other.

    `one` is first in the first, third, ... pair, and `other` in the pairs between, so that drift
    cancels.
    """
    for number in range(most):
        yield (one, other) if number % 2 == 0 else (other, one)
