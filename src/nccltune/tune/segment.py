# SPDX-License-Identifier: Apache-2.0
"""Split the sizes into segments with one choice each, at least cost.

Every segment with a choice costs a penalty. The method is dynamic programming. The module `search`
computes the costs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from nccltune.analyze.gains import GainTable
from nccltune.model.choice import DEFAULT, Choice

WIDE = 16
"""A gap between measured sizes is wide above this ratio."""


class Segment(NamedTuple):
    """A run of sizes with one choice.

    `first` and `last` (inclusive) are indices of sizes. `choice` is an index of a candidate; None
    for the default.
    """

    first: int
    last: int
    choice: int | None


def segment(
    costs: Sequence[Sequence[float]], penalty: float, *, idle_cost: float = 0.0
) -> list[Segment]:
    """Return the segments with the least total cost.

    `costs[position][choice]` is the cost of a candidate at a size; infinite if the candidate is not
    allowed. A size without a rule costs `idle_cost`. Pass 0 if costs are relative to the default,
    and more than any cost if the default was not measured. Each segment with a choice also costs
    `penalty`.

    The run time is O(sizes x choices), because a new segment extends only the cheapest split of the
    sizes before it.

    >>> segment([[-0.5], [-0.5], [0.1]], 0.2)
    [Segment(first=0, last=1, choice=0), Segment(first=2, last=2, choice=None)]
    """
    if not costs:
        return []
    idle = len(costs[0])
    best = [math.inf] * idle + [0.0]
    origins: list[list[int]] = []
    for row in costs:
        cheapest = min(range(idle + 1), key=best.__getitem__)
        enter = best[cheapest] + penalty
        origins.append(
            [choice if best[choice] <= enter else cheapest for choice in range(idle)] + [cheapest]
        )
        best = [min(best[choice], enter) + row[choice] for choice in range(idle)]
        best.append(enter - penalty + idle_cost)
    state = min(range(idle + 1), key=best.__getitem__)
    states = [state]
    for origin in reversed(origins[1:]):
        state = origin[state]
        states.append(state)
    states.reverse()
    return _runs([None if state == idle else state for state in states])


def _runs(states: Sequence[int | None]) -> list[Segment]:
    runs: list[Segment] = []
    for position, state in enumerate(states):
        if runs and runs[-1].choice == state:
            runs[-1] = runs[-1]._replace(last=position)
        else:
            runs.append(Segment(position, position, state))
    return runs


def boundary(
    table: GainTable,
    left: int,
    right: int,
    before: Choice | None,
    after: Choice | None,
    margin: float,
) -> int | None:
    """Return the last size in bytes at which `before` applies; above it `after` applies.

    The result is between the neighbouring measured sizes `left` and `right`; None if one of the
    choices was not measured at both, so that nobody knows which is faster between them.

    `before` or `after` is None for the default. A rule next to the default ends where its gain
    falls to `margin` (a natural log). Times are interpolated on log-log axes. Without measured
    noise a line is fitted through two sizes on each side, so that one bad timing does not move the
    boundary. Only sizes near the gap are used, because curves are no lines over a wide range. If
    the curves do not cross in between, the faster choice gets all sizes in between.
    """
    if None in (_lead(table, left, before, after), _lead(table, right, before, after)):
        return None
    offset = 0.0
    if before is None:
        offset = margin
    elif after is None:
        offset = -margin
    sizes = [left, right]
    if not table.noise.known:
        every = table.sizes
        place = every.index(left)
        near = range(math.ceil(right / WIDE), WIDE * left + 1)
        sizes = [size for size in every[max(0, place - 1) : place + 3] if size in near]
        sizes = sorted({left, right, *sizes})
    known = [
        (math.log(size), lead - offset)
        for size in sizes
        if (lead := _lead(table, size, before, after)) is not None
    ]
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
