# SPDX-License-Identifier: Apache-2.0
"""Find the size at which one choice gives way to the next: where their curves cross."""

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

    `before` or `after` None is the default; a rule ends where its gain over the default falls to
    `margin` (a natural log). Times are interpolated on log-log axes. Without measured noise a line
    is fitted through the two nearest sizes on either side, so that a single bad timing does not
    move the boundary. Where the curves do not cross in between, the boundary is at the nearer end.
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
        # The lead of `after` does not grow, so there is no crossing: the choice that is faster at
        # `right` gets all sizes in between.
        return left if level + slope * math.log(right) > 0 else right - 1
    crossing = -level / slope
    if not math.log(left) < crossing < math.log(right):
        # Not between the two sizes. `math.exp` would overflow for nearly parallel curves.
        return left if crossing <= math.log(left) else right - 1
    # `right` always belongs to `after`, also if rounding moves the crossing onto it.
    return min(max(math.floor(math.exp(crossing) + 1e-6), left), right - 1)


def _lead(table: GainTable, size: int, before: Choice | None, after: Choice | None) -> float | None:
    """Return the natural log of the time of `before` over that of `after`; None if unknown."""
    first = table.log_time(size, before or DEFAULT)
    second = table.log_time(size, after or DEFAULT)
    return None if first is None or second is None else first - second


def _line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return slope and level of the least-squares line."""
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    square = math.fsum((x - mean_x) ** 2 for x, _ in points)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / square
    return slope, mean_y - slope * mean_x
