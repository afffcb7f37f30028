# SPDX-License-Identifier: Apache-2.0
"""`nccltune auto` where it measures: a bench that answers as on GPUs, the real doctor beside."""

from pathlib import Path

import pytest

from nccltune.cli import run
from nccltune.doctor.result import Examination
from nccltune.measure.bench import process
from nccltune.native import bench_path
from nccltune.study.files import Study
from tests.e2e.test_verify_replay import RECORDING


def test_the_node_is_examined_and_the_report_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "bench"
    program.write_text(f'#!/bin/sh\nexec "{bench_path()}" "--replay={RECORDING}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(process, "bench_path", lambda: program)
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    # How loaded this machine is must not decide what is found.
    monkeypatch.setattr("nccltune.app.examiner.GRACE_S", 60.0)
    path = tmp_path / "study"
    options = ["--gpus", "4", "--collectives", "allreduce", "--sizes", "1K-4K"]
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
    # The recording is of four nodes; one was there to be looked at.
    assert "one of 4 nodes; the others were not looked at" in page
    assert 'id="rule-override-environment"' in page
