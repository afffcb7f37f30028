# SPDX-License-Identifier: Apache-2.0
import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from nccltune.tune.segment import Segment, segment


def price(costs: list[list[float]], states: tuple[int | None, ...], penalty: float) -> float:
    total, before = 0.0, None
    for row, state in zip(costs, states, strict=True):
        if state is not None:
            total += row[state] + (penalty if state != before else 0.0)
        before = state
    return total


def states_of(segments: list[Segment]) -> tuple[int | None, ...]:
    return tuple(item.choice for item in segments for _ in range(item.first, item.last + 1))


@settings(max_examples=200)
@given(
    st.lists(
        st.lists(st.floats(-1, 1) | st.just(math.inf), min_size=2, max_size=2),
        min_size=1,
        max_size=6,
    ),
    st.floats(0.001, 1),
)
def test_it_is_the_best_of_all_segmentations(costs: list[list[float]], penalty: float) -> None:
    found = segment(costs, penalty)
    assert found[0].first == 0
    assert found[-1].last == len(costs) - 1
    assert all(a.last + 1 == b.first and a.choice != b.choice for a, b in itertools.pairwise(found))
    best = min(
        price(costs, states, penalty)
        for states in itertools.product((None, 0, 1), repeat=len(costs))
    )
    assert price(costs, states_of(found), penalty) <= best + 1e-9


def test_a_dear_rule_is_not_worth_a_small_gain() -> None:
    costs = [[-0.01], [-0.3], [-0.01]]
    assert states_of(segment(costs, 0.05)) == (0, 0, 0)
    assert states_of(segment(costs, 0.5)) == (None, None, None)


def test_nothing_measured_gives_nothing() -> None:
    assert segment([], 0.1) == []


def test_without_a_default_every_size_gets_a_choice() -> None:
    costs = [[0.0, 0.4], [0.1, 0.0], [math.inf, 0.0], [math.inf, math.inf]]
    assert states_of(segment(costs, 0.05, idle_cost=1e6)) == (0, 1, 1, None)
