# SPDX-License-Identifier: Apache-2.0
"""The rules that real measurements of 4 x H200, and of one H100, give: the studies of examples/."""

from pathlib import Path

import pytest

from nccltune.analyze import analyze, sort_samples
from nccltune.analyze.gains import gain_tables
from nccltune.model.collective import Collective
from nccltune.model.finding import FindingKind
from nccltune.model.rule import RuleState
from nccltune.study.files import Study
from nccltune.tune.result import TunedGroup, TuneOptions
from nccltune.tune.search import search

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
STUDIES = sorted(path.parent for path in EXAMPLES.glob("*/samples.jsonl"))
K, M = 1 << 10, 1 << 20


def groups(study: Path, **options: object) -> dict[Collective, TunedGroup]:
    found = sort_samples(Study.open(study).samples())
    tune_options = TuneOptions(**options)  # type: ignore[arg-type]
    return {group.collective: group for group in search(found.timings, tune_options)}


@pytest.fixture(scope="module")
def node() -> dict[Collective, TunedGroup]:
    return groups(EXAMPLES / "h200x4-1-node")


def test_all_reduce_within_the_node_is_left_alone(node: dict[Collective, TunedGroup]) -> None:
    group = node[Collective.ALLREDUCE]
    assert group.rules == []
    assert sum(item.sizes for item in group.left_alone) == 21


def test_the_misses_of_all_gather_within_the_node_are_found(
    node: dict[Collective, TunedGroup],
) -> None:
    (rule,) = node[Collective.ALLGATHER].rules
    assert rule.rule.choice.label == "ring/ll128"
    assert {4 * M, 8 * M, 16 * M} <= set(rule.sizes)
    assert rule.most == pytest.approx(1.38, abs=0.02)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.name)
def test_no_rule_is_slower_than_the_default_beyond_noise(path: Path) -> None:
    found = sort_samples(Study.open(path).samples())
    tables = {table.collective: table for table in gain_tables(found.timings, 0.05)}
    checked = 0
    for group in search(found.timings):
        for decision in group.decisions:
            if decision.choice is None:
                continue
            assert decision.default_us is not None
            noise = tables[group.collective].noise.high
            assert decision.tuned_us <= decision.default_us * (1 + noise)
            checked += 1
    assert checked >= 5


def test_what_the_analysis_says_within_the_node() -> None:
    study = Study.open(EXAMPLES / "h200x4-1-node")
    analysis = analyze(study.platform(), sort_samples(study.samples()))
    crossed = {f.collective for f in analysis.findings if f.kind is FindingKind.BAD_CROSSOVER}
    assert Collective.ALLGATHER in crossed
    noise = next(item.noise for item in analysis.conditions)
    assert noise.source == "a/a series"
    assert noise.typical < 0.01


def chosen(group: TunedGroup) -> list[str]:
    return [item.rule.choice.label for item in group.rules]


def test_the_examples_are_one_machine_as_one_two_and_four_nodes_and_one_gpu() -> None:
    assert [path.name for path in STUDIES] == [
        "h100-as-4-nodes",
        "h100-as-4-nodes-2.32.3",
        "h100-as-8-nodes",
        "h100-as-8-nodes-2.32.3",
        "h200x4-1-node",
        "h200x4-as-2-nodes",
        "h200x4-as-4-nodes",
    ]


def winners(study: str) -> dict[tuple[Collective, int, str], int]:
    """1: faster than the default by the 95 % interval, -1: slower, 0: undecided."""
    found = sort_samples(Study.open(EXAMPLES / study).samples())
    outcomes = {}
    for table in gain_tables(found.timings, 0.05):
        for size in table.sizes:
            for choice in table.choices:
                gain = table.gain(size, choice)
                if gain is not None:
                    key = (table.collective, size, choice.label)
                    outcomes[key] = (gain.low > 0) - (gain.high < 0)
    return outcomes


def test_four_ranks_on_one_gpu_contradict_no_choice_of_four_gpus() -> None:
    one, four = winners("h100-as-4-nodes"), winners("h200x4-as-4-nodes")
    both = [(one[key], four[key]) for key in one.keys() & four.keys()]
    assert len(both) == 150
    assert sum(pair == (1, 1) for pair in both) >= 20
    assert sum(pair == (-1, -1) for pair in both) >= 60
    assert not any(pair in ((1, -1), (-1, 1)) for pair in both)


def test_the_demo_finds_pat_where_nccl_takes_the_ring() -> None:
    found = groups(EXAMPLES / "h200x4-as-4-nodes")
    assert {kind.value: chosen(group) for kind, group in found.items()} == {
        "allreduce": ["tree/ll", "tree/simple"],
        "allgather": ["pat/simple"],
        "reducescatter": ["pat/simple"],
    }
    for group in found.values():
        assert group.recovered is not None
        assert group.recovered >= 0.88
        assert all(item.state is RuleState.SURE and item.rule.max_bytes < M for item in group.rules)
        for item in group.rules:
            assert item.channels is not None
            assert item.default_channels is not None
            assert item.channels <= item.default_channels
    most = {kind.value: max(item.most for item in group.rules) for kind, group in found.items()}
    assert most == pytest.approx(
        {"allreduce": 1.47, "allgather": 1.62, "reducescatter": 1.59}, abs=0.02
    )


def test_two_nodes_get_other_rules_than_four() -> None:
    found = groups(EXAMPLES / "h200x4-as-2-nodes")
    assert {kind.value: chosen(group) for kind, group in found.items()} == {
        "allreduce": ["tree/ll", "tree/simple", "ring/simple"],
        "allgather": ["ring/ll"],
        "reducescatter": ["ring/ll"],
    }
    assert found[Collective.ALLREDUCE].rules[-1].sizes[-1] == 64 * M


def test_a_second_channel_that_the_default_does_not_take_must_be_asked_for() -> None:
    """At 8 to 32 KiB the default takes one channel and tree/ll two."""
    study = EXAMPLES / "h200x4-as-4-nodes"
    plain = groups(study)[Collective.ALLREDUCE]
    asked = groups(study, channels="any")[Collective.ALLREDUCE]
    assert plain.rules[0].rule.max_bytes < 16 * 1024 < asked.rules[0].rule.max_bytes
    assert any("--channels any" in item.reason for item in plain.left_alone)
    assert plain.recovered is not None
    assert asked.recovered is not None
    assert asked.recovered > plain.recovered + 0.04
