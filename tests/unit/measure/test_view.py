# SPDX-License-Identifier: Apache-2.0
import math

import pytest

from nccltune.analyze.timings import Timings, sort_samples
from nccltune.measure.refine import Curves, candidates, open_gaps
from nccltune.measure.view import gain_left, look, runs, shares
from nccltune.model.choice import DEFAULT
from tests.unit.builders import Times, measure
from tests.unit.measure.platforms import choice

K = 1 << 10
SIZES = [K, 4 * K, 16 * K, 64 * K]
TOLL = math.log1p(0.01)
TREE, RING = choice("tree/ll"), choice("ring/ll")


def timed(times: Times, rounds: int = 4, noise: float = 0.005) -> Timings:
    (found,) = sort_samples(measure(SIZES, times, rounds=rounds, noise=noise)).timings
    return found


def falling(size: int) -> dict[str, float]:
    """tree is 1.5 times as fast as the default to 4 KiB, half as fast from 16 KiB on."""
    tree = 100 / 1.5 if size <= 4 * K else 200.0
    return {"default": 100.0, "tree/ll": tree, "ring/ll": 100.0, "ring/simple": 300.0}


def test_who_leads_and_who_is_out() -> None:
    views = look(timed(falling), TOLL, {}, {})
    assert [view.best for view in views.values()] == [TREE, TREE, DEFAULT, DEFAULT]
    assert views[K].gain == pytest.approx(math.log(1.5), abs=0.02)
    assert views[K].alive == {TREE}
    assert views[64 * K].alive >= {RING}
    assert choice("ring/simple") not in views[64 * K].alive
    assert views[K].better
    assert not views[64 * K].better


def test_one_timing_is_not_enough_to_drop_a_choice_that_is_near() -> None:
    def near(_: int) -> dict[str, float]:
        return {"default": 100.0, "tree/ll": 120.0, "ring/simple": 400.0}

    views = look(timed(near, rounds=1), TOLL, {}, {})
    assert all(view.unsure >= {TREE} for view in views.values())
    assert all(choice("ring/simple") not in view.unsure for view in views.values())


def test_a_slow_timing_that_the_neighbours_contradict_is_looked_at_again() -> None:
    found = timed(falling, rounds=1)
    found.cells[4 * K][TREE][0, 0] = 500.0
    assert TREE in look(found, TOLL, {}, {})[4 * K].unsure


def test_more_noise_is_more_at_stake() -> None:
    quiet = gain_left(look(timed(falling, noise=0.002), TOLL, {}, {}))
    loud = gain_left(look(timed(falling, noise=0.1), TOLL, {}, {}))
    assert quiet < 0.001 < loud


def test_excluded_choices_are_not_seen_and_equal_ones_are_equal() -> None:
    views = look(timed(falling), TOLL, {K: [TREE]}, {4 * K: [RING]})
    assert views[K].best == DEFAULT
    assert views[4 * K].estimates[RING].error == 0
    assert views[4 * K].stakes.get(RING, 0.0) < 1e-6


def test_leads_are_certain_ones() -> None:
    view = look(timed(falling), TOLL, {16 * K: [RING]}, {})[16 * K]
    assert view.lead(DEFAULT, TREE) == pytest.approx(math.log(2), abs=0.03)
    assert view.lead(DEFAULT, RING) == math.inf
    assert view.lead(RING, DEFAULT) is None


def test_shares_of_the_axis_add_up() -> None:
    views = look(timed(falling), TOLL, {}, {})
    assert math.fsum(shares(views).values()) == pytest.approx(1)
    # Two octaves against one, and half of one beyond the end.
    assert shares(views)[4 * K] == pytest.approx(2 / 1.5 * shares(views)[K])


def test_runs_are_neighbours_with_one_choice() -> None:
    views = look(timed(falling), TOLL, {}, {})
    chosen = {K: TREE, 4 * K: TREE, 16 * K: DEFAULT, 64 * K: TREE}
    found = [(found, [view.bytes for view in part]) for found, part in runs(views, chosen)]
    assert found == [(TREE, [K, 4 * K]), (TREE, [64 * K])]


def test_the_gap_with_the_boundary_is_open_and_only_that() -> None:
    found = timed(falling)
    views = look(found, TOLL, {}, {})
    gaps = open_gaps(views, Curves(found), TOLL, {})
    assert [(left.bytes, right.bytes) for left, right in gaps] == [(4 * K, 16 * K)]


def jumping(size: int) -> dict[str, float]:
    """tree and ring cross between 4 and 16 KiB; the default runs the better at every size here."""
    tree, ring = (50.0, 70.0) if size <= 4 * K else (160.0, 100.0)
    return {"default": min(tree, ring), "tree/ll": tree, "ring/ll": ring}


def test_a_gap_in_which_the_default_changes_its_mind_is_looked_into() -> None:
    found = timed(jumping)
    views = look(found, TOLL, {}, {})
    gaps = open_gaps(views, Curves(found), TOLL, {})
    assert [(left.bytes, right.bytes) for left, right in gaps] == [(4 * K, 16 * K)]


def test_predictions_that_are_right_at_both_ends_are_believed_in_between() -> None:
    found = timed(jumping)
    views = look(found, TOLL, {}, {})
    right = {K: TREE, 4 * K: TREE, 8 * K: RING, 16 * K: RING, 64 * K: RING}
    curves = Curves(found)
    assert curves.log_time(8 * K, RING) == pytest.approx(math.log(math.sqrt(70 * 100)), abs=0.01)
    assert open_gaps(views, curves, TOLL, right) == []
    wrong = {**right, 8 * K: RING, 4 * K: RING}
    assert open_gaps(views, curves, TOLL, wrong) != []


def test_candidates_in_between_are_those_near_the_best() -> None:
    found = timed(falling)
    views = look(found, TOLL, {}, {})
    legal = [RING, choice("ring/simple"), TREE]
    assert candidates(8 * K, views, Curves(found), legal) == [RING, TREE]
