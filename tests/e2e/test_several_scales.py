# SPDX-License-Identifier: Apache-2.0
"""Rules of several scales in one file, joined as docs/reference/tuner-plugin.md shows."""

import re
import shutil
from pathlib import Path

import pytest

from .page_snippets import ROOT, reader_folder, run

PAGE = ROOT / "docs" / "reference" / "tuner-plugin.md"
RECORDINGS = {"2-nodes": "h200x4-as-2-nodes", "4-nodes": "h200x4-as-4-nodes"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader is, with the studies that the page names."""
    folder = reader_folder(tmp_path_factory.mktemp("scales"))
    for name, recording in RECORDINGS.items():
        shutil.copytree(ROOT / "examples" / recording, folder / "studies" / name)
        tuned = run(f"nccltune tune studies/{name}", folder)
        assert tuned.returncode == 0, tuned.stderr
    return folder


def rules(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if not line.startswith("#")]


def test_joined_files_keep_the_rules_of_each_scale(folder: Path) -> None:
    block = re.search(r"^```sh\n(\{ cat .*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert block is not None
    # `explain` asks the plugin about a scale that the recordings have.
    done = run("set -e\n" + block[1].replace("--ranks 32", "--ranks 4"), folder)
    assert done.returncode == 0, done.stderr
    parts = [rules(folder / "studies" / name / "tuner.conf") for name in RECORDINGS]
    assert rules(folder / "tuner.conf") == parts[0] + parts[1]
    assert all(parts)
    total = len(parts[0]) + len(parts[1])
    assert f"{len(parts[1])} of {total} rules apply to 4 nodes, 4 ranks" in done.stdout
    assert "TUNER/nccltune: " in done.stdout
    assert "given twice" not in done.stdout
    other = run("nccltune explain tuner.conf --nodes 2 --ranks 4", folder)
    assert f"{len(parts[0])} of {total} rules apply to 2 nodes, 4 ranks" in other.stdout
    none = run("nccltune explain tuner.conf --nodes 8 --ranks 8", folder)
    assert f"0 of {total} rules apply to 8 nodes, 8 ranks" in none.stdout
