# SPDX-License-Identifier: Apache-2.0
"""Find the numbers of ranks that a table's own numbers allow.

For n ranks, busbw / algbw is 2(n-1)/n for all-reduce and (n-1)/n for all-gather, reduce-scatter,
all-to-all, gather and scatter (nccl-tests, `doc/PERFORMANCE.md`). If `count` is per rank, size /
count also gives n. Send/recv, broadcast and reduce give no information.
"""

from math import ceil, floor, inf
from typing import NamedTuple

from nccltune.formats.nccl_tests.checks import rounding_by_hand
from nccltune.formats.nccl_tests.columns import DTYPE_BYTES, FlatRow
from nccltune.model.collective import Collective

_LIMITS = {
    Collective.ALLREDUCE: 2.0,
    Collective.ALLGATHER: 1.0,
    Collective.REDUCESCATTER: 1.0,
    Collective.ALLTOALL: 1.0,
    Collective.GATHER: 1.0,
    Collective.SCATTER: 1.0,
    Collective.HYPERCUBE: 1.0,
}
_FIRST_TIME = 7
_LEAST_BUSBW = 0.1
"""Least bus bandwidth in GB/s that is used. A lower one is printed with one digit, which is too
rough."""
_CLOSE = 1e-6


class RankBounds(NamedTuple):
    """The smallest and the largest number of ranks that all rows allow.

    `most` is None if there is no upper limit. `rows_disagree` means that no number of ranks fits
    all rows.
    """

    least: int
    most: int | None
    rows_disagree: bool = False

    @property
    def exact(self) -> int | None:
        """Return the only number that fits; None if there are several or none."""
        return self.least if self.least == self.most and not self.rows_disagree else None

    def allow(self, ranks: int) -> bool:
        """Return whether this number of ranks fits all rows."""
        if self.rows_disagree:
            return False
        return ranks >= self.least and (self.most is None or ranks <= self.most)

    @property
    def words(self) -> str:
        """Return `96 ranks`, `180 to 210 ranks` or `at least 900 ranks`."""
        if self.least == self.most:
            return f"{self.least} ranks"
        if self.most is None:
            return f"at least {self.least} ranks"
        return f"{self.least} to {self.most} ranks"


def rank_bounds(rows: list[FlatRow], collective: Collective) -> RankBounds | None:
    """Return the numbers of ranks that `rows` allow; None if the rows give no information."""
    limit = _LIMITS.get(collective)
    if limit is None or not rows:
        return None
    if collective.counts_per_rank and (counted := bounds_by_count(rows)) is not None:
        return counted
    low, high, used = 2.0, inf, False
    for place in range(_FIRST_TIME, len(rows[0]), 3):
        for row in rows:
            size, time_us, busbw = row[1], row[place], row[place + 1]
            if not time_us or busbw is None or busbw < _LEAST_BUSBW:
                continue
            off_time = _half_digit_of_time(time_us)
            off_busbw = max(_half_digit_of_busbw(busbw), rounding_by_hand(busbw))
            least = (busbw - off_busbw) * (time_us - off_time) * 1e3 / size / limit
            most = (busbw + off_busbw) * (time_us + off_time) * 1e3 / size / limit
            used = True
            # A ratio at or above the limit fits no number of ranks.
            low = max(low, 1 / (1 - least) if least < 1 else inf)
            if most < 1:
                high = min(high, 1 / (1 - most))
    if not used:
        return None
    if low == inf:
        return RankBounds(2, None, rows_disagree=True)
    fewest = ceil(low - _CLOSE * low)
    greatest = None if high == inf else floor(high + _CLOSE * high)
    return RankBounds(fewest, greatest, greatest is not None and fewest > greatest)


def bounds_of_ratio(low: float, high: float, collective: Collective) -> RankBounds | None:
    """Return the numbers of ranks by the limits of busbw / algbw; None if they show nothing."""
    limit = _LIMITS.get(collective)
    if limit is None or not 0 < low <= high or low >= limit:
        return None
    fewest = max(2, ceil(1 / (1 - low / limit) * (1 - _CLOSE)))
    greatest = floor(1 / (1 - high / limit) * (1 + _CLOSE)) if high < limit else None
    return RankBounds(fewest, greatest) if greatest is None or fewest <= greatest else None


def bounds_by_count(rows: list[FlatRow]) -> RankBounds | None:
    """Return the ranks by size / count, if `count` is per rank; None if the counts do not fit."""
    found: set[int] = set()
    for row in rows:
        each = row[2] * DTYPE_BYTES.get(row[3], 0)
        if not each or row[1] % each:
            return None
        found.add(row[1] // each)
        if len(found) > 1:
            return RankBounds(min(found), max(found), rows_disagree=True)
    ranks = found.pop()
    return RankBounds(ranks, ranks)


def _half_digit_of_time(time_us: float) -> float:
    """Return half a unit of the last printed digit of a time, as versions before 2.17.3 print it.

    Later versions print more digits, so the value is an upper limit for them.
    """
    if time_us <= 100:
        return 0.00505
    if time_us <= 10_000:
        return 0.0505
    return 0.505 if time_us < 1e7 else 0.06 * time_us


def _half_digit_of_busbw(busbw: float) -> float:
    if busbw < 1000:
        return 0.00505
    return 0.0505 if busbw < 1e4 else 0.505
