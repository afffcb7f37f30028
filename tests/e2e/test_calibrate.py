# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo calibrate` that measures, with the real bench on a recording."""

import json
from pathlib import Path

import pytest

from nccltune.cli import run
from nccltune.study.files import Study


def test_it_measures_large_sizes_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "links"
    command = ["topo", "calibrate", "-o", str(study), "--replay", "h200x4-1-node", "--json"]
    assert run(command) == 0
    answer = json.loads(capsys.readouterr().out)
    nvlink = answer["calibration"]["values"]["nvlink"]
    assert nvlink["value"] == pytest.approx(0.899, abs=0.01)
    assert "replay of h200x4-1-node" in nvlink["source"]
    assert json.loads((study / "calibration.json").read_text())["values"]["nvlink"] == nvlink
    samples = list(Study.open(study).samples())
    assert {sample.bytes for sample in samples} == {256 << 20, 512 << 20, 1 << 30}
    assert run(command) == 0
    assert len(list(Study.open(study).samples())) == len(samples)
