# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Collection, Mapping

import pytest

from nccltune.analyze.result import Condition
from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive.collective_plan import dominated_choices
from nccltune.measure.adaptive.grid import Grid
from nccltune.measure.adaptive.rounds import (
    PROOF_ROUNDS,
    SizeDecisions,
    unproven,
    unsettled,
    worth_repeating,
)
from nccltune.measure.adaptive.size_state import SizeStates, size_states
from nccltune.model.choice import DEFAULT, AnyChoice
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale
from tests.unit.builders import choice
from tests.unit.measure.platforms import K, M

TREE, RING = choice("tree/ll"), choice("ring/ll")
TOLL = math.log1p(0.01)
CONDITION = Condition(Collective.ALLREDUCE, Scale(4, 4))


def timed(rounds: Mapping[int, Collection[int]], gain: float, *, noise: float = 0.002) -> Timings:
    """Return timings in which tree/ll has `gain` over the default in the rounds of each size."""
    cells: dict[int, dict[AnyChoice, dict[tuple[int, int], float]]] = {}
    for size, numbers in rounds.items():
        us = 50 + size / 1e3
        swing = {number: (-1) ** number * noise for number in numbers}
        default = {(n, r): us * (1 + swing[n] * (2 * r - 1)) for n in numbers for r in (0, 1)}
        tree = {(n, 0): us / math.exp(gain) * (1 + swing[n]) for n in numbers}
        cells[size] = {DEFAULT: default, TREE: tree}
    return Timings(CONDITION, cells)


def seen(timings: Timings) -> SizeStates:
    return size_states(timings, TOLL, {}, {})


def test_rounds_that_most_sizes_have_are_filled_up_at_the_others() -> None:
    timings = timed({K: {0, 1, 2, 3}, 2 * K: {0, 1, 2, 3}, 4 * K: {0}}, 0.3)
    next_rounds = {K: 4, 2 * K: 4, 4 * K: 1}
    decided = dict.fromkeys(timings.sizes, TREE)
    found = unproven(seen(timings), timings, SizeDecisions(decided), next_rounds, TOLL)
    assert {size: item.rounds for size, item in found.items()} == {4 * K: (1, 2, 3)}
    assert found[4 * K].choices == (TREE,)


def test_rounds_that_are_past_at_a_size_are_made_up_by_new_ones() -> None:
    timings = timed({K: {0, 1, 2, 3}, 4 * K: {0}}, 0.3)
    decided = dict.fromkeys(timings.sizes, TREE)
    found = unproven(seen(timings), timings, SizeDecisions(decided), {K: 4, 4 * K: 3}, TOLL)
    assert found[4 * K].rounds == (3, 4, 5)
    assert found[K].rounds == (4, 5)


def test_a_rule_with_four_rounds_in_common_is_left_alone() -> None:
    timings = timed(dict.fromkeys((K, 2 * K, 4 * K), range(4)), 0.3)
    decided = dict.fromkeys(timings.sizes, TREE)
    rounds = dict.fromkeys(timings.sizes, 4)
    assert unproven(seen(timings), timings, SizeDecisions(decided), rounds, TOLL) == {}


@pytest.mark.parametrize(("had", "wanted"), [(4, (4, 5)), (6, (6, 7, 8)), (16, ())])
def test_a_candidate_gets_rounds_until_it_is_sure_or_has_the_most(
    had: int, wanted: tuple[int, ...]
) -> None:
    timings = timed(dict.fromkeys((K, 2 * K, 4 * K), range(had)), 0.3)
    decided = SizeDecisions(dict.fromkeys(timings.sizes, TREE), frozenset(timings.sizes))
    found = unproven(seen(timings), timings, decided, dict.fromkeys(timings.sizes, had), TOLL)
    assert {item.rounds for item in found.values()} == ({wanted} if wanted else set())
    assert set(found) == (set(timings.sizes) if wanted else set())


def test_a_gain_that_no_rule_takes_is_proven_if_it_is_worth_it() -> None:
    timings = timed(dict.fromkeys((K, 2 * K, 4 * K), range(2)), 0.3)
    nothing = SizeDecisions(dict.fromkeys(timings.sizes, DEFAULT))
    found = unproven(seen(timings), timings, nothing, dict.fromkeys(timings.sizes, 2), TOLL)
    assert {item.rounds for item in found.values()} == {(2, 3)}
    assert PROOF_ROUNDS[0] == 4
    small = timed(dict.fromkeys((K, 2 * K, 4 * K), range(2)), 0.012)
    assert unproven(seen(small), small, nothing, dict.fromkeys(small.sizes, 2), TOLL) == {}


def test_a_proof_that_costs_more_than_it_is_worth_is_given_up() -> None:
    """At the largest size a call takes 20 times as long as all other calls together."""
    sizes = [K << power for power in range(8)]
    timings = timed({**dict.fromkeys(sizes, range(2)), 256 * M: range(2)}, 0.0, noise=0.03)
    tree = timings.cells[256 * M][TREE]
    for key in tree:
        tree[key] /= math.exp(0.06)
    nothing = SizeDecisions(dict.fromkeys(timings.sizes, DEFAULT))
    states = seen(timings)
    assert states[256 * M].best == TREE
    assert unproven(states, timings, nothing, dict.fromkeys(timings.sizes, 2), TOLL) == {}


def test_the_cheap_sizes_are_settled_first() -> None:
    timings = timed({K: {0}, 2 * K: {0}, 64 * M: {0}}, 0.0, noise=0.05)
    found = unsettled(seen(timings), timings, dict.fromkeys(timings.sizes, 1), TOLL)
    assert found
    assert 64 * M not in found[:1]
    assert unsettled(seen(timings), timings, dict.fromkeys(timings.sizes, 1), 1.0) == []


def test_only_rivals_are_repeated() -> None:
    timings = timed({K: {0, 1}, 4 * K: {0, 1}}, 0.0)
    for by_choice in timings.cells.values():
        by_choice[RING] = {key: 3 * us for key, us in by_choice[TREE].items()}
    state = seen(timings)[K]
    assert RING not in worth_repeating(state, TOLL)


@pytest.mark.parametrize(
    ("ring", "lost"),
    [
        ((100.0, 400.0), True),  # slower at both sizes, and twice the slope
        ((100.0, 160.0), False),  # slower, but with a lower slope
        (
            (40.0, 160.0),
            False,
        ),  # faster at the smaller size: one disturbed timing may explain the rest
        ((100.0, 130.0), False),  # latency dominates
    ],
)
def test_a_choice_is_dominated_where_it_is_behind_now_and_in_slope(
    ring: tuple[float, float], lost: bool
) -> None:
    tree = (50.0, 140.0)
    cells: dict[int, dict[AnyChoice, dict[tuple[int, int], float]]] = {}
    for size, of_tree, of_ring in zip((256 * K, M), tree, ring, strict=True):
        cells[size] = {
            DEFAULT: {(0, 0): of_tree * 1.001, (0, 1): of_tree},
            TREE: {(0, 0): of_tree},
            RING: {(0, 0): of_ring},
        }
    states = size_states(Timings(CONDITION, cells), TOLL, {}, {})
    growth = math.log(tree[1] / tree[0])
    assert (RING in dominated_choices(states[256 * K], states[M], growth)) == lost
    assert TREE not in dominated_choices(states[256 * K], states[M], growth)


def test_sizes_go_by_the_factor_and_end_at_the_last() -> None:
    grid = Grid(Collective.ALLREDUCE, 4, K, 3 * M)
    assert grid.every(4) == [K, 4 * K, 16 * K, 64 * K, 256 * K, M, 3 * M]
    assert Grid(Collective.ALLREDUCE, 4, K, K).every(2) == [K]


@pytest.mark.parametrize("collective", [Collective.ALLGATHER, Collective.REDUCESCATTER])
def test_every_rank_has_whole_elements(collective: Collective) -> None:
    grid = Grid(collective, 24, K, M)
    sizes = grid.every(2)
    assert all(size % (24 * 4) == 0 for size in sizes)
    assert sizes[0] == pytest.approx(K, rel=0.05)


def test_every_call_of_a_group_has_whole_elements() -> None:
    grid = Grid(Collective.ALLGATHER, 8, K, M, group_calls=60)
    assert all(size % (60 * 8 * 4) == 0 for size in grid.every(2))
    assert grid.aligned(1) == 60 * 8 * 4
    large = Grid(Collective.ALLREDUCE, 8, K, M, group_calls=60).aligned(M)
    assert large % (60 * 16) == 0


def test_the_middle_is_halfway_on_a_log_axis() -> None:
    grid = Grid(Collective.ALLREDUCE, 4, 4, M)
    assert grid.middle(K, 4 * K) == 2 * K
    assert grid.middle(64 * K, 128 * K) == pytest.approx(64 * K * 2**0.5, abs=16)
    assert grid.middle(4, 8) is None
    assert (grid.middle(64 * K, 128 * K) or 0) % 16 == 0


def test_the_smallest_size_is_an_element() -> None:
    assert Grid(Collective.ALLREDUCE, 4, 1, 8).every(2) == [4, 8]
