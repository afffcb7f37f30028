# SPDX-License-Identifier: Apache-2.0
"""A chunk size that wins, from the timings to what the plugin answers under NCCL 2.30 and later."""

import json
from pathlib import Path
from typing import Any

import pytest

from nccltune.formats.tuner_config.csv_rules import read_rules, write_rules
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale
from nccltune.native import PluginHost, TunerAnswer, tuner_path
from nccltune.prove.result import Proof
from nccltune.study.files import Study
from nccltune.tune.explain import check_decisions
from nccltune.tune.result import Tuning
from tests.unit.builders import Times, measure, rule, sizes, study_of

from .command_line import nccltune

K, M = 1 << 10, 1 << 20
SWITCH = 1 * M
CHUNKED = "ring/simple/-/131072"


def times(size: int) -> dict[str, float]:
    """Tree/LL to 1 MiB, where a doubled chunk is cut and changes nothing; then ring/simple, which a
    chunk of 128 KiB makes faster."""
    base = 20 + size / 50e3
    return {
        "default": base,
        "tree/ll": base * (0.6 if size <= SWITCH else 1.5),
        "tree/ll/-/65536": base * (0.5997 if size <= SWITCH else 1.5),
        "ring/simple": base * (1.2 if size <= SWITCH else 0.8),
        CHUNKED: base * (1.2 if size <= SWITCH else 0.6),
    }


@pytest.fixture
def study(tmp_path: Path) -> Path:
    samples = measure(sizes(1 * K, 256 * M), times, noise=0.002, seed=3)
    facts = {"name": "made up", "gpu": "NVIDIA H200", "nccl_version": "2.32.3"}
    return study_of(tmp_path / "study", samples, **facts).path


def test_a_chunk_size_is_tuned_written_and_answered(study: Path, tmp_path: Path) -> None:
    nccltune("tune", study, cwd=tmp_path)
    rows = [
        line for line in (study / "tuner.conf").read_text().splitlines() if not line.startswith("#")
    ]
    assert [row.split(",")[3:6] for row in rows] == [["tree", "ll", "-1"], ["ring", "simple", "-1"]]
    assert len(rows[0].split(",")) == 8
    assert rows[1].split(",")[8:] == ["-1", "-1", "131072"]

    explain = ("explain", study, "--sizes", "1K-256M", "--json")

    def explained_by(*version: str) -> dict[str, Any]:
        (found,) = json.loads(nccltune(*explain, *version, cwd=tmp_path).stdout)["explained"]
        return found  # type: ignore[no-any-return]

    explained = explained_by()
    # Under 2.32.3, whose newest interface is v7.
    assert explained["interface"] == 7
    assert [item["decides"] for item in explained["collectives"]["allreduce"]] == [
        "tree/ll",
        CHUNKED,
    ]
    sixth = explained_by("--nccl-version", "2.30.7")
    assert sixth["interface"] == 6
    assert sixth["collectives"] == explained["collectives"]
    fifth = explained_by("--nccl-version", "2.28.9")
    assert fifth["interface"] == 5
    assert [item["decides"] for item in fifth["collectives"]["allreduce"]] == [
        "tree/ll",
        "ring/simple",
    ]
    assert any("chunk sizes have no effect" in line["text"] for line in fifth["log"])

    tuning = Study.open(study).read_json(study / "tuning.json", Tuning)
    agreed, asked = check_decisions(study / "tuner.conf", tuning)
    assert agreed == asked > 0
    lint = json.loads(nccltune("lint", study, "--json", cwd=tmp_path).stdout)
    assert any(
        "without its chunk size" in issue["message"]
        for issue in lint["configurations"][0]["issues"]
    )


def test_the_evidence_names_the_chunk_size(study: Path, tmp_path: Path) -> None:
    tuned = json.loads(nccltune("tune", study, "--json", cwd=tmp_path).stdout)
    (group,) = tuned["groups"]
    rule = group["rules"][1]
    assert rule["rule"]["choice"]["chunk_bytes"] == 131072
    assert rule["gain"] == pytest.approx(1 / 0.6, rel=0.02)
    assert {
        row["choice"]["chunk_bytes"] for row in group["decisions"] if row["bytes"] > SWITCH
    } == {131072}
    assert CHUNKED in nccltune("tune", study, cwd=tmp_path).stdout


def test_what_nccl_cuts_still_counts_as_decided(tmp_path: Path) -> None:
    config = tmp_path / "tuner.conf"
    config.write_text(write_rules([rule(0, M, "tree/ll/-/65536")], {}))
    with PluginHost(
        tuner_path(),
        nccl_version="2.30.7",
        scale=Scale(1, 4),
        environment={"NCCLTUNE_CONFIG": str(config), "NCCL_TUNER_CONFIG_FILE": None},
    ) as host:
        decision = host.decide(Collective.ALLREDUCE, 64 * K)
        assert isinstance(decision.decided, TunerAnswer)
        assert decision.decided.chunk_bytes == 32 * K
        assert [warning.code for warning in decision.warnings] == ["chunk_cut"]
        # NCCL's own is another: the share of a channel does not change the answer.
        other = host.decide(Collective.ALLREDUCE, 64 * K, chunk_bytes=8 * K)
        assert other.label == "tree/ll/-/32768"
        assert host.decide(Collective.ALLREDUCE, 2 * M).label == "default"


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
