# SPDX-License-Identifier: Apache-2.0
"""Segment the size axis: the cheapest path through (size, choice) with a price for every rule.

This is a pure dynamic programme over costs. `search` computes the costs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Segment(NamedTuple):
    """The positions `first` to `last` (inclusive) of the size axis with one choice.

    `choice` is an index into the candidates; None for the default.
    """

    first: int
    last: int
    choice: int | None


def segment(
    costs: Sequence[Sequence[float]], penalty: float, *, idle_cost: float = 0.0
) -> list[Segment]:
    """Return the segmentation of least total cost.

    `costs[position][choice]` is the cost of each candidate at each size; infinite where it is not
    allowed. A size without a rule costs `idle_cost`: 0 if costs are relative to the default, more
    than any choice if the default was not measured. Each segment with a choice costs `penalty`
    more.

    The time is O(sizes x choices): for a rule that starts at a size only the cheapest path into
    that size matters.

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
