# SPDX-License-Identifier: Apache-2.0
"""`nccltune doctor`: exit codes, forms of output, stored results."""

import json
from pathlib import Path

import pytest

from nccltune.cli import run
from tests.unit.doctor.rule_cases import facts_of

LOG = """\
{host}:100:100 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
{host}:100:100 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.
{host}:100:100 [0] NCCL INFO Using network IB
"""
NOISE = "{host}:100:100 [0] NCCL INFO Using network IB\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two nodes of which one has a log with a setting that overrides NCCL."""
    for host, log in (("n1", LOG), ("n2", LOG.replace("P2P_DISABLE", "DEBUG_FILE"))):
        (tmp_path / "nodes" / host).mkdir(parents=True)
        (tmp_path / "nodes" / host / "nccl.log").write_text(log.format(host=host))
    return tmp_path / "nodes"


def test_a_folder_is_examined_and_a_finding_is_exit_code_1(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", str(folder)]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("verdict     ")
    assert "NCCL_P2P_DISABLE=1" in shown.out
    assert "— n1" in shown.out
    assert shown.err == ""


def test_json_holds_every_rule(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", str(folder), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    rules = {rule["rule"]: rule for rule in found["rules"]}
    assert found["schema_version"] == 1
    assert [node["name"] for node in found["nodes"]] == ["n1", "n2"]
    assert rules["override-environment"]["nodes"] == {"finding": ["n1"], "ok": ["n2"]}
    assert rules["override-environment"]["evidence"][0]["nodes"] == ["n1"]
    assert rules["environment-differs"]["verdict"] == "finding"
    assert len(rules) > 100


def test_a_page_and_a_study_are_written(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, study = tmp_path / "checks.html", tmp_path / "study"
    assert run(["doctor", str(folder), "--html", str(page), "-o", str(study)]) == 1
    assert "NCCL_P2P_DISABLE" in page.read_text(encoding="utf-8")
    platform = json.loads((study / "platform.json").read_text(encoding="utf-8"))
    assert platform["name"] == "study"
    assert platform["nccl_version"] == "2.28.9"
    assert platform["nodes"] == 2
    kept = json.loads((study / "doctor.json").read_text(encoding="utf-8"))
    assert kept["source"] == str(folder)
    assert "platform.json" in capsys.readouterr().err


def test_the_script_is_printed_and_nothing_else(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", str(folder), "--fix-script"]) == 1
    assert capsys.readouterr().out.startswith("#!/bin/sh\n")


def test_this_node_is_examined_with_files_besides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []

    def collect(*, files: tuple[Path, ...]) -> object:
        asked.extend(files)
        return facts_of("here", {"cpu.governors": ["performance"]})

    monkeypatch.setattr("nccltune.app.doctor.collect", collect)
    log = tmp_path / "nccl.log"
    log.touch()
    assert run(["doctor", str(log)]) == 0
    assert asked == [log]
    shown = " ".join(capsys.readouterr().out.split())
    assert "verdict nothing found in the host; nothing known of logs, tests, settings, " in shown


def test_files_of_another_host_are_examined_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def collect(*, files: tuple[Path, ...]) -> object:
        raise AssertionError(files)

    monkeypatch.setattr("nccltune.app.doctor.collect", collect)
    log = tmp_path / "nccl.log"
    log.write_text(NOISE.format(host="other-7"))
    assert run(["doctor", str(log), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["source"] == "files alone (nccl.log)"
    assert [node["name"] for node in found["nodes"]] == ["other-7"]
    assert run(["doctor", str(log)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(
        "verdict     nothing found in logs (only 1 line); nothing known of tests"
    )
    assert "nvidia-smi -q -x would decide most" in shown.out
    assert "they are not of this node" in shown.err


def test_a_file_that_nothing_used_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "n2" / "notes.txt").write_text("roses are red\n")
    assert run(["doctor", str(folder)]) == 1
    assert "not used    notes.txt: its kind is not recognised — n2\n" in capsys.readouterr().out
    assert run(["doctor", str(folder), "--json"]) == 1
    nodes = {node["name"]: node["unused"] for node in json.loads(capsys.readouterr().out)["nodes"]}
    assert nodes == {
        "n1": [],
        "n2": [{"file": "n2/notes.txt", "why": "its kind is not recognised"}],
    }


def test_an_unknown_file_is_named_and_alone_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.log").write_text(LOG.format(host="n1"))
    (tmp_path / "notes.txt").write_text("roses are red\n")
    assert run(["doctor", str(tmp_path / "run.log"), str(tmp_path / "notes.txt")]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert f"not used {tmp_path / 'notes.txt'}: its kind is not recognised" in shown
    assert run(["doctor", str(tmp_path / "notes.txt")]) == 2
    assert "its kind is not recognised" in capsys.readouterr().err


def test_a_rule_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--rule", "18"]) == 0
    assert "gdr-read" in capsys.readouterr().out
    assert run(["doctor", "--rule", "gdr-read", "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert explained["rule"]["nccl"] == {"since": "2.19.1", "before": None}
    assert "gpu.paths" in explained["needs"]


def test_the_collecting_script_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--collect-script"]) == 0
    assert capsys.readouterr().out.startswith("#!/bin/sh\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rule", "none"], "no rule is called 'none'"),
        (["--rule", "18", "--collect-script"], "take one"),
        (["--rule", "18", "."], "takes neither"),
        (["--fix-script", "--json"], "take one"),
        ([".", "x.log"], "one folder, or files"),
        (["no-such-file.log"], "no such file"),
    ],
)
def test_arguments_that_contradict_are_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_an_empty_folder_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", str(tmp_path)]) == 2
    assert "is empty" in capsys.readouterr().err
