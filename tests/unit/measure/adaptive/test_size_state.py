# SPDX-License-Identifier: Apache-2.0
import math
import random

import pytest

from nccltune.analyze.stats import median
from nccltune.analyze.timings import Timings, sort_samples
from nccltune.measure.adaptive.estimates import LEAST_NOISE, estimates, expected_loss
from nccltune.measure.adaptive.refine import Curves, candidates, open_gaps
from nccltune.measure.adaptive.size_state import axis_shares, choice_ranges, gain_left, size_states
from nccltune.model.choice import DEFAULT
from tests.unit.builders import Times, choice, measure

K = 1 << 10
SIZES = [K, 4 * K, 16 * K, 64 * K]
TOLL = math.log1p(0.01)
TREE, RING = choice("tree/ll"), choice("ring/ll")


def timed(times: Times, rounds: int = 4, noise: float = 0.005) -> Timings:
    (found,) = sort_samples(measure(SIZES, times, rounds=rounds, noise=noise)).timings
    return found


def falling(size: int) -> dict[str, float]:
    """Return timings: tree is 1.5 times as fast as the default up to 4 KiB, half as fast from 16
    KiB on."""
    tree = 100 / 1.5 if size <= 4 * K else 200.0
    return {"default": 100.0, "tree/ll": tree, "ring/ll": 100.0, "ring/simple": 300.0}


def test_who_leads_and_who_is_out() -> None:
    states = size_states(timed(falling), TOLL, {}, {})
    assert [state.best for state in states.values()] == [TREE, TREE, DEFAULT, DEFAULT]
    assert states[K].gain == pytest.approx(math.log(1.5), abs=0.02)
    assert states[K].alive == {TREE}
    assert states[64 * K].alive >= {RING}
    assert choice("ring/simple") not in states[64 * K].alive
    assert states[K].beats_default
    assert not states[64 * K].beats_default


def test_one_timing_is_not_enough_to_drop_a_choice_that_is_near() -> None:
    def near(_: int) -> dict[str, float]:
        return {"default": 100.0, "tree/ll": 120.0, "ring/simple": 400.0}

    states = size_states(timed(near, rounds=1), TOLL, {}, {})
    assert all(state.unsure >= {TREE} for state in states.values())
    assert all(choice("ring/simple") not in state.unsure for state in states.values())


def test_a_slow_timing_that_the_neighbours_contradict_is_repeated() -> None:
    found = timed(falling, rounds=1)
    found.cells[4 * K][TREE][0, 0] = 500.0
    assert TREE in size_states(found, TOLL, {}, {})[4 * K].unsure


def test_more_noise_is_more_at_stake() -> None:
    quiet = gain_left(size_states(timed(falling, noise=0.002), TOLL, {}, {}))
    loud = gain_left(size_states(timed(falling, noise=0.1), TOLL, {}, {}))
    assert quiet < 0.001 < loud


def test_excluded_choices_are_not_seen_and_equal_ones_are_equal() -> None:
    states = size_states(timed(falling), TOLL, {K: [TREE]}, {4 * K: [RING]})
    assert states[K].best == DEFAULT
    assert states[4 * K].estimates[RING].error == 0
    assert states[4 * K].stakes.get(RING, 0.0) < 1e-6


def test_leads_are_certain_ones() -> None:
    state = size_states(timed(falling), TOLL, {16 * K: [RING]}, {})[16 * K]
    assert state.lead(DEFAULT, TREE) == pytest.approx(math.log(2), abs=0.03)
    assert state.lead(DEFAULT, RING) == math.inf
    assert state.lead(RING, DEFAULT) is None


def test_shares_of_the_axis_add_up() -> None:
    states = size_states(timed(falling), TOLL, {}, {})
    assert math.fsum(axis_shares(states).values()) == pytest.approx(1)
    # Two octaves and one, and half an octave beyond each end.
    assert axis_shares(states)[4 * K] == pytest.approx(2 / 1.5 * axis_shares(states)[K])


def test_runs_are_neighbours_with_one_choice() -> None:
    states = size_states(timed(falling), TOLL, {}, {})
    chosen = {K: TREE, 4 * K: TREE, 16 * K: DEFAULT, 64 * K: TREE}
    found = [
        (found, [state.bytes for state in part]) for found, part in choice_ranges(states, chosen)
    ]
    assert found == [(TREE, [K, 4 * K]), (TREE, [64 * K])]


def test_the_gap_with_the_boundary_is_open_and_only_that() -> None:
    found = timed(falling)
    states = size_states(found, TOLL, {}, {})
    gaps = open_gaps(states, Curves(found), TOLL, {})
    assert [(left.bytes, right.bytes) for left, right in gaps] == [(4 * K, 16 * K)]


def jumping(size: int) -> dict[str, float]:
    """Return timings: tree and ring cross between 4 and 16 KiB. The default runs the better one at
    every size here."""
    tree, ring = (50.0, 70.0) if size <= 4 * K else (160.0, 100.0)
    return {"default": min(tree, ring), "tree/ll": tree, "ring/ll": ring}


def test_a_gap_in_which_the_default_changes_its_choice_is_open() -> None:
    found = timed(jumping)
    states = size_states(found, TOLL, {}, {})
    gaps = open_gaps(states, Curves(found), TOLL, {})
    assert [(left.bytes, right.bytes) for left, right in gaps] == [(4 * K, 16 * K)]


def test_predictions_that_are_right_at_both_ends_are_believed_in_between() -> None:
    found = timed(jumping)
    states = size_states(found, TOLL, {}, {})
    right = {K: TREE, 4 * K: TREE, 8 * K: RING, 16 * K: RING, 64 * K: RING}
    curves = Curves(found)
    assert curves.log_time(8 * K, RING) == pytest.approx(math.log(math.sqrt(70 * 100)), abs=0.01)
    assert open_gaps(states, curves, TOLL, right) == []
    wrong = {**right, 8 * K: RING, 4 * K: RING}
    assert open_gaps(states, curves, TOLL, wrong) != []


def test_candidates_in_between_are_those_near_the_best() -> None:
    found = timed(falling)
    states = size_states(found, TOLL, {}, {})
    legal = [RING, choice("ring/simple"), TREE]
    assert candidates(8 * K, states, Curves(found), legal) == [RING, TREE]


GRID = [1 << power for power in range(10, 20)]


def times(_: int) -> dict[str, float]:
    return {"default": 100.0, "tree/ll": 80.0, "ring/ll": 130.0}


def timings(rounds: int, noise: float, seed: int = 0) -> Timings:
    (found,) = sort_samples(measure(GRID, times, rounds=rounds, noise=noise, seed=seed)).timings
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
    series = found.cells[GRID[3]][TREE]
    series[1, 0] *= 4
    estimate = estimates(found)[GRID[3]][TREE]
    assert estimate.gain == pytest.approx(math.log(100 / 80), abs=0.05)


def test_a_hiccup_in_one_of_two_rounds_leaves_the_matter_open() -> None:
    found = timings(2, 0.01)
    found.cells[GRID[3]][TREE][1, 0] *= 4
    assert estimates(found)[GRID[3]][TREE].high > math.log(100 / 80)


def test_a_size_without_default_has_no_estimates() -> None:
    found = timings(2, 0.01)
    del found.cells[GRID[0]]["default"]
    assert GRID[0] not in estimates(found)


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
