# SPDX-License-Identifier: Apache-2.0
import math
import random

import pytest

from nccltune.analyze.stats import median
from nccltune.analyze.timings import Timings, sort_samples
from nccltune.measure.adaptive.estimates import LEAST_NOISE, estimates, expected_loss
from tests.unit.builders import choice, measure

SIZES = [1 << power for power in range(10, 20)]
TREE = choice("tree/ll")


def times(_: int) -> dict[str, float]:
    return {"default": 100.0, "tree/ll": 80.0, "ring/ll": 130.0}


def timings(rounds: int, noise: float, seed: int = 0) -> Timings:
    (found,) = sort_samples(measure(SIZES, times, rounds=rounds, noise=noise, seed=seed)).timings
    return found


@pytest.mark.parametrize("rounds", [1, 2, 4, 8])
def test_bounds_hold_the_truth(rounds: int) -> None:
    truth = math.log(100 / 80)
    inside = total = 0
    for seed in range(30):
        for by_choice in estimates(timings(rounds, 0.03, seed)).values():
            estimate = by_choice[TREE]
            inside += estimate.low <= truth <= estimate.high
            total += 1
    assert inside / total >= 0.95


def test_noise_is_learnt_from_the_default_alone() -> None:
    errors = [
        by_choice[TREE].error
        for seed in range(20)
        for by_choice in estimates(timings(1, 0.03, seed)).values()
    ]
    assert median(errors) == pytest.approx(0.03 * math.sqrt(1.5), rel=0.3)


def test_without_noise_a_little_is_assumed() -> None:
    for by_choice in estimates(timings(4, 0.0)).values():
        assert by_choice[TREE].gain == pytest.approx(math.log(100 / 80))
        assert 0 < by_choice[TREE].error <= LEAST_NOISE


def test_one_hiccup_in_four_rounds_moves_little() -> None:
    found = timings(4, 0.01)
    series = found.cells[SIZES[3]][TREE]
    series[1, 0] *= 4
    estimate = estimates(found)[SIZES[3]][TREE]
    assert estimate.gain == pytest.approx(math.log(100 / 80), abs=0.05)


def test_a_hiccup_in_one_of_two_rounds_leaves_the_matter_open() -> None:
    found = timings(2, 0.01)
    found.cells[SIZES[3]][TREE][1, 0] *= 4
    assert estimates(found)[SIZES[3]][TREE].high > math.log(100 / 80)


def test_a_size_without_default_has_no_estimates() -> None:
    found = timings(2, 0.01)
    del found.cells[SIZES[0]]["default"]
    assert SIZES[0] not in estimates(found)


@pytest.mark.parametrize(("lead", "error"), [(0.0, 0.02), (0.05, 0.02), (-0.03, 0.05)])
def test_the_expected_loss_is_the_mean_of_what_the_other_is_better_by(
    lead: float, error: float
) -> None:
    random_ = random.Random(1)
    losses = [max(0.0, -random_.gauss(lead, error)) for _ in range(100_000)]
    assert expected_loss(lead, error) == pytest.approx(math.fsum(losses) / 1e5, abs=2e-4)


def test_without_error_the_loss_is_known() -> None:
    assert expected_loss(0.1, 0.0) == 0.0
    assert expected_loss(-0.1, 0.0) == 0.1
