# SPDX-License-Identifier: Apache-2.0
"""Max-min fair shares of links: who gets how much, and which link holds everybody back.

A *demand* is something whose parts move in step, such as one channel of a ring: at rate 1 it loads
every link it uses by a coefficient, which is 1 / efficiency where a byte costs more than a byte.
Shares are max-min fair: none can grow without taking from one that has no more. They are found by
progressive filling, each step a linear program (SciPy's HiGHS), whose multipliers say which
demands can grow no further.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from nccltune.model.errors import NccltuneError

if TYPE_CHECKING:
    import numpy as np

_HELD = 1e-7
"""A multiplier above this holds its demand back; those of one step add up to 1."""
_ALMOST = 1e-6
"""What the solver may leave of a link that is full, or add to a rate, as a share."""


class Demand(msgspec.Struct, frozen=True):
    """`loads` maps a link's name to GB/s of it for each GB/s of rate; `count` demands are alike."""

    loads: Mapping[str, float]
    count: int = 1


class Shares(msgspec.Struct, frozen=True):
    """`rates` (GB/s) of one of the `count` of each demand, in their order; `held_by` names for each
    the link that stops it, the fullest first filled; `used` is each link's load in GB/s."""

    rates: tuple[float, ...]
    held_by: tuple[str, ...]
    used: Mapping[str, float]


def max_min(demands: Sequence[Demand], capacity: Mapping[str, float]) -> Shares:
    """Max-min fair rates of `demands` over links of `capacity` GB/s.

    Every demand must load at least one link of finite capacity, or it would have no bound:
    ValueError. A link of capacity 0 gives rate 0.
    """
    for demand in demands:
        if not any(load > 0 for load in demand.loads.values()):
            raise ValueError("a demand that loads no link has no bound")
    if not demands:
        return Shares((), (), dict.fromkeys(capacity, 0.0))
    names = sorted({name for demand in demands for name in demand.loads})
    row = {name: index for index, name in enumerate(names)}
    rates = _fill(demands, row, [capacity[name] for name in names])
    used = dict.fromkeys(capacity, 0.0)
    for demand, rate in zip(demands, rates, strict=True):
        for name, load in demand.loads.items():
            used[name] += load * rate * demand.count
    most = {
        name: max(r for d, r in zip(demands, rates, strict=True) if d.loads.get(name, 0) > 0)
        for name in names
        if used[name] > 0 or capacity[name] == 0
    }
    held = tuple(
        _held_by(demand, rate, used, capacity, most)
        for demand, rate in zip(demands, rates, strict=True)
    )
    return Shares(tuple(rates), held, used)


def _fill(
    demands: Sequence[Demand], row: Mapping[str, int], capacities: Sequence[float]
) -> list[float]:
    """Raise all open rates together until some are held, fix those, and go on with the rest."""
    import numpy as np

    # In units of the largest capacity: the solver's tolerances are absolute.
    scale = max(capacities) or 1.0
    matrix = np.zeros((len(row), len(demands)))
    for column, demand in enumerate(demands):
        for name, load in demand.loads.items():
            matrix[row[name], column] += load * demand.count
    left = np.array(capacities) / scale
    rates = np.zeros(len(demands))
    still = list(range(len(demands)))
    while still:
        level, held = _step(matrix[:, still], left)
        stopped = [demand for demand, is_held in zip(still, held, strict=True) if is_held]
        rates[stopped] = level
        left = np.maximum(left - matrix[:, stopped].sum(axis=1) * level, 0.0)
        still = [demand for demand in still if demand not in set(stopped)]
    return [float(rate) * scale for rate in rates]


def _step(matrix: "np.ndarray", left: "np.ndarray") -> "tuple[float, list[bool]]":
    """The level that all columns of `matrix` reach together, and which of them end there.

    maximize t  where  matrix x <= left  and  t <= x. The multiplier of `t <= x` is positive only
    for a demand on a link that is full in every solution, so it ends at t; at least one does.
    """
    import numpy as np
    from scipy.optimize import linprog

    links, demands = matrix.shape
    above = np.hstack([-np.eye(demands), np.ones((demands, 1))])
    answer = linprog(
        np.append(np.zeros(demands), -1.0),
        A_ub=np.vstack([np.hstack([matrix, np.zeros((links, 1))]), above]),
        b_ub=np.append(left, np.zeros(demands)),
        bounds=(0, None),
        method="highs",
    )
    if answer.status != 0 or answer.x is None:
        raise NccltuneError(f"the flow model found no shares: {answer.message}")
    multipliers = -np.asarray(answer.ineqlin.marginals)[links:]
    # Nobody held can only be rounding: then the most held one ends, so that filling goes on.
    limit = min(_HELD, float(multipliers.max()))
    return float(answer.x[-1]), [bool(one >= limit) for one in multipliers]


def _held_by(
    demand: Demand,
    rate: float,
    used: Mapping[str, float],
    capacity: Mapping[str, float],
    most: Mapping[str, float],
) -> str:
    """The full link on which nobody has more than this demand; of several that which it loads
    most."""

    def rank(name: str) -> tuple[float, bool, float, str]:
        fill = used[name] / capacity[name] if capacity[name] > 0 else 1.0
        somebody_more = most[name] > rate * (1 + _ALMOST)
        return (-min(1.0, round(fill + _ALMOST, 5)), somebody_more, -demand.loads[name], name)

    return min((name for name, load in demand.loads.items() if load > 0), key=rank)
