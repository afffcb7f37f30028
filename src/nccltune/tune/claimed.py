# SPDX-License-Identifier: Apache-2.0
"""The sizes that each line of a configuration applies to: the first line that matches wins."""

import bisect
from collections.abc import Iterator
from typing import NamedTuple


class Claim(NamedTuple):
    """The sizes `low` to `high` in bytes, both inclusive, that belong to `line`."""

    low: int
    high: int
    line: int


class ClaimedSizes:
    """Disjoint claims in order of size. A claim takes only unclaimed sizes."""

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._claims: list[Claim] = []

    def within(self, low: int, high: int) -> Iterator[Claim]:
        """Yield the claims that overlap `low` to `high`, cut to that range, by size."""
        place = max(0, bisect.bisect_right(self._lows, low) - 1)
        for claim in self._claims[place:]:
            if claim.low > high:
                return
            if claim.high >= low:
                yield Claim(max(claim.low, low), min(claim.high, high), claim.line)

    def take(self, low: int, high: int, line: int) -> None:
        """Claim the sizes from `low` to `high` that no line has claimed yet."""
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
