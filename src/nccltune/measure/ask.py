# SPDX-License-Identifier: Apache-2.0
"""What a plan asks for, point by point, so that no point is ever measured twice."""

from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective

DEFAULT_REPEATS = 2
"""The default stands twice in every round: how far its two timings lie apart is the noise."""


class Key(NamedTuple):
    """Names one point of a sweep."""

    collective: Collective
    bytes: int
    choice: AnyChoice
    round: int
    repeat: int


class Ask(NamedTuple):
    """One round over some choices at some sizes of one collective.

    `repeats` says which repeats of the default are asked for; every other choice stands once, at
    repeat 0. `check` asks for results to be compared with the reference.
    """

    collective: Collective
    sizes: tuple[int, ...]
    choices: tuple[AnyChoice, ...]
    round: int
    check: bool = False
    repeats: tuple[int, ...] = tuple(range(DEFAULT_REPEATS))

    def points(self) -> Iterator[Key]:
        """Every point of it."""
        for size in self.sizes:
            for choice in self.choices:
                for repeat in self.repeats if choice == DEFAULT else (0,):
                    yield Key(self.collective, size, choice, self.round, repeat)

    def without(self, known: Container[Key]) -> "list[Ask]":
        """What is still to be measured of it where the points `known` are there already."""
        missing: dict[tuple[tuple[AnyChoice, ...], tuple[int, ...]], list[int]] = {}
        for size in self.sizes:
            keys = self._replace(sizes=(size,)).points()
            left = [key for key in keys if key not in known]
            if left:
                choices = tuple(dict.fromkeys(key.choice for key in left))
                repeats = tuple(key.repeat for key in left if key.choice == DEFAULT)
                missing.setdefault((choices, repeats or self.repeats), []).append(size)
        return [
            self._replace(sizes=tuple(sizes), choices=choices, repeats=repeats)
            for (choices, repeats), sizes in missing.items()
        ]


class Repeat(NamedTuple):
    """Further rounds of some choices at a size, always beside the default."""

    choices: tuple[Choice, ...]
    rounds: tuple[int, ...]


Turn = Callable[[], list[Ask]]
"""Says what to measure next, nothing when done. All of it has to be answered before it is called
again."""
