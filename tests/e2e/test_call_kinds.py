# SPDX-License-Identifier: Apache-2.0
"""Registered buffers and groups of calls, from the sweep to the proof, on a synthetic recording."""

import json
from pathlib import Path

import pytest

from nccltune.formats.tuner_config.csv_rules import read_rules
from nccltune.prove.result import Proof
from nccltune.study.files import Study
from tests.unit.builders import Times, measure, sizes, study_of

from .command_line import nccltune

SIZES = sizes(1 << 10, 1 << 22)
GROUPED = [-(-size // 960) * 960 for size in SIZES]
"""Sizes that 60 calls divide into multiples of 16 bytes."""
SCOPE = ["--collectives", "allreduce", "--sizes", "1K-4M"]


def faster(label: str, factor: float) -> Times:
    """The default, and two choices of which `label` takes `factor` of its time."""

    def times(size: int) -> dict[str, float]:
        us = 15 + size / 20e3
        others = dict.fromkeys(("tree/ll", "ring/simple"), 1.4 * us)
        return {"default": us, **others, label: factor * us}

    return times


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Plain calls are best with the default, registered buffers with tree/ll, groups with
    ring/simple. 60 calls are 3 for a channel, 4 calls are 1."""
    facts = {"gpu": "G", "gpus": 4, "nodes": 4, "nccl_version": "2.28.9"}
    samples = [
        *measure(SIZES, faster("tree/ll", 1.4), noise=0.01),
        *measure(SIZES, faster("tree/ll", 0.7), noise=0.01, seed=1, registered=True),
        *measure(SIZES, faster("ring/simple", 0.6), noise=0.01, seed=2, group_calls=4),
        *measure(
            GROUPED, faster("ring/simple", 0.6), noise=0.01, seed=3, group_calls=60, pipe_ops=3
        ),
    ]
    return study_of(tmp_path / "recorded", samples, **facts).path


def test_each_kind_of_calls_gets_proven_rules_of_its_own(recording: Path) -> None:
    folder = recording.parent
    for options in (["--registered"], ["--pipe-ops", "60"]):
        nccltune("sweep", "-o", "s", "--replay", recording, *SCOPE, *options, cwd=folder)
    nccltune("tune", "s", cwd=folder)
    study = Study(folder / "s")
    rules = {item.rule.choice.label: item.rule for item in read_rules(study.config_path).rules}
    assert {label: (rule.pipe_ops, rule.registered) for label, rule in rules.items()} == {
        "tree/ll": (1, True),
        "ring/simple": (3, False),
    }
    nccltune("verify", "s", "--check", cwd=folder)
    proof = study.read_json(study.path / "proof.json", Proof)
    assert {(item.rule.choice.label, item.verdict) for item in proof.rules} == {
        ("tree/ll", "holds"),
        ("ring/simple", "holds"),
    }
    kinds = {(group.registered, group.group_calls, group.pipe_ops) for group in proof.groups}
    assert kinds == {(False, 1, 1), (True, 1, 1), (False, 60, 3)}
    # Plain calls keep the default.
    plain = next(group for group in proof.groups if not group.calls_title)
    assert {size.choice for size in plain.sizes} == {None}
    shown = nccltune("report", "s", cwd=folder).stdout
    assert "all-reduce (registered)" in shown
    assert "all-reduce (3 pipe ops)" in shown


def test_groups_that_nccl_takes_for_plain_calls_get_no_rule_that_harms_these(
    recording: Path,
) -> None:
    folder = recording.parent
    nccltune("sweep", "-o", "s", "--replay", recording, *SCOPE, "--pipe-ops", "4", cwd=folder)
    shown = nccltune("tune", "s", cwd=folder).stdout
    assert read_rules(folder / "s" / "tuner.conf").rules == []
    assert "faster" in " ".join(shown.split())
    assert "with 4 calls a group, but a rule would also reach other calls" in " ".join(
        shown.split()
    )
    # Written by hand, it does not survive the proof, although it is faster for the groups.
    path = folder / "s" / "tuner.conf"
    path.write_text("allreduce,1024,4194304,ring,simple,-1,4,4\n")
    nccltune("verify", "s", cwd=folder)
    assert read_rules(path).rules == []


def test_verify_measures_the_calls_that_rules_need(recording: Path) -> None:
    folder = recording.parent
    nccltune("sweep", "-o", "s", "--replay", recording, *SCOPE, cwd=folder)
    (folder / "s" / "tuner.conf").write_text(
        "allreduce,1024,4194304,tree,ll,-1,4,4,-1,1\n"
        "allreduce,1024,4194304,ring,simple,-1,4,4,3,0\n"
    )

    def verdicts(*options: object) -> list[tuple[str, str | None]]:
        done = nccltune("verify", "s", "--json", *options, cwd=folder)
        return [(item["verdict"], item["reason"]) for item in json.loads(done.stdout)["rules"]]

    (registered, _), (grouped, reason) = verdicts()
    assert (registered, grouped) == ("holds", "unverified")
    assert "for numPipeOps 3; the calls measured have 1" in (reason or "")
    refused = nccltune("verify", "s", "--pipe-ops", 5, cwd=folder, code=2)
    assert "calls (5 calls a group) cannot be measured here" in refused.stderr
    # 60 calls are 3 for each of the 24 channels of the recording; 4 calls are 1.
    assert [verdict for verdict, _ in verdicts("--pipe-ops", 4)] == ["holds", "unverified"]
    assert [verdict for verdict, _ in verdicts("--pipe-ops", 60)] == ["holds", "holds"]
