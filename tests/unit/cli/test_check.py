# SPDX-License-Identifier: Apache-2.0
"""`nccltune check` without a measurement, on one node and on several."""

import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nccltune.app import check as module
from nccltune.app.check import CheckResult, Fact, joined
from nccltune.app.status import NodeOutput
from nccltune.cli.check_screen import show_check
from nccltune.examples import example
from nccltune.formats.tuner_config.csv_rules import config_hash
from nccltune.model.errors import PlatformError
from tests.unit.runs import Cli

RECORDING = "h200x4-1-node"
"""A recording with a topology."""


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "NCCLTUNE_CONFIG",
        "NCCL_TUNER_CONFIG_FILE",
        "NCCLTUNE_CONFIG_HASH",
        "NCCL_CONF_FILE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from nccltune.app.tune import tune_path
    from nccltune.tune.result import TuneOptions

    study = tmp_path_factory.mktemp("tuned") / "study"
    shutil.copytree(example(RECORDING), study)
    tune_path(study, TuneOptions(), save=True)
    return study


@pytest.fixture
def study(tuned: Path, tmp_path: Path) -> Path:
    shutil.copytree(tuned, tmp_path / "study")
    return tmp_path / "study"


def here(study: Path, **changes: object) -> Path:
    """A recording of the machine as it is now: that of the study but for `changes`."""
    now = study.parent / "now"
    shutil.copytree(example(RECORDING), now)
    platform = json.loads((now / "platform.json").read_text())
    (now / "platform.json").write_text(json.dumps(platform | changes))
    return now


def facts(document: dict[str, Any], verdict: str) -> list[str]:
    return [item["name"] for item in document["facts"] if item["verdict"] == verdict]


def checked(cli: Cli, path: Path, *words: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = cli("check", path, "--budget", 0, "--json", *words, code=code).document
    assert found["holds"] == (code == 0)
    return found


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, []),
        ({"driver_version": "590.1"}, ["driver"]),
        ({"nccl_version": "2.28.10"}, ["NCCL"]),
        ({"gpu": "NVIDIA H100"}, ["GPU"]),
        ({"gpus": 2}, ["GPUs of a node"]),
        ({"settings": {}}, ["NCCL settings"]),
        ({"settings": {"NCCL_NVLS_ENABLE": "1"}}, ["NCCL settings"]),
        ({"driver_version": "590.1", "gpus": 8}, ["driver", "GPUs of a node"]),
    ],
)
def test_what_differs_is_named(
    study: Path, cli: Cli, changes: dict[str, object], names: list[str], alone: bool
) -> None:
    path = study
    if alone:
        path = study.parent / "rules.csv"
        shutil.copy(study / "tuner.conf", path)
    now = here(study, **changes)
    found = checked(cli, path, "--replay", now, code=int(bool(names)))
    assert facts(found, "differs") == names
    assert facts(found, "unknown") == []
    text = cli("check", path, "--budget", 0, "--replay", now, code=int(bool(names))).out
    if names:
        assert f"not as when measured: {', '.join(names)}" in text
    else:
        assert "all that could be compared is as when measured" in text


def test_another_topology_is_found_and_another_kind_of_file_is_not_compared(
    study: Path, cli: Cli
) -> None:
    now = here(study)
    topology = now / "topology.xml"
    dumped = study.parent / "topo.xml"
    text = topology.read_text()
    dumped.write_text(text.replace("<cpu ", '<cpu host_hash="0x123" '))
    topology.write_text(text.replace('count="18"', 'count="6"', 1))
    assert topology.read_text() != text
    assert facts(checked(cli, study, "--replay", now, code=1), "differs") == ["topology"]
    same = checked(cli, study, "--replay", now, "--topology", dumped)
    assert "topology" in facts(same, "same")
    matrix = study.parent / "topo.txt"
    matrix.write_text("\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n")
    other = checked(cli, study, "--replay", now, "--topology", matrix)
    assert facts(other, "unknown") == ["topology"]
    out = cli("check", study, "--budget", 0, "--replay", now, "--topology", matrix).out
    assert "not compared: topology" in out


def test_rows_that_were_changed_are_found_and_comments_are_not_rows(study: Path, cli: Cli) -> None:
    now, config = here(study), study / "tuner.conf"
    text = config.read_text()
    config.write_text(text + "# a comment\n")
    assert "rows" in facts(checked(cli, study, "--replay", now), "same")
    config.write_text(text.replace(",ring,ll128,", ",ring,ll,", 1))
    assert facts(checked(cli, study, "--replay", now, code=1), "differs") == ["rows"]
    config.write_text(text + "allreduce,1K,2K,tree,ll,-1,1,4\n")
    assert facts(checked(cli, study, "--replay", now, code=1), "differs") == ["lines"]
    # A file of an older nccltune has no `rows`: the study knows its content.
    older = "\n".join(line.partition(" rows=")[0] for line in text.splitlines()) + "\n"
    config.write_text(older.replace("# nccltune: end=here\n", ""))
    assert facts(checked(cli, study, "--replay", now, code=1), "differs") == ["content"]


def test_the_file_that_jobs_read_is_compared(
    study: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, config = here(study), study / "tuner.conf"
    deployed = study.parent / "deployed.conf"
    deployed.write_bytes(config.read_bytes())
    conf = study.parent / ".nccl.conf"
    conf.write_text(f"NCCL_TUNER_CONFIG_FILE={deployed}\n")
    monkeypatch.setenv("NCCLTUNE_CONFIG_HASH", config_hash(config.read_bytes()).upper())
    names = ["deployed file", "NCCLTUNE_CONFIG_HASH"]
    assert set(names) <= set(facts(checked(cli, study, "--replay", now), "same"))
    deployed.write_text("# older\n")
    assert facts(checked(cli, study, "--replay", now, code=1), "differs") == names[:1]
    deployed.unlink()
    found = checked(cli, study, "--replay", now, code=1)
    assert [item["now"] for item in found["facts"] if item["verdict"] == "differs"] == [
        "cannot be read"
    ]
    # The environment takes precedence over nccl.conf.
    monkeypatch.setenv("NCCLTUNE_CONFIG", str(config))
    monkeypatch.setenv("NCCLTUNE_CONFIG_HASH", "0123456789abcdef")
    assert facts(checked(cli, study, "--replay", now, code=1), "differs") == names[1:]
    # An empty variable hides the file's line: a user with rules of their own sets it so.
    conf.write_text("NCCLTUNE_CONFIG_HASH=0123456789abcdef\n")
    monkeypatch.setenv("NCCLTUNE_CONFIG_HASH", "")
    assert names[1] not in facts(checked(cli, study, "--replay", now), "same")
    # NCCL_CONF_FILE replaces the file in the home folder.
    monkeypatch.delenv("NCCLTUNE_CONFIG_HASH")
    assert facts(checked(cli, study, "--replay", now, code=1), "differs") == names[1:]
    (study.parent / "site.conf").write_text("")
    monkeypatch.setenv("NCCL_CONF_FILE", str(study.parent / "site.conf"))
    assert names[1] not in facts(checked(cli, study, "--replay", now), "same")


@pytest.mark.parametrize(
    ("limit", "age", "code"),
    [("90d", 90, 0), ("90d", 91, 1), ("13w", 91, 0), ("90", 400, 1), (None, 400, 0)],
)
def test_old_rules_are_a_finding(
    study: Path, cli: Cli, limit: str | None, age: int, code: int
) -> None:
    today = datetime.now(UTC).date()
    config = study / "tuner.conf"
    text = config.read_text().replace(f"created={today}", f"created={today - timedelta(days=age)}")
    config.write_text(text)
    words = [] if limit is None else ["--max-age", limit]
    found = checked(cli, study, "--replay", here(study), *words, code=code)
    assert facts(found, "differs") == ["age"] * code
    # What verify measured later is younger.
    proven = f"# proven: 1.10x faster (95 % CI 1.05-1.15), measured by verify on {today}\n"
    config.write_text(re.sub("# sure: .*\n", proven, text, count=1))
    checked(cli, study, "--replay", study.parent / "now", *words)


def test_without_evidence_nothing_is_reported_as_right(
    study: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_gpus(_: str) -> int:
        raise PlatformError("no GPU")

    monkeypatch.setattr(module, "visible_gpus", no_gpus)
    for name in ("local_gpu", "driver_version", "topology_hash"):
        monkeypatch.setattr(module, name, lambda: None)
    monkeypatch.setattr(module, "nccl_settings", lambda _: {"NCCL_NVLS_ENABLE": "0"})
    found = checked(cli, study, code=1)
    assert facts(found, "differs") == []
    assert facts(found, "unknown") == ["NCCL", "driver", "GPU", "GPUs of a node", "topology"]
    assert "nothing is confirmed" in cli("check", study, "--budget", 0, code=1).out
    by_hand = study.parent / "mine.csv"
    by_hand.write_text("allreduce,1024,4096,tree,ll,-1,1,4\n")
    checked(cli, by_hand, code=1)
    checked(cli, by_hand, "--max-age", "90d", code=1)
    monkeypatch.setattr(module, "driver_version", lambda: "580.159.04")
    checked(cli, study)


def test_the_model_names_choices_that_another_release_makes(study: Path, cli: Cli) -> None:
    now = here(study)
    found = checked(cli, study, "--replay", now, "--against-nccl", "2.20.5")
    assert facts(found, "asked for") == ["NCCL"]
    changes = found["model"]["changes"]
    ruled = [item for item in changes if item["ruled"]]
    assert [(item["collective"], item["before"], item["after"]) for item in ruled] == [
        ("allgather", "ring/ll", "ring/simple")
    ]
    assert len(changes) > len(ruled)
    text = cli("check", study, "--budget", 0, "--replay", now, "--against-nccl", "2.20.5").out
    assert "all-gather 2 MiB, 1 node, 4 ranks: ring/ll -> ring/simple (a rule decides here)" in text
    same = checked(cli, study, "--replay", now, "--against-nccl", "2.28.9")
    assert same["model"]["changes"] == []


def test_a_dry_run_lists_rules_by_what_they_carry(study: Path, cli: Cli) -> None:
    found = cli("check", study, "--dry-run", "--json").document
    assert [item["rule"]["collective"] for item in found["rules"]] == ["allgather", "reducescatter"]
    out = cli("check", study, "--dry-run", "--budget", 20).out
    assert "ring/ll128  1.17x, 95 % CI 1.17-1.18" in out
    assert "for at most 20 s" in out


def test_a_file_without_rules_needs_no_gpu(study: Path, cli: Cli) -> None:
    (study / "tuner.conf").write_text("# nothing\n")
    assert "the file holds no rule" in cli("check", study, code=(0, 1)).out
    assert "No such file" in cli("check", study.parent / "missing", code=2).err


SAME = Fact("driver", "580.1", "580.1", "same")
RESULT = CheckResult(
    config="/etc/tuner.conf",
    config_hash="0b51d5cd9d5cfe7c",
    at="2026-11-27T05:00:00+00:00",
    holds=True,
    nccl="2.28.9",
    against=None,
    replay=None,
    seconds=30.0,
    facts=[SAME],
    rules=[],
)
UNMEASURED = msgspec.structs.replace(RESULT, seconds=0.0, holds=False)


def output(host: str, **changes: object) -> NodeOutput:
    found = msgspec.structs.replace(UNMEASURED, **changes)
    return NodeOutput(host, msgspec.json.encode(found), "")


DRIVER = Fact("driver", "580.1", "590.2", "differs")
ALL = [output("a"), output("b")]


@pytest.mark.parametrize(
    ("outputs", "holds", "words"),
    [
        (ALL, True, "2 of 2 have this file, and nothing differs"),
        (ALL[:1], False, "1 of 2 have this file, and nothing differs; 1 did not answer"),
        ([ALL[0], output("b", config_hash="f" * 16)], False, "b: another file: content ffff"),
        ([ALL[0], output("b", facts=[DRIVER])], False, "b: driver was 580.1, is 590.2"),
        (
            [ALL[0], NodeOutput("b", b"", "error: tuner.conf: no such file")],
            False,
            "b: could not be checked: error: tuner.conf: no such file",
        ),
        ([ALL[0], NodeOutput("b", b"", "")], False, "b: could not be checked: printed no result"),
    ],
)
def test_each_node_counts(
    outputs: list[NodeOutput], holds: bool, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = joined(RESULT, outputs, 2)
    assert found.holds is holds
    # Nodes cannot make good what the measurement found.
    assert not joined(msgspec.structs.replace(RESULT, holds=False), outputs, 2).holds
    show_check(found, Path("study"))
    assert words in " ".join(capsys.readouterr().out.split())


def test_the_file_that_apply_left_is_that_of_nodes_that_share_it() -> None:
    result = msgspec.structs.replace(RESULT, new_hash="e" * 16)
    assert joined(result, [output("a", config_hash="e" * 16)], 1).holds
