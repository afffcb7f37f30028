# SPDX-License-Identifier: Apache-2.0
"""Another plugin that reads the same configuration must decide as ours does.

    NCCLTUNE_PEER_TUNER=/path/to/libnccl-tuner-example.so pytest -m peer

The variable names it: NVIDIA's example plugin (plugins/tuner/example of NCCL), built elsewhere.
What it does outside of the rules is known to differ, and is held fast here, too.
"""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nccltune.formats.tuner_config.csv_rules import read_rules, write_rules
from nccltune.model.choice import Algorithm, Choice, Protocol
from nccltune.model.collective import TUNED, Collective
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale
from nccltune.native import PluginHost, TunerAnswer, tuner_path
from nccltune.native.plugin_host import Costs

pytestmark = pytest.mark.peer
PEER = os.environ.get("NCCLTUNE_PEER_TUNER", "")

STUDY = Path(__file__).parents[2] / "examples" / "h200x4-as-4-nodes"
SCALE = Scale(nodes=4, ranks=32)
VERSIONS = ("2.28.9", "2.29.7", "2.30.7", "2.31.2", "2.32.6")
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
TREE, RING = Algorithm.TREE, Algorithm.RING
LL, LL128, SIMPLE = Protocol.LL, Protocol.LL128, Protocol.SIMPLE

RULES = (
    Rule(Collective.ALLREDUCE, 0, 96 * KIB, Choice(TREE, LL, 4), 4, 32),
    Rule(Collective.ALLREDUCE, 96 * KIB + 1, 12 * MIB, Choice(TREE, LL128, 8), 4, 32),
    Rule(Collective.ALLREDUCE, 12 * MIB + 1, 96 * MIB, Choice(RING, LL128, 16), 4, 32),
    Rule(Collective.ALLREDUCE, 96 * MIB + 1, 64 * GIB, Choice(RING, SIMPLE, 32), 4, 32),
    Rule(Collective.ALLGATHER, 4 * KIB, 64 * KIB, Choice(RING, SIMPLE, 2), 2, 16),
    Rule(Collective.ALLGATHER, 4 * KIB, 64 * KIB, Choice(RING, LL, 2), None, 32),
    Rule(Collective.ALLGATHER, 1 * MIB, 8 * MIB, Choice(RING, LL128, 24)),
    Rule(Collective.REDUCESCATTER, 1 * KIB, 1 * MIB, Choice(RING, LL, 6), 4, 32, 2),
    Rule(Collective.REDUCESCATTER, 1 * KIB, 1 * MIB, Choice(RING, SIMPLE, 7), 4, 32, None, True),
    Rule(Collective.BROADCAST, 2 * MIB, 32 * MIB, Choice(RING, SIMPLE, 16), 4, 32),
)
"""Explicit channels everywhere; all-gather also has a rule of another scale."""

Hosts = tuple[PluginHost, PluginHost]


def written(rules: Sequence[Rule], folder: Path) -> Path:
    """The rules as nccltune writes them."""
    path = folder / "tuner.conf"
    header = {"schema": "1", "gpu": "NVIDIA H200", "study": "comparison"}
    path.write_text(write_rules(rules, header))
    return path


@contextmanager
def both(conf: Path, version: str, scale: Scale = SCALE) -> Iterator[Hosts]:
    """Our plugin and the peer with the same file under one NCCL version."""
    assert PEER is not None
    environment = {"NCCL_TUNER_CONFIG_FILE": str(conf), "NCCLTUNE_CONFIG": None}
    ours, peer = (
        PluginHost(plugin, nccl_version=version, scale=scale, environment=environment)
        for plugin in (tuner_path(), Path(PEER))
    )
    with ours, peer:
        yield ours, peer


@pytest.fixture(params=VERSIONS)
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hosts]:
    with both(written(RULES, tmp_path), request.param) as pair:
        yield pair


def sizes(rule: Rule) -> list[int]:
    """Both ends of its range and 20 sizes between, evenly drawn on the log axis."""
    draw = random.Random(rule.max_bytes)
    low = max(1, rule.min_bytes)
    between = [int(low * (rule.max_bytes / low) ** draw.random()) for _ in range(20)]
    return [rule.min_bytes, *between, rule.max_bytes]


def expected(collective: Collective, size: int, pipe_ops: int, registered: bool) -> Rule | None:
    """The first rule that matches, by the documented reading."""
    call = (collective, size, SCALE.nodes, SCALE.ranks, pipe_ops, registered)
    return next((rule for rule in RULES if rule.matches(*call)), None)


def test_inside_the_rules_both_decide_alike(hosts: Hosts) -> None:
    ours, peer = hosts
    compared = 0
    for rule in RULES:
        for size in sizes(rule):
            for pipe_ops, registered in ((1, False), (2, False), (1, True), (2, True)):
                wanted = expected(rule.collective, size, pipe_ops, registered)
                if wanted is None:
                    continue
                conditions = {"pipe_ops": pipe_ops, "registered": registered}
                mine = ours.decide(rule.collective, size, **conditions)
                theirs = peer.decide(rule.collective, size, **conditions)
                assert isinstance(mine.decided, TunerAnswer)
                assert mine.decided.choice == wanted.choice, (rule, size)
                assert theirs.decided == mine.decided, (rule, size)
                assert theirs.selected == mine.selected, (rule, size)
                assert mine.warnings == theirs.warnings == []
                compared += 1
    assert compared >= 500


def test_an_entry_that_cannot_run_is_passed_over_by_both(hosts: Hosts) -> None:
    ours, peer = hosts
    without_ll128: Costs = {
        (TREE, LL): 40.0,
        (TREE, SIMPLE): 60.0,
        (RING, LL): 55.0,
        (RING, SIMPLE): 70.0,
    }
    for size in (96 * KIB + 1, 1 * MIB, 96 * MIB):
        mine = ours.decide(Collective.ALLREDUCE, size, costs=without_ll128)
        theirs = peer.decide(Collective.ALLREDUCE, size, costs=without_ll128)
        assert mine.decided == "default"
        assert mine.selected == theirs.selected
        assert theirs.decided == TunerAnswer(None, None, 1, None)


def test_outside_of_the_rules_the_peer_sets_one_channel(hosts: Hosts) -> None:
    """The known difference: ours changes nothing, the peer cuts NCCL to one channel."""
    ours, peer = hosts
    outside = [
        (collective, size)
        for collective in TUNED
        for size in (0, 1, 512, 128 * KIB, 512 * KIB, 1 * GIB, 65 * GIB)
        if expected(collective, size, 1, False) is None
    ]
    assert len(outside) >= 15
    for collective, size in outside:
        assert ours.decide(collective, size).decided == "default"
        assert peer.decide(collective, size).decided == TunerAnswer(None, None, 1, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_default_channels_are_one_channel_to_the_peer(tmp_path: Path, version: str) -> None:
    """The known difference again: -1 leaves the count to NCCL in ours and is 1 in the peer."""
    rule = Rule(Collective.ALLREDUCE, 1 * KIB, 1 * MIB, Choice(TREE, LL128), 4, 32)
    with both(written((rule,), tmp_path), version) as (ours, peer):
        for size in sizes(rule):
            assert ours.decide(rule.collective, size).decided == TunerAnswer(
                TREE, LL128, None, None
            )
            assert peer.decide(rule.collective, size).decided == TunerAnswer(TREE, LL128, 1, None)


def test_the_peer_edits_the_cost_model_and_ours_does_not(hosts: Hosts) -> None:
    ours, peer = hosts
    assert ours.init.constants_changed == []
    assert peer.init.constants_changed


def test_the_file_of_a_recorded_study_is_read_alike(tmp_path: Path) -> None:
    study = tmp_path / "study"
    shutil.copytree(STUDY, study)
    command = [sys.executable, "-m", "nccltune.cli", "tune", str(study)]
    subprocess.run(command, check=True, capture_output=True)
    conf = study / "tuner.conf"
    rules = [item.rule for item in read_rules(conf, strict=True).rules]
    assert rules
    for rule in rules:
        assert rule.nodes is not None
        assert rule.ranks is not None
        scale = Scale(rule.nodes, rule.ranks)
        with both(conf, "2.28.9", scale) as (ours, peer):
            for size in sizes(rule):
                mine = ours.decide(rule.collective, size)
                assert isinstance(mine.decided, TunerAnswer)
                assert mine.decided.choice == rule.choice
                assert peer.decide(rule.collective, size).selected == mine.selected
