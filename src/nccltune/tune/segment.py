# SPDX-License-Identifier: Apache-2.0
"""Split the sizes into segments with one choice each, at least cost.

Every segment with a choice costs a penalty. The method is dynamic programming. The module `search`
computes the costs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple


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
