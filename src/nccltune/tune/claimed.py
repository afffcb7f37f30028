# SPDX-License-Identifier: Apache-2.0
"""Compute the sizes to which each line of a configuration applies.

The first line that matches a size wins, so a line claims only sizes that no earlier line has.
"""

import bisect
from collections.abc import Iterator
from typing import NamedTuple


class Claim(NamedTuple):
    """A range of sizes, `low` to `high` bytes (both inclusive), that belongs to line `line`."""

    low: int
    high: int
    line: int


class ClaimedSizes:
    """Claims that do not overlap, in ascending order of size."""

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._claims: list[Claim] = []

    def within(self, low: int, high: int) -> Iterator[Claim]:
        """Yield the claims that overlap `low` to `high`, cut to that range, in order of size."""
        place = max(0, bisect.bisect_right(self._lows, low) - 1)
        for claim in self._claims[place:]:
            if claim.low > high:
                return
            if claim.high >= low:
                yield Claim(max(claim.low, low), min(claim.high, high), claim.line)

    def take(self, low: int, high: int, line: int) -> None:
        """Claim for `line` the sizes from `low` to `high` that no line has claimed yet."""
        reached = low
        for claim in list(self.within(low, high)):
            if claim.low > reached:
                self._insert(Claim(reached, claim.low - 1, line))
            reached = claim.high + 1
        if reached <= high:
            self._insert(Claim(reached, high, line))

    def _insert(self, claim: Claim) -> None:
        place = bisect.bisect_left(self._lows, claim.low)
        self._lows.insert(place, claim.low)
        self._claims.insert(place, claim)
