# SPDX-License-Identifier: Apache-2.0
"""`nccltune doctor`: exit codes, forms of output, stored results."""

import json
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from tests.unit.doctor.rule_cases import facts_of
from tests.unit.runs import Cli

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


def test_a_folder_is_examined_and_a_finding_is_exit_code_1(folder: Path, cli: Cli) -> None:
    shown = cli("doctor", folder, code=1)
    assert shown.out.startswith("verdict     ")
    assert "NCCL_P2P_DISABLE=1" in shown.out
    assert "— n1" in shown.out
    assert shown.err == ""


def test_standard_input_is_read_like_a_file(
    monkeypatch: pytest.MonkeyPatch, cli: Cli, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nccl.log").write_text(LOG.format(host="n1"))
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(LOG.format(host="n1").encode())))
    piped = cli("doctor", "-", code=1).out
    assert "<standard input>:2" in piped
    named = cli("doctor", "nccl.log", code=1).out
    assert piped.replace("<standard input>", "nccl.log") == named
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO()))
    assert "<standard input>: is empty" in cli("doctor", "-", code=2).err


def test_json_holds_every_rule(folder: Path, cli: Cli) -> None:
    found = cli("doctor", folder, "--json", code=1).document
    rules = {rule["rule"]: rule for rule in found["rules"]}
    assert found["schema_version"] == 1
    assert [node["name"] for node in found["nodes"]] == ["n1", "n2"]
    assert rules["override-environment"]["nodes"] == {"finding": ["n1"], "ok": ["n2"]}
    assert rules["override-environment"]["evidence"][0]["nodes"] == ["n1"]
    assert rules["environment-differs"]["verdict"] == "finding"
    assert len(rules) > 100


def test_a_page_and_a_study_are_written(folder: Path, tmp_path: Path, cli: Cli) -> None:
    page, study = tmp_path / "checks.html", tmp_path / "study"
    written = cli("doctor", folder, "--html", page, "-o", study, code=1).err
    assert "NCCL_P2P_DISABLE" in page.read_text(encoding="utf-8")
    platform = json.loads((study / "platform.json").read_text(encoding="utf-8"))
    assert platform["name"] == "study"
    assert platform["nccl_version"] == "2.28.9"
    assert platform["nodes"] == 2
    kept = json.loads((study / "doctor.json").read_text(encoding="utf-8"))
    assert kept["source"] == str(folder)
    assert "platform.json" in written


def test_the_script_is_printed_and_nothing_else(folder: Path, cli: Cli) -> None:
    assert cli("doctor", folder, "--fix-script", code=1).out.startswith("#!/bin/sh\n")


def test_this_node_is_examined_with_files_besides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Cli
) -> None:
    asked: list[object] = []

    def collect(*, files: tuple[Path, ...]) -> object:
        asked.extend(files)
        return facts_of("here", {"cpu.governors": ["performance"]})

    monkeypatch.setattr("nccltune.app.doctor.collect", collect)
    log = tmp_path / "nccl.log"
    log.touch()
    shown = " ".join(cli("doctor", log).out.split())
    assert asked == [log]
    assert "verdict nothing found in the host; nothing known of logs, tests, settings, " in shown


def test_files_of_another_host_are_examined_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Cli
) -> None:
    def collect(*, files: tuple[Path, ...]) -> object:
        raise AssertionError(files)

    monkeypatch.setattr("nccltune.app.doctor.collect", collect)
    log = tmp_path / "nccl.log"
    log.write_text(NOISE.format(host="other-7"))
    found = cli("doctor", log, "--json").document
    assert found["source"] == "files alone (nccl.log)"
    assert [node["name"] for node in found["nodes"]] == ["other-7"]
    shown = cli("doctor", log)
    assert shown.out.startswith(
        "verdict     nothing found in logs (only 1 line); nothing known of tests"
    )
    assert "nvidia-smi -q -x would decide most" in shown.out
    assert "looked at the files alone" in shown.err


def test_a_file_that_nothing_used_is_named(folder: Path, cli: Cli) -> None:
    (folder / "n2" / "notes.txt").write_text("roses are red\n")
    out = cli("doctor", folder, code=1).out
    assert "not used    notes.txt: its kind is not recognised — n2\n" in out
    found = cli("doctor", folder, "--json", code=1).document["nodes"]
    nodes = {node["name"]: node["unused"] for node in found}
    assert nodes == {
        "n1": [],
        "n2": [{"file": "n2/notes.txt", "why": "its kind is not recognised"}],
    }


def test_an_unknown_file_is_named_and_alone_an_error(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "run.log").write_text(LOG.format(host="n1"))
    (tmp_path / "notes.txt").write_text("roses are red\n")
    shown = " ".join(
        cli("doctor", tmp_path / "run.log", tmp_path / "notes.txt", code=1).out.split()
    )
    assert f"not used {tmp_path / 'notes.txt'}: its kind is not recognised" in shown
    assert "its kind is not recognised" in cli("doctor", tmp_path / "notes.txt", code=2).err


def test_a_rule_is_explained(cli: Cli) -> None:
    assert "gdr-read" in cli("doctor", "--rule", "18").out
    explained = cli("doctor", "--rule", "gdr-read", "--json").document
    assert explained["rule"]["nccl"] == {"since": "2.19.1", "before": None}
    assert "gpu.paths" in explained["needs"]


def test_the_collecting_script_is_printed(cli: Cli) -> None:
    assert cli("doctor", "--collect-script").out.startswith("#!/bin/sh\n")


def test_an_empty_folder_is_an_error(tmp_path: Path, cli: Cli) -> None:
    assert "is empty" in cli("doctor", tmp_path, code=2).err
