# SPDX-License-Identifier: Apache-2.0
"""`nccltune verify` on a recording of real machines, with the real tuner plugin."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nccltune.formats.tuner_config.csv_rules import config_hash, read_rules
from nccltune.model.choice import DEFAULT, TUNED_RUN, Choice
from nccltune.model.sample import Purpose
from nccltune.native import host_path, tuner_path
from nccltune.prove.result import Proof
from nccltune.prove.sizes import taken
from nccltune.study.files import Study
from tests.programs import write_program

from .command_line import children, nccltune

RECORDING = Path(__file__).parents[2] / "examples" / "h200x4-as-4-nodes"
ALLREDUCE = ["--replay", RECORDING, "--collectives", "allreduce"]
BAD = "allreduce,1048576,8388608,tree,ll,-1,4,4"
"""At 8 MiB this takes more than twice the time of the default."""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    nccltune("sweep", "-o", "study", *ALLREDUCE, cwd=folder)
    nccltune("tune", "study", cwd=folder)
    return folder / "study"


@pytest.fixture
def study(tuned: Path, tmp_path: Path) -> Study:
    shutil.copytree(tuned, tmp_path / "study")
    return Study(tmp_path / "study")


def verify(study: Study, *args: object, code: int = 0) -> Proof:
    done = nccltune("verify", "study", "--json", *args, cwd=study.path.parent, code=code)
    told: dict[str, Any] = json.loads(done.stdout)
    proof = study.read_json(study.path / "proof.json", Proof)
    assert told["config_hash"] == proof.config_hash == config_hash(study.config_path.read_bytes())
    return proof


def add_rule(study: Study, row: str) -> None:
    study.config_path.write_text(study.config_path.read_text() + row + "\n")


def labels(study: Study) -> Sequence[str]:
    return [item.rule.choice.label for item in read_rules(study.config_path).rules]


def points(study: Study) -> list[tuple[int, object, int, int]]:
    """Size, choice, round and repeat of what `verify` measured, in the order of the file."""
    made = (sample for sample in study.samples() if sample.source.purpose is Purpose.VERIFY)
    return [(item.bytes, item.choice, item.round, item.repeat) for item in made]


def test_good_rules_hold_and_the_rest_is_left_alone(study: Study) -> None:
    """As measured: nothing names the recording, or that this is a replay."""
    rules = [item.rule for item in read_rules(study.config_path).rules]
    proof = verify(study, "--check")
    assert proof.replay == "h200x4-as-4-nodes"
    assert [item.rule for item in proof.rules] == rules
    assert proof.holding == len(rules) >= 2
    assert all(item.gain_low is not None and item.gain_low > 1.1 for item in proof.rules)
    assert all(item.expected is not None for item in proof.rules)
    assert (proof.slower, proof.dropped, proof.reason) == (0, [], "done")
    (group,) = proof.groups
    for size in group.sizes:
        index = taken(rules, group.collective, size.bytes, group.scale)
        assert size.choice == (None if index is None else rules[index].choice.label)
        assert (size.verdict == "left alone") == (size.choice is None)
    assert sum(size.between for size in group.sizes) >= len(group.sizes) // 3


def test_what_tuned_ran_stands_in_the_samples_and_is_not_tuned_on(study: Study) -> None:
    before = study.read_json(study.tuning_path, dict)
    proof = verify(study)
    made = [sample for sample in study.samples() if sample.source.purpose is Purpose.VERIFY]
    assert {sample.choice for sample in made} == {DEFAULT, TUNED_RUN}
    assert {sample.source.tool for sample in made} == {"nccltune-bench replay"}
    assert len(made) == proof.points
    rules = [item.rule for item in proof.rules]
    for sample in made:
        if sample.choice != TUNED_RUN:
            continue
        index = taken(rules, sample.collective, sample.bytes, proof.groups[0].scale)
        ran = sample.ran
        if index is not None:
            assert isinstance(ran, Choice)
            assert ran.without_channels() == rules[index].choice.without_channels()
    verified = study.read_json(study.tuning_path, dict)
    assert {item["state"] for group in verified["groups"] for item in group["rules"]} == {"proven"}
    nccltune("tune", "study", cwd=study.path.parent)
    after = study.read_json(study.tuning_path, dict)
    assert after["samples"] == before["samples"]
    assert after["groups"] == verified["groups"]
    for was, now in zip(before["groups"], after["groups"], strict=True):
        assert [item["rule"] for item in now["rules"]] == [item["rule"] for item in was["rules"]]


def test_a_bad_rule_is_removed_named_and_the_rest_proven_again(study: Study) -> None:
    good = labels(study)
    add_rule(study, BAD)
    before = study.config_path.read_text()
    done = nccltune("verify", "study", cwd=study.path.parent)
    assert "replay     of h200x4-as-4-nodes" in done.stdout
    assert "replay     of h200x4-as-4-nodes" in done.stderr
    assert "1 removed · 0 sizes slower" in done.stdout
    assert "removed     all-reduce 1 MiB - 8 MiB tree/ll" in done.stdout
    assert "slower: 0." in done.stdout
    assert labels(study) == good
    assert (study.path / "tuner.conf.before-verify").read_text() == before
    assert "# removed by nccltune verify (slower: 0." in study.config_path.read_text()
    proof = study.read_json(study.path / "proof.json", Proof)
    assert [len(item.rules) for item in proof.passes] == [len(good) + 1, len(good)]
    assert proof.holding == len(good)
    inside = [s for s in proof.groups[0].sizes if (1 << 20) <= s.bytes <= (8 << 20)]
    assert {size.verdict for size in inside} == {"left alone"}
    report = nccltune("report", "study", "--terminal", cwd=study.path.parent)
    assert "removed     all-reduce 1 MiB - 8 MiB tree/ll" in report.stdout


def test_the_same_command_measures_nothing_twice(study: Study) -> None:
    add_rule(study, BAD)
    config = study.config_path.read_text()
    # A rule that was removed is a finding, once; what is left holds unchanged.
    first = verify(study, "--check", code=1)
    again = verify(study, "--check")
    assert len(first.dropped) == 1
    assert (again.points, again.known) == (0, again.known)
    assert again.known > 0
    assert again.rules == first.rules
    assert again.groups == first.groups
    assert again.dropped == first.dropped
    # Tuned again, the bad rule goes the same way without a measurement.
    study.config_path.write_text(config)
    back = verify(study)
    assert back.points == 0
    assert back.groups == first.groups


def slow_parts(folder: Path) -> Path:
    """A native folder whose plugin host takes 20 ms for each question."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").symlink_to(tuner_path().parent)
    script = folder / "bin" / host_path().name
    slowly = 'while IFS= read -r line; do sleep 0.02; echo "$line"; done'
    write_program(script, f'#!/bin/sh\n{slowly} | "{host_path()}" "$@"\n')
    return folder


@pytest.mark.parametrize(
    ("number", "of_host", "code"),
    [(signal.SIGINT, False, 130), (signal.SIGTERM, False, 143), (signal.SIGKILL, True, 4)],
)
def test_a_stopped_proof_says_how_to_go_on(
    study: Study, tmp_path: Path, number: int, of_host: bool, code: int
) -> None:
    whole = Study(tmp_path / "whole" / "study")
    shutil.copytree(study.path, whole.path)
    process = subprocess.Popen(
        [sys.executable, "-m", "nccltune", "verify", "study"],
        cwd=tmp_path,
        env={**os.environ, "NCCLTUNE_NATIVE_DIR": str(slow_parts(tmp_path / "native"))},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    # The points of one answer may be written in two pieces, and are counted after both.
    for _ in range(4):
        samples = study.samples_path.stat().st_size
        while study.samples_path.stat().st_size == samples:
            assert process.poll() is None
            time.sleep(0.01)
    os.kill(children(process.pid)[0] if of_host else process.pid, number)
    _, said = process.communicate(timeout=200)
    assert process.returncode == code, said
    assert "points so far are kept in study" in said
    assert "resume:  nccltune verify study" in said
    part = study.read_json(study.path / "proof.json", Proof)
    assert part.reason == "interrupted"
    kept = points(study)
    rest, uninterrupted = verify(study), verify(whole)
    assert rest.known >= part.points > 0
    # The request in which the interruption fell is drawn anew, so that the rest may take another
    # number of rounds; but no point is lost, and none is measured twice.
    made = points(study)
    assert made[: len(kept)] == kept
    assert len(set(made)) == len(made) == rest.points + rest.known
    assert {point[:2] for point in made} == {point[:2] for point in points(whole)}
    assert [item.verdict for item in rest.rules] == [item.verdict for item in uninterrupted.rules]


def test_anew_measures_everything_again(study: Study) -> None:
    first, again = verify(study), verify(study, "--anew")
    assert again.known == 0 < again.points
    assert again.passes[0].first_round == 100
    assert again.groups != first.groups


def test_a_study_of_another_machine_is_refused(study: Study) -> None:
    other = RECORDING.with_name("h200x4-1-node")
    done = nccltune("verify", "study", "--replay", other, cwd=study.path.parent, code=2)
    assert "is a study of another platform: number of nodes 4 there, 1 here" in done.stderr
    assert "proven where they were measured" in done.stderr
    assert not (study.path / "proof.json").exists()


def test_an_imported_recording_is_verified_by_its_replay(tmp_path: Path) -> None:
    source = RECORDING.parent / "h200x4-1-node"
    nccltune("import", source, "-o", "study", cwd=tmp_path)
    nccltune("tune", "study", cwd=tmp_path)
    proof = verify(Study(tmp_path / "study"), "--replay", source)
    assert proof.replay == source.name
    assert proof.rules
    other = RECORDING.parent / "h200x2-1-node"
    nccltune("verify", "study", "--replay", other, cwd=tmp_path, code=2)
