# SPDX-License-Identifier: Apache-2.0
"""The rules that real measurements give (examples/, 4 x H200)."""

from pathlib import Path

import pytest

from nccltune.analyze import analyze_sorted, sort_samples
from nccltune.analyze.gains import gain_tables
from nccltune.model.collective import Collective
from nccltune.model.finding import FindingKind
from nccltune.model.study import Study
from nccltune.tune.result import TunedGroup
from nccltune.tune.search import search

EXAMPLES = Path(__file__).parents[3] / "examples"
K, M = 1 << 10, 1 << 20


def groups(name: str) -> dict[Collective, TunedGroup]:
    found = sort_samples(Study.open(EXAMPLES / name).samples())
    return {group.collective: group for group in search(found.timings)}


@pytest.fixture(scope="module")
def sockets() -> dict[Collective, TunedGroup]:
    return groups("h200x4-as-4-nodes")


@pytest.fixture(scope="module")
def node() -> dict[Collective, TunedGroup]:
    return groups("h200x4-1-node")


def test_all_reduce_over_sockets_recovers_the_gain_with_few_rules(
    sockets: dict[Collective, TunedGroup],
) -> None:
    group = sockets[Collective.ALLREDUCE]
    assert 1 <= len(group.rules) <= 6
    assert group.recovered is not None
    assert group.recovered >= 0.95
    assert group.noise_source == "a/a series"
    assert [item.rule.choice.label for item in group.rules] == ["tree/ll", "tree/simple"]
    assert all(item.sure for item in group.rules)


def test_reduce_scatter_over_sockets_has_no_rule_above_1_mib(
    sockets: dict[Collective, TunedGroup],
) -> None:
    group = sockets[Collective.REDUCESCATTER]
    assert group.rules
    assert all(item.rule.max_bytes <= M for item in group.rules)


def test_reduce_over_sockets_is_left_alone(sockets: dict[Collective, TunedGroup]) -> None:
    assert sockets[Collective.REDUCE].rules == []


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


@pytest.mark.parametrize("name", ["h200x4-as-4-nodes", "h200x4-1-node"])
def test_no_rule_is_slower_than_the_default_beyond_noise(name: str) -> None:
    found = sort_samples(Study.open(EXAMPLES / name).samples())
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
    analysis = analyze_sorted(study.platform(), sort_samples(study.samples()))
    crossed = {f.collective for f in analysis.findings if f.kind is FindingKind.BAD_CROSSOVER}
    assert Collective.ALLREDUCE not in crossed
    assert Collective.ALLGATHER in crossed
    noise = next(item.noise for item in analysis.conditions)
    assert noise.source == "a/a series"
    assert noise.typical < 0.01
