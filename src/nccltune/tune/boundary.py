# SPDX-License-Identifier: Apache-2.0
"""Where one choice gives way to the next: the size at which their curves cross."""

import math

from nccltune.analyze.gains import GainTable
from nccltune.model.choice import DEFAULT, Choice


def boundary(
    table: GainTable,
    left: int,
    right: int,
    before: Choice | None,
    after: Choice | None,
    margin: float,
) -> int:
    """Return the last byte of `before` between the neighbouring measured sizes `left` and `right`.

    None stands for the default; a rule ends where its gain over the default falls to `margin` (a
    natural log). Times are interpolated on log-log axes. With one timing a point the two nearest
    sizes on either side are fitted by a line, so that a single bad timing does not move it.
    Where the curves do not cross in between, the boundary lies at the nearer end.
    """
    offset = 0.0
    if before is None:
        offset = margin
    elif after is None:
        offset = -margin
    sizes = [left, right]
    if not table.noise.known:
        every = table.sizes
        place = every.index(left)
        sizes = every[max(0, place - 1) : place + 3]
    known = [
        (math.log(size), lead - offset)
        for size in sizes
        if (lead := _lead(table, size, before, after)) is not None
    ]
    if len(known) < 2:
        return left
    slope, level = _line(known)
    if slope <= 0:
        # The lead of `after` does not grow here: give the range to who leads at its right end.
        return left if level + slope * math.log(right) > 0 else right - 1
    crossing = -level / slope
    if not math.log(left) < crossing < math.log(right):
        # Nearly parallel curves would cross at a size that no number can hold.
        return left if crossing <= math.log(left) else right - 1
    # A crossing that lies just below `right` after rounding still leaves `right` to `after`.
    return min(max(math.floor(math.exp(crossing) + 1e-6), left), right - 1)


def _lead(table: GainTable, size: int, before: Choice | None, after: Choice | None) -> float | None:
    """How much faster `after` is than `before` at `size`, as a log."""
    first = table.log_time(size, before or DEFAULT)
    second = table.log_time(size, after or DEFAULT)
    return None if first is None or second is None else first - second


def _line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Slope and level of the least-squares line."""
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    square = math.fsum((x - mean_x) ** 2 for x, _ in points)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / square
    return slope, mean_y - slope * mean_x
