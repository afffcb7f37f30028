# SPDX-License-Identifier: Apache-2.0
"""Sizes are split where the best choice changes."""

import itertools
import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccltune.analyze import sort_samples
from nccltune.analyze.gains import gain_tables
from nccltune.model.choice import Choice, parse_choice
from nccltune.tune.segment import Segment, boundary, segment
from tests.unit.builders import measure


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


LEFT, RIGHT = 1 << 16, 1 << 18
MIDDLE = 1 << 17


def choice_of(label: str) -> Choice:
    found = parse_choice(label)
    assert isinstance(found, Choice)
    return found


LL, SIMPLE = choice_of("tree/ll"), choice_of("ring/simple")


def end_of(
    left: Mapping[str, float],
    right: Mapping[str, float],
    before: Choice | None,
    after: Choice | None,
    margin: float = 0.0,
) -> int | None:
    """The last byte of `before`, from the times of the choices at both sizes."""
    times = {LEFT: dict(left), RIGHT: dict(right)}
    (table,) = gain_tables(sort_samples(measure(times, lambda size: times[size])).timings, 0.05)
    return boundary(table, LEFT, RIGHT, before, after, margin)


def times(default: float, ll: float, simple: float) -> dict[str, float]:
    return {"default": default, "tree/ll": ll, "ring/simple": simple}


@pytest.mark.parametrize(
    ("left", "right", "end"),
    [
        # The ratio of the times is 2 at one end and 1/2 at the other: 1 in the middle of the logs.
        pytest.param((10, 20), (40, 20), MIDDLE, id="crossing"),
        pytest.param((20, 21), (20, 30), RIGHT - 1, id="leads-more-and-more"),
        pytest.param((20, 10), (20, 15), LEFT, id="leads-less-and-less"),
        pytest.param((20, 19), (20, 10), LEFT, id="crossing-before-the-first-size"),
        pytest.param((10, 20), (19, 20), RIGHT - 1, id="crossing-behind-the-last-size"),
    ],
)
def test_a_choice_ends_where_the_next_is_faster(
    left: tuple[float, float], right: tuple[float, float], end: int
) -> None:
    found = end_of(times(100, *left), times(100, *right), LL, SIMPLE)
    assert found == (pytest.approx(end, rel=1e-6) if end == MIDDLE else end)


def test_a_rule_ends_where_it_still_gains_the_margin() -> None:
    # The gain falls from 0.2 to 0 (logs): 0.1 is reached in the middle.
    gain = math.exp(0.2)
    end = end_of(times(10 * gain, 10, 99), times(10, 10, 99), LL, None, margin=0.1)
    assert end == pytest.approx(MIDDLE, rel=1e-6)


def test_a_rule_begins_where_it_gains_the_margin() -> None:
    gain = math.exp(0.2)
    end = end_of(times(10, 10, 99), times(10 * gain, 10, 99), None, LL, margin=0.1)
    assert end == pytest.approx(MIDDLE, rel=1e-6)
