# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from msgspec.structs import replace

from nccltune.analyze import sort_samples
from nccltune.analyze.timings import Timings
from nccltune.model.errors import InputError
from nccltune.model.sample import Sample
from nccltune.tune.result import TunedGroup, TuneOptions, Tuning
from nccltune.tune.search import search
from nccltune.tune.study import read_weights, render, widen
from tests.unit.builders import Times, measure, sizes

K, M = 1 << 10, 1 << 20
SIZES = sizes(K, 16 * M)


def better_up_to(last: int) -> Times:
    def times(size: int) -> dict[str, float]:
        return {"default": 100.0, "tree/ll": 60.0 if size <= last else 150.0}

    return times


OPTIONS = TuneOptions(any_scale=True)


def measured(times: Times, nodes: int, *, noise: float = 0.01, **more: bool) -> list[Sample]:
    return measure(SIZES, times, noise=noise, nodes=nodes, ranks=8 * nodes, **more)


def searched(*parts: list[Sample]) -> tuple[list[Timings], list[TunedGroup]]:
    timings = sort_samples([sample for part in parts for sample in part]).timings
    return timings, search(timings, OPTIONS)


def widened(*parts: list[Sample]) -> list[TunedGroup]:
    timings, groups = searched(*parts)
    return widen(groups, timings, OPTIONS)


def unchanged(*parts: list[Sample]) -> bool:
    """Whether the groups are those that the search found."""
    return widened(*parts) == searched(*parts)[1]


def test_a_rule_is_widened_to_the_range_where_it_holds_at_each_scale() -> None:
    two, four = widened(measured(better_up_to(M), 2), measured(better_up_to(64 * K), 4))
    wide, rest = (item.rule for item in two.rules)
    assert (wide.nodes, wide.ranks, wide.min_bytes) == (None, None, K)
    assert 64 * K <= wide.max_bytes < 128 * K
    assert (rest.nodes, rest.ranks, rest.min_bytes) == (2, 16, wide.max_bytes + 1)
    assert [item.rule for item in four.rules] == [wide]


def test_the_configuration_states_that_other_scales_are_only_predicted() -> None:
    groups = widened(measured(better_up_to(M), 2), measured(better_up_to(64 * K), 4))
    tuning = Tuning("x", "2026-01-31", OPTIONS, groups, samples=1)
    lines = render(tuning).splitlines()
    above = {line: lines[number - 1] for number, line in enumerate(lines) if line[0] != "#"}
    wide, own = above.values()
    assert wide.endswith("; only predicted at scales that were not measured")
    assert own.startswith("# sure: ")
    assert "predicted" not in own


def test_a_rule_that_one_scale_lacks_is_not_widened() -> None:
    two, four = widened(measured(better_up_to(M), 2), measured(better_up_to(0), 4))
    assert [item.rule.nodes for item in two.rules] == [2]
    assert four.rules == []


def test_one_scale_is_not_any_scale() -> None:
    (group,) = widened(measure(SIZES, better_up_to(M), noise=0.01))
    assert [item.rule.nodes for item in group.rules] == [4]


def test_registered_buffers_measured_apart_at_one_scale_keep_rules_from_being_widened() -> None:
    parts = [measured(better_up_to(M), nodes) for nodes in (2, 4, 8)]
    assert unchanged(*parts, measured(better_up_to(0), 8, registered=True))


def test_scales_measured_with_registered_buffers_only_are_widened_as_well() -> None:
    parts = (measured(better_up_to(M), nodes, noise=0.0, registered=True) for nodes in (2, 4))
    for group in widened(*parts):
        assert [item.rule.nodes for item in group.rules] == [None]


def better_but_between(low: int, high: int) -> Times:
    def times(size: int) -> dict[str, float]:
        return {"default": 100.0, "tree/ll": 150.0 if low <= size <= high else 60.0}

    return times


def test_two_rules_of_a_scale_are_not_widened_as_one() -> None:
    parts = measured(better_up_to(16 * M), 2), measured(better_but_between(16 * K, M), 4)
    assert [len(group.rules) for group in searched(*parts)[1]] == [1, 2]
    assert unchanged(*parts)


def test_a_range_is_widened_only_if_the_timings_of_each_scale_prove_it() -> None:
    timings, (two, four) = searched(measured(better_up_to(M), 2), measured(better_up_to(0), 4))
    (item,) = two.rules
    claimed = replace(item, rule=replace(item.rule, nodes=4, ranks=32))
    groups = [two, replace(four, rules=[claimed])]
    assert widen(groups, timings, OPTIONS) == groups


@pytest.mark.parametrize("weight", ["1e308", "nan", "-1", "inf", ""])
def test_impossible_weights_are_refused(tmp_path: Path, weight: str) -> None:
    path = tmp_path / "weights.csv"
    path.write_text(f"64K,{weight}\n")
    with pytest.raises(InputError, match="is not a weight"):
        read_weights(path)
