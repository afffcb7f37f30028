# SPDX-License-Identifier: Apache-2.0
"""`nccltune auto`: the whole loop on a recording, and the doctor beside it."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nccltune.cli import run
from nccltune.doctor.result import Examination
from nccltune.formats.tuner_config.csv_rules import read_rules
from nccltune.prove.result import Proof
from nccltune.study.files import Study
from tests.e2e.bench_runs import FAKES, NEEDS_FAKES
from tests.e2e.test_verify_replay import RECORDING, nccltune
from tests.waiting import wait_until

SMALL = ["--replay", RECORDING, "--collectives", "allreduce"]


def test_one_command_leaves_a_proven_study_and_reports_its_steps_in_order(tmp_path: Path) -> None:
    done = nccltune("auto", "--replay", RECORDING, "-o", "studies/x", cwd=tmp_path)
    order = ["platform", "replay", "checks", "sweep", "analysis", "tune", "verify"]
    first = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert [word for word in first if word in order] == order
    rules = [line for line in done.stdout.splitlines() if line.startswith("rule ")]
    assert len(rules) > 0
    assert all("95 % CI" in line and "SMs " in line for line in rules)
    # No size is written in bytes beside others in KiB.
    assert not re.search(r"^ +\d+ B ", done.stdout, re.MULTILINE)
    assert "verdict    Proven in a replay: " in done.stdout
    tail = done.stdout.splitlines()[-2:]
    assert tail[0] == "report     studies/x/report.html"
    assert tail[1].startswith("deploy     nccltune env studies/x")
    assert "set in the recording: NCCL_NVLS_ENABLE=0 (NVLink SHARP is off)" in done.stdout
    study = Study(tmp_path / "studies" / "x")
    proof = study.read_json(study.path / "proof.json", Proof)
    assert proof.holding == len(proof.rules) == len(read_rules(study.config_path).rules) > 0
    assert proof.slower == 0
    assert study.findings_path.is_file()
    page = study.report_path.read_text(encoding="utf-8")
    assert '<section id="proof">' in page
    assert "A replay of <em>h200x4-as-4-nodes</em>" in page


def test_the_same_command_again_measures_nothing(tmp_path: Path) -> None:
    done = nccltune("auto", *SMALL, "-o", "x", "--json", cwd=tmp_path)
    first = json.loads(done.stdout)
    assert {"platform", "sweep", "tuning", "proof", "report"} <= first.keys()
    assert first["platform"]["replay"] == first["proof"]["replay"] == "h200x4-as-4-nodes"
    assert "checks" in done.stderr
    again = json.loads(nccltune("auto", *SMALL, "-o", "x", "--json", cwd=tmp_path).stdout)
    assert again["sweep"]["points"] == again["proof"]["points"] == 0
    assert again["proof"]["groups"] == first["proof"]["groups"]


def test_without_a_name_the_study_is_called_after_the_recording(tmp_path: Path) -> None:
    done = nccltune("auto", *SMALL, "--sizes", "1K-64K", cwd=tmp_path)
    assert "studies/replay-of-h200x4-as-4-nodes/report.html" in done.stdout


def test_where_the_default_is_right_there_is_nothing_to_verify(tmp_path: Path) -> None:
    done = nccltune(
        *("auto", "--replay", RECORDING.with_name("h200x4-1-node"), "-o", "x"),
        *("--collectives", "allreduce", "--sizes", "1K-64K"),
        cwd=tmp_path,
    )
    assert "verify     no rules, so there is nothing to verify" in done.stdout
    assert "deploy     nothing: NCCL keeps its default" in done.stdout
    assert (tmp_path / "x" / "report.html").is_file()


def test_an_interruption_anywhere_loses_nothing(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "nccltune", "auto", "--replay", str(RECORDING), "-o", "x"]
    process = subprocess.Popen(
        line, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    samples = tmp_path / "x" / "samples.jsonl"
    wait_until(
        lambda: process.poll() is not None or (samples.exists() and samples.stat().st_size > 20_000)
    )
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=200)
    assert process.returncode in (0, 130), err
    if process.returncode:
        assert f"resume:  nccltune auto --output x --replay {RECORDING}" in err
    before = samples.read_bytes()
    nccltune("auto", "--replay", RECORDING, "-o", "x", cwd=tmp_path)
    assert samples.read_bytes().startswith(before)
    points = [
        (s.source.purpose, s.collective, s.bytes, str(s.choice), s.round, s.repeat)
        for s in Study(tmp_path / "x").samples()
    ]
    assert len(points) == len(set(points))


@NEEDS_FAKES
def test_the_node_is_examined_and_the_report_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(FAKES))
    monkeypatch.setenv("FAKE_NCCL_NODES", "2")
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    # How loaded this machine is must not decide what is found.
    monkeypatch.setattr("nccltune.app.examiner.GRACE_S", 60.0)
    path = tmp_path / "study"
    options = ["--gpus", "2", "--nccl", str(FAKES / "libnccl.so.2")]
    options += ["--collectives", "allreduce", "--sizes", "1K-4K", "--budget", "5"]
    assert run(["auto", *options, "-o", str(path)]) == 0
    told = capsys.readouterr().out
    (line,) = [line for line in told.splitlines() if line.startswith("checks ")]
    assert line.startswith("checks     ok ")
    assert "NCCL_NVLS_ENABLE=0 (environment): it switches off NVLink SHARP" in line
    study = Study(path)
    examined = study.read_json(study.doctor_path, Examination)
    assert [judged.rule for judged in examined.rules if judged.rule == "override-environment"]
    page = study.report_path.read_text(encoding="utf-8")
    assert '<section id="checks">' in page
    # The fake NCCL tells of two nodes; one was there to be looked at.
    assert "one of 2 nodes; the others were not looked at" in page
    assert 'id="rule-override-environment"' in page
