# SPDX-License-Identifier: Apache-2.0
"""The noise of timings and the saturation of curves."""

import math

import pytest

from nccltune.analyze.curves import noise, saturation
from nccltune.analyze.result import Condition, Curve, CurvePoint
from nccltune.analyze.timings import Timings
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale


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
