# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from nccltune.topology.flows.ceiling import Demand, max_min


def test_one_link_is_shared_equally():
    shares = max_min([Demand({"a": 1.0}), Demand({"a": 1.0})], {"a": 10.0})
    assert shares.rates == pytest.approx((5.0, 5.0))
    assert shares.held_by == ("a", "a")
    assert shares.used["a"] == pytest.approx(10.0)


def test_a_demand_limited_elsewhere_leaves_bandwidth_to_others():
    """An example of Bertsekas and Gallager: two links, and one flow over both."""
    demands = [Demand({"a": 1.0, "b": 1.0}), Demand({"a": 1.0}), Demand({"b": 1.0})]
    shares = max_min(demands, {"a": 2.0, "b": 10.0})
    assert shares.rates == pytest.approx((1.0, 1.0, 9.0))
    assert shares.held_by == ("a", "a", "b")


def test_a_cost_above_one_eats_more_of_the_link():
    shares = max_min([Demand({"a": 1.25}), Demand({"a": 1.0})], {"a": 9.0})
    assert shares.rates == pytest.approx((4.0, 4.0))


def test_alike_demands_count():
    shares = max_min([Demand({"a": 1.0}, count=3), Demand({"a": 1.0, "b": 1.0})], {"a": 8, "b": 1})
    assert shares.rates == pytest.approx((7 / 3, 1.0))
    assert shares.held_by == ("a", "b")


def test_an_unused_link_is_empty_and_a_dead_one_stops():
    shares = max_min([Demand({"a": 1.0})], {"a": 0.0, "b": 3.0})
    assert shares.rates == pytest.approx((0.0,))
    assert shares.held_by == ("a",)
    assert shares.used == pytest.approx({"a": 0.0, "b": 0.0})


def test_a_dead_link_stops_a_demand_on_several_links_and_frees_the_others():
    """A link of width -1 stops a ring, whose other links then stay empty."""
    demands = [Demand({"a": 1.0, "b": 2.0, "c": 1.0}), Demand({"c": 1.0})]
    shares = max_min(demands, {"a": 0.0, "b": 24.0, "c": 12.0})
    assert shares.rates == pytest.approx((0.0, 12.0))
    assert shares.held_by == ("a", "c")
    assert shares.used == pytest.approx({"a": 0.0, "b": 0.0, "c": 12.0})
    assert max_min([Demand({"a": 1.0, "b": 1.0})], {"a": -1.5, "b": 3.0}).held_by == ("a",)


def test_of_links_that_fill_together_the_one_loaded_most_is_named():
    shares = max_min([Demand({"a": 1.0, "b": 2.0, "c": 2.0})], {"a": 5.0, "b": 10.0, "c": 10.0})
    assert shares.rates == pytest.approx((5.0,))
    assert shares.held_by == ("b",)


def test_nothing_to_share_and_no_bound():
    assert max_min([], {"a": 1.0}).used == {"a": 0.0}
    with pytest.raises(ValueError, match="no bound"):
        max_min([Demand({"a": 0.0})], {"a": 1.0})


LINKS = "abcdef"
DEMANDS = st.lists(
    st.builds(
        Demand,
        st.dictionaries(st.sampled_from(LINKS), st.floats(0.1, 4.0), min_size=1),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=6,
)
CAPACITY = st.fixed_dictionaries({name: st.floats(0.5, 500.0) for name in LINKS})


@settings(max_examples=60, deadline=None)
@given(DEMANDS, CAPACITY)
def test_no_share_can_grow_without_shrinking_a_smaller_one(demands, capacity):
    """This is the definition of max-min fairness: each demand uses a full link on which no other
    demand has a higher rate."""
    shares = max_min(demands, capacity)
    used = {
        name: sum(
            demand.loads.get(name, 0.0) * demand.count * rate
            for demand, rate in zip(demands, shares.rates, strict=True)
        )
        for name in LINKS
    }
    for name in LINKS:
        assert used[name] <= capacity[name] * (1 + 1e-6)
        assert used[name] == pytest.approx(shares.used[name])
    for number, demand in enumerate(demands):
        rate = shares.rates[number]
        assert rate > 0
        full = [name for name in demand.loads if used[name] >= capacity[name] * (1 - 1e-5)]
        assert any(
            all(
                other <= rate * (1 + 1e-5)
                for rival, other in zip(demands, shares.rates, strict=True)
                if name in rival.loads
            )
            for name in full
        )
        assert shares.held_by[number] in full


@settings(max_examples=60, deadline=None)
@given(DEMANDS, CAPACITY)
def test_shares_are_those_of_linear_programs(demands, capacity):
    assert max_min(demands, capacity).rates == pytest.approx(linear_rates(demands, capacity))


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
