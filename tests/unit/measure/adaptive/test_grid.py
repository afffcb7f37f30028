# SPDX-License-Identifier: Apache-2.0
import pytest

from nccltune.measure.adaptive.grid import Grid
from nccltune.model.collective import Collective

K, M = 1 << 10, 1 << 20


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
