# SPDX-License-Identifier: Apache-2.0
"""Stretches of a series: found where there are any, and not in noise."""

import math

import numpy as np
import pytest

from nccltune.compare.scan import FEWEST, LEAST_SCATTER, Stretch, scatter, stretches

RANDOM = np.random.default_rng(1)


def test_a_step_is_found_with_its_places_and_its_value() -> None:
    series = np.array([0.0, 0.01, -0.01, 0.3, 0.31, 0.29, 0.3, 0.0, 0.01])
    assert stretches(series, 0.05, 0.05) == [Stretch(3, 7, pytest.approx(0.3))]
    assert stretches(-series, 0.05, 0.05) == [Stretch(3, 7, pytest.approx(-0.3))]


def test_two_steps_of_opposite_sign_are_two_stretches() -> None:
    series = np.array([0.3, 0.31, 0.3, 0.0, 0.01, 0.0, 0.01, -0.2, -0.21, -0.2])
    found = stretches(series, 0.05, 0.05)
    assert [(item.start, item.stop) for item in found] == [(0, 3), (7, 10)]


def test_a_single_outlier_is_no_stretch() -> None:
    series = np.zeros(12)
    series[5] = 2.0
    assert stretches(series, 0.05, 0.05) == []


def test_a_difference_of_the_whole_series_below_the_allowance_is_none() -> None:
    assert stretches(np.full(20, 0.04), 0.05, 0.05) == []
    assert stretches(np.full(20, 0.08), 0.05, 0.05) == [Stretch(0, 20, pytest.approx(0.08))]


def test_the_allowance_may_differ_by_place() -> None:
    series = np.full(20, 0.2)
    allowance = np.where(np.arange(20) < 10, 0.5, 0.05)
    assert stretches(series, allowance, 0.05) == [Stretch(10, 20, pytest.approx(0.2))]


def test_short_series_have_no_scatter_and_no_stretch() -> None:
    assert stretches(np.ones(FEWEST - 1), 0.0, 0.05) == []
    assert stretches(np.ones(FEWEST), 0.0, 0.05) == [Stretch(0, FEWEST, 1.0)]


def test_the_scatter_is_the_noise_and_no_step_adds_to_it() -> None:
    noise = RANDOM.normal(0, 0.1, 400)
    noise[200:] += 1.0
    assert float(np.median(scatter(noise))) == pytest.approx(0.1, rel=0.3)
    assert scatter(np.zeros(8)).tolist() == [LEAST_SCATTER] * 8


def test_a_quiet_part_does_not_vouch_for_a_noisy_one() -> None:
    noise = RANDOM.normal(0, 1, 60) * np.where(np.arange(60) < 20, 0.2, 0.01)
    found = scatter(noise)
    assert found[5] > 0.1 > found[50]


@pytest.mark.parametrize("places", [5, 9, 16, 30])
def test_noise_alone_gives_a_stretch_as_rarely_as_stated(places: int) -> None:
    series = RANDOM.normal(0, 0.2, (400, places))
    rate = sum(bool(stretches(item, 0.0, 0.05)) for item in series) / len(series)
    # 5 % plus three standard errors of 400 trials.
    assert 0.005 < rate < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
