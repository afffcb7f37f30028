# SPDX-License-Identifier: Apache-2.0
"""The size at which one choice gives way to the next."""

import math
from collections.abc import Mapping

import pytest

from nccltune.analyze import sort_samples
from nccltune.analyze.gains import gain_tables
from nccltune.model.choice import Choice
from nccltune.tune.boundary import boundary
from tests.unit.builders import choice, measure

LEFT, RIGHT = 1 << 16, 1 << 18
MIDDLE = 1 << 17


LL, SIMPLE = choice("tree/ll"), choice("ring/simple")


def end_of(
    left: Mapping[str, float],
    right: Mapping[str, float],
    before: Choice | None,
    after: Choice | None,
    margin: float = 0.0,
) -> int:
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


# The gain falls from 0.2 to 0 (logs), or rises: 0.1 is reached in the middle.
LARGE, NONE = times(10 * math.exp(0.2), 10, 99), times(10, 10, 99)


@pytest.mark.parametrize(
    ("left", "right", "before", "after"), [(LARGE, NONE, LL, None), (NONE, LARGE, None, LL)]
)
def test_a_rule_begins_and_ends_where_it_gains_the_margin(
    left: dict[str, float], right: dict[str, float], before: Choice | None, after: Choice | None
) -> None:
    end = end_of(left, right, before, after, margin=0.1)
    assert end == pytest.approx(MIDDLE, rel=1e-6)
