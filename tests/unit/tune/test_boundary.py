# SPDX-License-Identifier: Apache-2.0
"""The size at which one choice gives way to the next."""

import math
from collections.abc import Mapping

import pytest

from nccltune.analyze import sort_samples
from nccltune.analyze.gains import gain_tables
from nccltune.model.choice import Choice, parse_choice
from nccltune.tune.boundary import boundary
from tests.unit.builders import measure

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
) -> int:
    """The last byte of `before`, from the times of the choices at both sizes."""
    times = {LEFT: dict(left), RIGHT: dict(right)}
    (table,) = gain_tables(sort_samples(measure(times, lambda size: times[size])).timings, 0.05)
    return boundary(table, LEFT, RIGHT, before, after, margin)


def times(default: float, ll: float, simple: float) -> dict[str, float]:
    return {"default": default, "tree/ll": ll, "ring/simple": simple}


def test_choices_meet_where_their_curves_cross() -> None:
    # The ratio of the times is 2 at one end and 1/2 at the other: 1 in the middle of the logs.
    end = end_of(times(100, 10, 20), times(100, 40, 20), LL, SIMPLE)
    assert end == pytest.approx(MIDDLE, rel=1e-6)


def test_a_choice_that_leads_more_and_more_keeps_all_up_to_the_next_size() -> None:
    end = end_of(times(100, 20, 21), times(100, 20, 30), LL, SIMPLE)
    assert end == RIGHT - 1


def test_a_choice_that_leads_less_and_less_takes_over_at_once() -> None:
    end = end_of(times(100, 20, 10), times(100, 20, 15), LL, SIMPLE)
    assert end == LEFT


def test_curves_that_cross_before_the_first_size_give_the_range_to_the_next_choice() -> None:
    end = end_of(times(100, 20, 19), times(100, 20, 10), LL, SIMPLE)
    assert end == LEFT


def test_curves_that_cross_behind_the_last_size_give_the_range_to_the_first_choice() -> None:
    end = end_of(times(100, 10, 20), times(100, 19, 20), LL, SIMPLE)
    assert end == RIGHT - 1


def test_a_rule_ends_where_it_still_gains_the_margin() -> None:
    # The gain falls from 0.2 to 0 (logs): 0.1 is reached in the middle.
    gain = math.exp(0.2)
    end = end_of(times(10 * gain, 10, 99), times(10, 10, 99), LL, None, margin=0.1)
    assert end == pytest.approx(MIDDLE, rel=1e-6)


def test_a_rule_begins_where_it_gains_the_margin() -> None:
    gain = math.exp(0.2)
    end = end_of(times(10, 10, 99), times(10 * gain, 10, 99), None, LL, margin=0.1)
    assert end == pytest.approx(MIDDLE, rel=1e-6)
