# SPDX-License-Identifier: Apache-2.0
"""Statistics of timings, and what curves are made of: noise and saturation."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccltune.analyze.curves import noise, saturation
from nccltune.analyze.result import Condition, Curve, CurvePoint
from nccltune.analyze.stats import (
    estimate,
    median,
    median_interval,
    normal_z,
    quantile,
    relative_spread,
    student_t,
    trimmed_interval,
)
from nccltune.analyze.timings import Timings
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@given(values)
def test_the_median_is_the_median(items: list[float]) -> None:
    assert median(items) == pytest.approx(statistics.median(items))
    assert quantile(items, 0.5) == pytest.approx(statistics.median(items))


def test_quantiles_of_tables() -> None:
    assert student_t(0.95, 7) == pytest.approx(2.3646, abs=1e-4)
    assert student_t(0.99, 5) == pytest.approx(4.0321, abs=1e-4)
    assert normal_z(0.95) == pytest.approx(1.95996, abs=1e-5)


def test_spread_is_the_standard_deviation_for_normal_values() -> None:
    random_ = random.Random(1)
    items = [random_.gauss(100, 3) for _ in range(4000)]
    assert relative_spread(items) == pytest.approx(0.03, rel=0.1)
    assert relative_spread([5.0]) is None


@pytest.mark.parametrize(("n", "skip"), [(1, 0), (3, 0), (5, 0), (6, 0), (8, 0), (9, 1), (17, 4)])
def test_order_statistics_bound_the_median(n: int, skip: int) -> None:
    # Table of the sign test: for n = 9 the second smallest and largest cover 96 %.
    items = [float(item) for item in range(n)]
    assert median_interval(items) == (skip, n - 1 - skip)


def test_one_hiccup_in_five_moves_nothing_much() -> None:
    calm = [0.10, 0.11, 0.10, 0.09, 0.10]
    centre, half = trimmed_interval([*calm[:4], 5.0])
    assert centre == pytest.approx(0.10, abs=0.02)
    assert half < 0.1


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    random_ = random.Random(7)
    hits = 0
    for _ in range(2000):
        centre, half = trimmed_interval([random_.gauss(0.3, 0.05) for _ in range(8)])
        hits += centre - half <= 0.3 <= centre + half
    assert 0.93 < hits / 2000 < 0.97


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30))
def test_the_estimate_lies_in_its_interval_and_among_the_values(items: list[float]) -> None:
    result = estimate(items, assumed_sd=0.05)
    assert result is not None
    assert result.low <= result.value <= result.high
    assert min(items) - 1e-9 <= result.value <= max(items) + 1e-9
    assert result.known == (len(items) >= 4)


def test_gains_are_told_as_ratios() -> None:
    found = estimate([math.log(1.25)] * 5, assumed_sd=0.05)
    assert found is not None
    assert found.ratio[:3] == pytest.approx((1.25, 1.25, 1.25))
    assert found.ratio[3:] == (5, True)
    few = estimate([0.0], assumed_sd=0.05)
    assert few is not None
    # Twice as fast and half as fast are equally far from as fast.
    assert few.ratio.low * few.ratio.high == pytest.approx(1)
    assert (few.ratio.value, few.ratio.n, few.ratio.known) == (1, 1, False)


def test_a_single_value_has_assumed_noise() -> None:
    result = estimate([0.2], assumed_sd=0.05)
    assert result is not None
    assert not result.known
    assert result.high - result.value == pytest.approx(1.96 * 0.05, abs=1e-3)
    assert estimate([], assumed_sd=0.05) is None
    assert math.isinf(trimmed_interval([1.0])[1])


def test_hundreds_of_thousands_of_timings_have_an_interval_at_once() -> None:
    n = 200_000
    low, high = median_interval(range(n))
    # Normal approximation of the sign test: 1.96 x sqrt(n) / 2 ranks on either side.
    assert (high - low) / 2 == pytest.approx(1.96 * n**0.5 / 2, rel=0.01)


def test_noise_of_split_rounds_is_that_of_full_rounds() -> None:
    # Medians of odd and even rounds lie a log of 0.2 apart. Each has half of the rounds, so medians
    # of all rounds would lie closer by the square root of two.
    series = {(round_, 0): 100 * math.exp(0.2 * (round_ % 2)) for round_ in range(8)}
    timings = Timings(Condition(Collective.ALLREDUCE, Scale(2, 16)), {1024: {DEFAULT: series}})
    found = noise(timings)
    assert found.source == "split rounds"
    assert found.typical == pytest.approx(0.2 / math.sqrt(2))


def curve_of(*rates: tuple[int, float]) -> Curve:
    return Curve(DEFAULT, [CurvePoint(size, 8, 1.0, 1.0, 1.0, 0.0, rate) for size, rate in rates])


@pytest.mark.parametrize(("last", "saturated"), [(108.0, True), (112.0, False)])
def test_a_curve_is_saturated_by_its_growth_for_each_doubling(last: float, saturated: bool) -> None:
    # Sizes with a factor of 4: 8 % in two doublings is 3.9 % in each, 12 % is 5.8 %.
    found = saturation(curve_of((1 << 20, 60.0), (1 << 22, 100.0), (1 << 24, last)), None)
    assert found is not None
    assert found.saturated is saturated


@pytest.mark.parametrize(("last", "saturated"), [(53.8, True), (60.0, False)])
def test_the_end_of_a_dip_is_compared_with_the_plateau_before_it(
    last: float, saturated: bool
) -> None:
    rates = (1 << 22, 39.3), (1 << 24, 53.5), (1 << 26, 17.7), (1 << 28, last)
    found = saturation(curve_of(*rates), None)
    assert found is not None
    assert found.saturated is saturated
