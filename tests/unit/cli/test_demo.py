# SPDX-License-Identifier: Apache-2.0
"""`nccltune demo` on unsuitable recordings."""

from pathlib import Path

import pytest

from nccltune.cli import run
from nccltune.examples import examples


def test_a_recording_without_timings_of_choices_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "h200x2-1-node"
    assert name in examples()
    assert run(["demo", "--recording", name, "-o", str(tmp_path / "a")]) == 2
    err = capsys.readouterr().err
    assert "no timings of choices" in err
    assert "h200x4-as-4-nodes" in err
    assert not (tmp_path / "a").exists()
