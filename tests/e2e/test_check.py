# SPDX-License-Identifier: Apache-2.0
"""`nccltune check` against the real bench, on recordings of one machine under two releases."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nccltune.formats.tuner_config.csv_rules import config_hash, read_rules, rows_text
from nccltune.study.files import Study
from nccltune.tune.result import Tuning

from .bench_runs import FAKES, NEEDS_FAKES
from .command_line import environment, launcher_here, nccltune

RECORDING = Path(__file__).parents[2] / "examples" / "h100-as-4-nodes"
PAT = {"algorithm": "pat", "protocol": "simple"}
LIBRARY = b"\x7fELF...NCCL version 2.32.3 compiled with CUDA 13.0\0"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study under NCCL 2.28.9 with four rules, two of all-reduce."""
    folder = tmp_path_factory.mktemp("tuned")
    shutil.copytree(RECORDING, folder / "old")
    nccltune("tune", "old", cwd=folder)
    return folder / "old"


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The machine under NCCL 2.32.3, where all-gather runs PAT by itself and trees are slower."""
    new = tmp_path_factory.mktemp("upgraded") / "new"
    shutil.copytree(RECORDING, new)
    platform = json.loads((new / "platform.json").read_text())
    platform |= {"name": "new", "nccl_version": "2.32.3"}
    (new / "platform.json").write_text(json.dumps(platform))
    lines = [json.loads(line) for line in (new / "samples.jsonl").read_text().splitlines()]
    of_pat = {
        (line["bytes"], line.get("round", 0)): line["time_us"]
        for line in lines
        if line["collective"] == "allgather" and line["choice"] == PAT
    }
    for line in lines:
        line["source"]["nccl_version"] = "2.32.3"
        key = line["bytes"], line.get("round", 0)
        if line["collective"] == "allgather" and line["choice"] == "default" and key in of_pat:
            line.update(time_us=of_pat[key], ran=PAT)
        if line["collective"] == "allreduce" and line["choice"] != "default":
            line["time_us"] *= 2 if line["choice"]["protocol"] == "ll" else 1
    (new / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return new


@pytest.fixture
def study(tuned: Path, tmp_path: Path) -> Study:
    shutil.copytree(tuned, tmp_path / "old")
    return Study(tmp_path / "old")


def check(
    study: Study, *args: object, code: int, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    folder = study.path.parent
    done = nccltune("check", study.path, *args, "--json", cwd=folder, code=code, env=env)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["holds"] == (code == 0)
    return found


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {
        f"{item['rule']['collective']} {item['rule']['choice']['protocol']}": item["verdict"]
        for item in found["rules"]
    }


def facts(found: dict[str, Any], verdict: str) -> list[str]:
    return [item["name"] for item in found["facts"] if item["verdict"] == verdict]


def test_rules_of_a_healthy_machine_hold_and_the_study_is_not_touched(study: Study) -> None:
    before = {path.name: path.read_bytes() for path in study.path.iterdir()}
    found = check(study, "--replay", RECORDING, "--apply", code=0)
    assert set(verdicts(found).values()) == {"keep"}
    assert facts(found, "differs") == []
    assert found["kept_as"] is None
    assert all(item["gain"]["low"] > 1 for item in found["rules"])
    after = {path.name: path.read_bytes() for path in study.path.iterdir()}
    after.pop(".sweep.lock", None)
    assert after == before


def test_an_upgrade_names_the_rules_that_no_longer_hold(study: Study, upgraded: Path) -> None:
    found = check(study, "--replay", upgraded, code=1)
    assert facts(found, "differs") == ["NCCL"]
    assert verdicts(found) == {
        "allreduce ll": "drop",
        "allreduce simple": "keep",
        "reducescatter simple": "keep",
        "allgather simple": "drop",
    }
    gather = found["rules"][-1]
    assert gather["reason"] == (
        "equal to the default: NCCL runs pat/simple without the rule, too"
    ) or gather["reason"].startswith("not faster")
    assert gather["changed"][0].startswith("ring/")
    assert "pat/simple now at" in gather["changed"][0]
    text = nccltune("check", "old", "--replay", upgraded, cwd=study.path.parent, code=1).stdout
    assert "2 of 4 rules confirmed; 2 to be dropped; not as when measured: NCCL" in text
    assert "all-gather 17.6 KiB - 821 KiB pat/simple" in text


def test_nothing_is_removed_that_cannot_be_recorded(study: Study, upgraded: Path) -> None:
    (study.path / "check.jsonl").mkdir()
    old = study.config_path.read_text()
    words = ["check", study.path, "--replay", upgraded, "--apply"]
    done = nccltune(*words, cwd=study.path.parent, code=2)
    assert "check.jsonl" in done.stderr
    assert study.config_path.read_text() == old


def test_the_gate_before_a_rollout_and_what_is_left_of_the_rules(
    study: Study, upgraded: Path
) -> None:
    library = study.path.parent / "libnccl.so.2"
    library.write_bytes(LIBRARY)
    gate = ["--replay", upgraded, "--against-nccl", library]
    old = study.config_path.read_text()
    found = check(study, *gate, code=1)
    assert found["against"] == "2.32.3"
    assert facts(found, "asked for") == ["NCCL"]
    assert facts(found, "differs") == []
    assert found["model"]["notes"] == ["no study with a topology is known"]
    assert study.config_path.read_text() == old

    done = nccltune("check", "old", *gate, "--apply", cwd=study.path.parent, code=1)
    kept = study.path / f"tuner.conf.before-check-{config_hash(old.encode())[:8]}"
    assert kept.read_text() == old
    assert f"as it was: {kept}" in done.stdout
    read = read_rules(study.config_path, strict=True)
    assert [item.rule.choice.label for item in read.rules] == ["tree/simple", "pat/simple"]
    assert read.header["rows"] == rows_text([item.rule for item in read.rules])
    assert study.config_path.read_text().count("# removed by nccltune check (") == 2
    tuning = study.read_json(study.tuning_path, Tuning)
    assert tuning.config_hash == config_hash(study.config_path.read_bytes())
    assert tuning.rules == [item.rule for item in read.rules]
    reasons = [item.reason for group in tuning.groups for item in group.left_alone]
    assert sum("pat/simple did not hold in check: " in reason for reason in reasons) == 1
    assert f"the content is now {tuning.config_hash}" in done.stdout

    # The same samples do not bring back what was removed, and newer ones do.
    said = nccltune("tune", "old", cwd=study.path.parent).stdout
    assert "pat/simple did not hold in check: " in said
    assert "NCCL 2.32.3); measure it again to have it offered again" in " ".join(said.split())
    read = read_rules(study.config_path, strict=True)
    assert [item.rule.choice.label for item in read.rules] == ["tree/simple", "pat/simple"]
    assert set(verdicts(check(study, *gate, code=0)).values()) == {"keep"}
    wrong = ["check", "old", "--replay", RECORDING, "--against-nccl", library]
    error = nccltune(*wrong, cwd=study.path.parent, code=2).stderr
    assert "is NCCL 2.32.3, and the recording is of NCCL 2.28.9" in error


def test_a_deployed_file_is_checked_without_its_study(study: Study, upgraded: Path) -> None:
    deployed = study.path.parent / "rules.csv"
    shutil.move(study.config_path, deployed)
    alone = Study(deployed)
    found = check(alone, "--replay", RECORDING, code=0)
    assert set(verdicts(found).values()) == {"keep"}
    found = check(alone, "--replay", upgraded, "--apply", code=1)
    assert verdicts(found)["allgather simple"] == "drop"
    assert Path(found["kept_as"]).is_file()
    assert len(read_rules(deployed, strict=True).rules) == 2
    assert found["new_hash"] == config_hash(deployed.read_bytes())


def test_rules_are_not_removed_on_another_machine(
    study: Study, upgraded: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(upgraded, other)
    text = (other / "platform.json").read_text()
    (other / "platform.json").write_text(text.replace("NVIDIA H100 80GB HBM3", "NVIDIA A100"))
    before = study.config_path.read_bytes()
    found = check(study, "--replay", other, "--apply", code=1)
    assert facts(found, "differs") == ["NCCL", "GPU"]
    assert "nothing was removed" in found["unapplied"]
    assert study.config_path.read_bytes() == before


def test_a_rule_without_gain_that_was_written_by_hand_is_found(study: Study) -> None:
    with study.config_path.open("a") as file:
        file.write("allreduce,4194304,16777216,tree,ll,-1,4,4\n")
    shell = {**environment(), "NCCLTUNE_CONFIG_HASH": "0123456789abcdef"}
    found = check(study, "--replay", RECORDING, code=1, env=shell)
    assert facts(found, "differs") == ["rows", "NCCLTUNE_CONFIG_HASH"]
    added = found["rules"][-1]
    assert (added["verdict"], added["state"], added["recorded"]) == ("drop", None, None)
    assert added["reason"].startswith("slower: 0.")


@NEEDS_FAKES
def test_both_sides_are_measured_with_the_other_library(tmp_path: Path) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text("allreduce,1024,65536,tree,ll,-1,1,3\n")
    library = FAKES / "libnccl.so.2"
    shell = {**environment(), "LD_LIBRARY_PATH": str(FAKES)}
    found = check(Study(mine), "--gpus", 3, "--against-nccl", library, code=1, env=shell)
    assert found["nccl"] == found["against"] == "2.28.9"
    (rule,) = found["rules"]
    assert rule["verdict"] == "drop"
    assert rule["reason"] == "equal to the default: NCCL runs tree/ll without the rule, too"
    assert [size["bytes"] for size in rule["sizes"]] == sorted(s["bytes"] for s in rule["sizes"])


def test_the_nodes_of_a_launcher_are_looked_at(study: Study) -> None:
    under = ["--launcher", launcher_here("openmpi")]
    found = check(study, "--budget", 0, "--gpus", 4, *under, code=1)
    (node,) = found["nodes"]
    assert (node["config_hash"], node["problem"]) == (found["config_hash"], None)
    assert node["differs"] == [item for item in found["facts"] if item["verdict"] == "differs"]
    assert not list(study.path.parent.glob(".nccltune-*"))
