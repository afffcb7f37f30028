# SPDX-License-Identifier: Apache-2.0
"""Which process took which timing when, and what the study records of it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tests.simulation.effects import CHOICES, PLANTED

Ints = NDArray[np.int64]
Evidence = Literal["none", "timing", "process"]
"""What `Sample.at` holds: nothing, the second of the timing, or the start of its process."""

DEFAULT_NUMBER = 0
FIRST_POWER, LAST_POWER = 10, 30
GROUP = 4
"""A sweep measures so many sizes in random order before it goes on to larger ones."""


@dataclass
class Plan:
    """Timings in the order in which they were taken; arrays with one element each.

    `process` numbers processes by start; `round` is that of the sample.
    """

    sizes: list[int]
    choice: Ints
    size: Ints
    process: Ints
    round: Ints
    repeat: Ints
    in_place: NDArray[np.bool_]

    @property
    def count(self) -> int:
        return len(self.choice)

    @property
    def time(self) -> NDArray[np.float64]:
        """When each timing was taken: 0 is the start of the study, 1 its end."""
        return (np.arange(self.count) + 0.5) / self.count


@dataclass(frozen=True)
class Layout:
    """A way to take timings. `paired`: choice is separable from process and time, so that
    a rule may be sure."""

    name: str
    make: Callable[[np.random.Generator], Plan]
    processes: bool = True
    in_rounds: bool = False
    at: Evidence = "process"
    paired: bool = True


def powers(step: int) -> list[int]:
    """1 KiB to 1 GiB."""
    return [1 << power for power in range(FIRST_POWER, LAST_POWER + 1, step)]


def sweep(rounds: int, step: int = 1, starts: int = 1) -> Callable[[np.random.Generator], Plan]:
    """nccltune's own bench: every choice in every round, the default twice, in random order.

    With several `starts` each runs all choices for its share of the rounds.
    """
    sizes = powers(step)

    def make(rng: np.random.Generator) -> Plan:
        points = [(choice, 0) for choice in range(len(CHOICES))] + [(DEFAULT_NUMBER, 1)]
        rows = [
            (choice, size, round_ * starts // rounds, round_, repeat, 0)
            for round_ in range(rounds)
            for first in range(0, len(sizes), GROUP)
            for choice, size, repeat in _shuffled(
                [
                    (choice, size, repeat)
                    for size in range(first, min(first + GROUP, len(sizes)))
                    for choice, repeat in points
                ],
                rng,
            )
        ]
        return _plan(sizes, rows)

    return make


def _shuffled(
    points: Sequence[tuple[int, int, int]], rng: np.random.Generator
) -> Iterable[tuple[int, int, int]]:
    return (points[number] for number in rng.permutation(len(points)))


Order = Callable[[Sequence[int], int, np.random.Generator], list[int]]
"""The choice of each process, by start: from the choices, and the number of processes of each."""


def _fixed(choices: Sequence[int], runs: int, rng: np.random.Generator) -> list[int]:
    return list(choices) * runs


def _random(choices: Sequence[int], runs: int, rng: np.random.Generator) -> list[int]:
    return [int(choice) for _ in range(runs) for choice in rng.permutation(choices)]


def _twice(choices: Sequence[int], runs: int, rng: np.random.Generator) -> list[int]:
    return [*choices, DEFAULT_NUMBER] * runs


def _blocked(choices: Sequence[int], runs: int, rng: np.random.Generator) -> list[int]:
    return [choice for choice in choices for _ in range(runs)]


def _between(choices: Sequence[int], runs: int, rng: np.random.Generator) -> list[int]:
    """The default before each of the others."""
    others = [choice for choice in choices if choice != DEFAULT_NUMBER]
    return [number for choice in others for number in (DEFAULT_NUMBER, choice)] * runs


def _pairs(choices: Sequence[int], runs: int, rng: np.random.Generator) -> list[int]:
    """Two in a row of each."""
    return _blocked(choices, 2, rng) * (runs // 2)


def _shuffled_runs(choices: Sequence[int], runs: int, rng: np.random.Generator) -> list[int]:
    return [int(choice) for choice in rng.permutation(_fixed(choices, runs, rng))]


ALL = tuple(range(len(CHOICES)))
TWO = (DEFAULT_NUMBER, PLANTED)


def files(
    order: Order,
    runs: int,
    *,
    choices: Sequence[int] = ALL,
    step: int = 1,
    cycles: int = 1,
    places: int = 2,
) -> Callable[[np.random.Generator], Plan]:
    """nccl-tests: a process runs one choice at all sizes, out of place and in place, `cycles`
    times. Rounds are counted by occurrence, as the importer does."""
    sizes = powers(step)

    def make(rng: np.random.Generator) -> Plan:
        seen = [0] * len(CHOICES)
        rows = []
        for process, choice in enumerate(order(choices, runs, rng)):
            for _ in range(cycles):
                rows += [
                    (choice, size, process, seen[choice], 0, place)
                    for size in range(len(sizes))
                    for place in range(places)
                ]
                seen[choice] += 1
        return _plan(sizes, rows)

    return make


def _plan(sizes: list[int], rows: Sequence[tuple[int, ...]]) -> Plan:
    choice, size, process, round_, repeat, place = np.array(rows, dtype=np.int64).T
    return Plan(sizes, choice, size, process, round_, repeat, place.astype(bool))


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        # nccltune's own sweep.
        Layout("sweep-4", sweep(4), at="timing"),
        Layout("sweep-8", sweep(8), at="timing"),
        Layout("sweep-8-coarse", sweep(8, step=2), at="timing"),
        Layout("sweep-2x4", sweep(8, starts=2), at="timing"),
        Layout("sweep-4-old", sweep(4), processes=False, at="none"),
        Layout("sweep-8-old", sweep(8), processes=False, at="none"),
        # nccl-tests, one choice a process, interleaved, with evidence of that.
        Layout("files-3", files(_fixed, 3)),
        Layout("files-4", files(_fixed, 4)),
        Layout("files-4-two", files(_fixed, 4, choices=TWO)),
        Layout("files-8", files(_fixed, 8)),
        Layout("files-8-coarse", files(_fixed, 8, step=2)),
        Layout("files-8-random", files(_random, 8)),
        Layout("files-8-twice", files(_twice, 8)),
        Layout("files-4-cycles", files(_fixed, 4, cycles=4)),
        Layout("files-8-shuffled", files(_shuffled_runs, 8)),
        Layout("files-3-between", files(_between, 3)),
        Layout("files-8-pairs", files(_pairs, 8)),
        Layout("files-4-stated", files(_fixed, 4), in_rounds=True, at="none"),
        Layout("files-8-stated", files(_fixed, 8), in_rounds=True, at="none"),
        # The same without evidence, and layouts that cannot separate choice from time or process.
        Layout("files-8-bare", files(_fixed, 8), at="none", paired=False),
        Layout("files-8-twice-bare", files(_twice, 8), at="none", paired=False),
        Layout("blocked-4", files(_blocked, 4), paired=False),
        Layout("blocked-4-bare", files(_blocked, 4), at="none", paired=False),
        Layout("blocked-4-two", files(_blocked, 4, choices=TWO), paired=False),
        Layout("blocked-8", files(_blocked, 8), paired=False),
        Layout("cycles-8", files(_fixed, 1, cycles=8), paired=False),
        Layout("cycles-8-bare", files(_fixed, 1, cycles=8), at="none", paired=False),
        Layout("single", files(_fixed, 1), paired=False),
        Layout("single-coarse", files(_fixed, 1, step=2), at="none", paired=False),
        Layout("single-one-place", files(_fixed, 1, places=1), at="none", paired=False),
    )
}
