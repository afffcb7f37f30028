# SPDX-License-Identifier: Apache-2.0
"""`nccltune demo` on unsuitable recordings."""

from pathlib import Path

from nccltune.examples import examples
from tests.unit.runs import Cli


def test_a_recording_without_timings_of_choices_is_refused(tmp_path: Path, cli: Cli) -> None:
    name = "h200x2-1-node"
    assert name in examples()
    err = cli("demo", "--recording", name, "-o", tmp_path / "a", code=2).err
    assert "no timings of choices" in err
    assert "h200x4-as-4-nodes" in err
    assert not (tmp_path / "a").exists()
