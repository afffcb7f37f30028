# SPDX-License-Identifier: Apache-2.0
"""Max-min fair rates by linear programs, an independent method for `topology.flows.solve`."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import linprog

from nccltune.topology.flows.ceiling import Demand

_HELD = 1e-7
"""A demand with a multiplier above this cannot grow. The multipliers of one step add up to 1."""


def linear_rates(demands: Sequence[Demand], capacity: Mapping[str, float]) -> list[float]:
    """Return the rates of `demands`: maximize the smallest, fix the demands that cannot grow, and
    repeat with the others."""
    names = sorted(capacity)
    # Scale by the largest capacity, because the solver's tolerances are absolute.
    scale = max(capacity.values())
    matrix = np.zeros((len(names), len(demands)))
    for column, demand in enumerate(demands):
        for name, load in demand.loads.items():
            matrix[names.index(name), column] += load * demand.count
    left = np.array([capacity[name] for name in names]) / scale
    rates = np.zeros(len(demands))
    rising = list(range(len(demands)))
    while rising:
        level, held = _step(matrix[:, rising], left)
        stopped = [demand for demand, is_held in zip(rising, held, strict=True) if is_held]
        rates[stopped] = level
        left = np.maximum(left - matrix[:, stopped].sum(axis=1) * level, 0.0)
        rising = [demand for demand in rising if demand not in stopped]
    return [float(rate) * scale for rate in rates]


def _step(matrix: np.ndarray, left: np.ndarray) -> tuple[float, list[bool]]:
    """Return the level that all columns reach together, and the columns that end there.

    The program is: maximize t where matrix x <= left and t <= x. The multiplier of `t <= x` is
    positive only for a demand on a link that is full in every solution, so it ends at t. At least
    one does.
    """
    links, demands = matrix.shape
    above = np.hstack([-np.eye(demands), np.ones((demands, 1))])
    answer = linprog(
        np.append(np.zeros(demands), -1.0),
        A_ub=np.vstack([np.hstack([matrix, np.zeros((links, 1))]), above]),
        b_ub=np.append(left, np.zeros(demands)),
        bounds=(0, None),
        method="highs",
    )
    assert answer.status == 0
    multipliers = -np.asarray(answer.ineqlin.marginals)[links:]
    limit = min(_HELD, float(multipliers.max()))
    return float(answer.x[-1]), [bool(one >= limit) for one in multipliers]
