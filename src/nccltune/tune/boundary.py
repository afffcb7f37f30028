# SPDX-License-Identifier: Apache-2.0
"""Find the size at which a rule ends and the next begins: where the curves of the choices cross."""

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
    """Return the last size in bytes at which `before` applies; above it `after` applies.

    The result is between the neighbouring measured sizes `left` and `right`.

    `before` or `after` is None for the default. A rule next to the default ends where its gain
    falls to `margin` (a natural log). Times are interpolated on log-log axes. Without measured
    noise a line is fitted through two sizes on each side, so that one bad timing does not move the
    boundary. If the curves do not cross in between, the faster choice gets all sizes in between. If
    the times of a choice are unknown there, `after` gets these sizes.
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
        # The crossing is not between the two sizes. Do not compute its size: `math.exp` overflows
        # for nearly parallel curves.
        return left if crossing <= math.log(left) else right - 1
    # `right` must belong to `after`, even if rounding moves the crossing to `right`.
    return min(max(math.floor(math.exp(crossing) + 1e-6), left), right - 1)


def _lead(table: GainTable, size: int, before: Choice | None, after: Choice | None) -> float | None:
    """Return the natural log of time of `before` over time of `after`; None if one is unknown."""
    first = table.log_time(size, before or DEFAULT)
    second = table.log_time(size, after or DEFAULT)
    return None if first is None or second is None else first - second


def _line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the slope and the intercept of the least-squares line through `points`."""
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    square = math.fsum((x - mean_x) ** 2 for x, _ in points)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / square
    return slope, mean_y - slope * mean_x
