# SPDX-License-Identifier: Apache-2.0
"""A round that a plan requests, with a key for each point, so that no point is measured twice."""

from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective

DEFAULT_REPEATS = 2
"""Timings of the default in every round. The difference between the two shows the noise."""


class PointKey(NamedTuple):
    """The key of one point of a sweep."""

    collective: Collective
    bytes: int
    choice: AnyChoice
    round: int
    repeat: int


class RoundRequest(NamedTuple):
    """One round of some choices at some sizes of one collective.

    `repeats` are the requested repeats of the default; every other choice is timed once, as repeat
    0. With `check`, results are compared with the reference.
    """

    collective: Collective
    sizes: tuple[int, ...]
    choices: tuple[AnyChoice, ...]
    round: int
    check: bool = False
    repeats: tuple[int, ...] = tuple(range(DEFAULT_REPEATS))

    def points(self) -> Iterator[PointKey]:
        """Yield the key of every requested point."""
        for size in self.sizes:
            for choice in self.choices:
                for repeat in self.repeats if choice == DEFAULT else (0,):
                    yield PointKey(self.collective, size, choice, self.round, repeat)

    def without(self, known: Container[PointKey]) -> "list[RoundRequest]":
        """Return requests for the points of this one that are not in `known`."""
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


class FurtherRounds(NamedTuple):
    """Further rounds of some choices at a size, always beside the default."""

    choices: tuple[Choice, ...]
    rounds: tuple[int, ...]


RequestSource = Callable[[], list[RoundRequest]]
"""Returns what to measure next; an empty list when done. All requests must be answered before it is
called again."""
