# SPDX-License-Identifier: Apache-2.0
"""Runs whose number of nodes is unknown."""

import pytest
from msgspec.structs import replace

from nccltune.analyze import sort_samples
from nccltune.analyze.compared import comparisons, is_right
from nccltune.model.finding import FindingKind
from nccltune.model.platform import Platform
from nccltune.model.sample import Sample
from nccltune.model.scale import Scale
from tests.unit.builders import analyze_samples, measure, sizes

PLATFORM = Platform(name="synthetic")
K = 1 << 10


def falling(size: int) -> dict[str, float]:
    return {"default": 400.0 if size == 64 * K else 20 + size / 1e4, "ring/ll": 50.0}


def run(process: str, ranks: int | None = 8, nodes: int | None = None) -> list[Sample]:
    found = measure(sizes(32 * K, 1024 * K), falling, rounds=1, twice=False)
    return [
        replace(item, nodes=nodes, ranks=ranks, source=replace(item.source, process=process))
        for item in found
    ]


def test_the_default_of_a_single_run_is_shown_and_compared_with_nothing() -> None:
    found = sort_samples(run("a"))
    assert found.timings == []
    assert [item.condition.scale for item in found.unscaled] == [Scale(0, 8)]
    assert found.without_scale == len(run("a")) // 2, "the forced choice needs a scale"
    analysis = analyze_samples(PLATFORM, run("a"))
    (condition,) = analysis.conditions
    assert condition.title == "all-reduce, ? nodes, 8 ranks"
    assert [str(curve.choice) for curve in condition.curves] == ["default"]
    kinds = [item.kind for item in analysis.findings]
    assert FindingKind.FALLING_TIME in kinds
    assert FindingKind.BAD_CROSSOVER not in kinds
    assert any("import again with --nodes" in item.sentence for item in analysis.findings)


def test_several_runs_may_be_of_several_scales_so_each_has_its_curve() -> None:
    both = sort_samples([*run("a"), *run("b")])
    assert [(item.condition.run, item.rounds) for item in both.unscaled] == [
        ("run 1", 1),
        ("run 2", 1),
    ]
    named = sort_samples([*run("a"), *run("b")], names={"a": "x.log", "b": "y.log, run 2"})
    assert [item.condition.run for item in named.unscaled] == ["x.log", "y.log, run 2"]
    one_file = sort_samples([*run("a"), *run("b")], names={"a": "x, run 1", "b": "x, run 2"})
    assert [item.condition.run for item in one_file.unscaled] == ["run 1", "run 2"]
    many = sort_samples(item for number in range(13) for item in run(f"p{number}"))
    assert many.unscaled == []
    assert many.without_scale == 13 * len(run("a"))


def test_the_pieces_of_one_sweep_are_one_curve() -> None:
    pieces = [
        replace(item, source=replace(item.source, process=str(item.bytes))) for item in run("a")
    ]
    (found,) = sort_samples(pieces).unscaled
    assert found.condition.run == ""
    assert len(found.sizes) == len({item.bytes for item in pieces})


def test_a_run_without_ranks_shows_its_times_and_no_bandwidth() -> None:
    found = sort_samples([*run("a"), *run("b", ranks=16), *run("c", ranks=None)])
    assert [item.condition.scale.ranks for item in found.unscaled] == [0, 8, 16]
    analysis = analyze_samples(PLATFORM, run("c", ranks=None))
    (condition,) = analysis.conditions
    assert condition.title == "all-reduce, ? nodes, ? ranks"
    assert condition.saturation is None
    assert {item.kind for item in analysis.findings} == {
        FindingKind.FALLING_TIME,
        FindingKind.NOT_COMPARED,
        FindingKind.SUSPECT_RUN,
    }
    (comparison,) = comparisons(analysis)
    assert "number of nodes and ranks is unknown" in comparison.text


def test_a_run_that_was_imported_again_with_its_scale_is_used_once() -> None:
    found = sort_samples([*run("a"), *run("a", nodes=2)])
    assert found.unscaled == []
    assert found.without_scale == 0
    assert [item.condition.scale for item in found.timings] == [Scale(2, 8)]


@pytest.mark.parametrize("nodes", [None, 2])
def test_half_a_choice_is_shown_and_compared_with_nothing(nodes: int | None) -> None:
    half = [
        replace(item, choice="NCCL_ALGO=Tree")
        for item in run("b", nodes=nodes)
        if item.choice == "default"
    ]
    found = sort_samples([*run("a", nodes=2), *half])
    assert "NCCL_ALGO=Tree" not in {choice for item in found.timings for choice in item.choices}
    assert [item.choices for item in (*found.unscaled, *found.partial)] == [["NCCL_ALGO=Tree"]]
    analysis = analyze_samples(PLATFORM, half)
    (condition,) = analysis.conditions
    assert condition.title == f"all-reduce, {nodes or '?'} nodes, 8 ranks, NCCL_ALGO=Tree"
    assert not is_right(analysis)
    (comparison,) = comparisons(analysis)
    assert "NCCL_ALGO=Tree, protocol chosen by NCCL" in comparison.text
    (falls,) = (item for item in analysis.findings if item.kind is FindingKind.FALLING_TIME)
    assert "64 KiB 400 us" in falls.sentence
    assert "default" not in falls.sentence


def test_wrong_results_are_not_called_an_unknown_scale() -> None:
    first, *others = run("a")
    found = sort_samples([replace(first, wrong=3), *others])
    assert [len(one.sizes) for one in found.wrong] == [1]
    assert found.without_scale == len(run("a")) // 2
