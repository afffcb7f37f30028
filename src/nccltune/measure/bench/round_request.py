# SPDX-License-Identifier: Apache-2.0
"""One round that a plan requests. Each point has a key, so that no point is measured twice.

A *point* is one timing: of one choice, at one size of one collective, in one round. The default has
several timings in a round, which are numbered by `repeat`.
"""

from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

from nccltune.measure.bench.conditions import PLAIN, CallKind
from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective

DEFAULT_REPEATS = 2
"""The number of timings of the default in every round. Their difference shows the noise."""


class PointKey(NamedTuple):
    """The key of one point of a sweep."""

    collective: Collective
    bytes: int
    choice: AnyChoice
    round: int
    repeat: int
    calls: CallKind = PLAIN


class RoundRequest(NamedTuple):
    """One round of some choices at some sizes of one collective.

    `repeats` are those of the default. With `check`, the bench compares results with a reference.
    """

    collective: Collective
    sizes: tuple[int, ...]
    choices: tuple[AnyChoice, ...]
    round: int
    check: bool = False
    repeats: tuple[int, ...] = tuple(range(DEFAULT_REPEATS))
    calls: CallKind = PLAIN

    def points(self) -> Iterator[PointKey]:
        """Yield the key of every requested point."""
        for size in self.sizes:
            for choice in self.choices:
                for repeat in self.repeats if choice == DEFAULT else (0,):
                    yield PointKey(self.collective, size, choice, self.round, repeat, self.calls)

    def without(self, known: Container[PointKey]) -> "list[RoundRequest]":
        """Return requests for those points of this request that are not in `known`."""
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
    """Further rounds at one size: the choices beside the default, and the rounds' numbers."""

    choices: tuple[Choice, ...]
    rounds: tuple[int, ...]


RequestSource = Callable[[], list[RoundRequest]]
"""Returns the next requests, which must be answered before the next call; empty at the end."""
