# SPDX-License-Identifier: Apache-2.0
"""The tutorial's commands run in its order, and print what it shows."""

import re
import subprocess
from pathlib import Path

import pytest

from .page_snippets import ROOT, check, reader_folder, run, snippets

TUTORIAL = ROOT / "docs" / "tutorial.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader is: every snippet finds what those before it left."""
    return reader_folder(tmp_path_factory.mktemp("tutorial"))


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[subprocess.CompletedProcess[str]]:
    """All snippets, in the page's order."""
    return [run(snippet.shell, folder) for snippet in snippets(TUTORIAL)]


@pytest.mark.parametrize("number", range(len(snippets(TUTORIAL))))
def test_a_snippet_does_what_the_page_says(
    runs: list[subprocess.CompletedProcess[str]], number: int
) -> None:
    check(runs[number], snippets(TUTORIAL)[number].shown)


@pytest.mark.usefixtures("runs")
def test_the_measurements_of_the_loop_became_a_study(folder: Path) -> None:
    """What needs GPUs ran on a stand-in; the rest of the page works with what it left, too."""
    done = run("nccltune tune studies/mine", folder)
    assert done.returncode == 0, done.stderr
    # Up to 64 KiB a tree is twice as fast there.
    assert re.search(r"1\.00 KiB - .*KiB +tree/ll(128)? .* sure ", done.stdout), done.stdout
    assert "(1 rule)" in done.stdout


@pytest.mark.usefixtures("runs")
def test_the_report_was_opened(folder: Path) -> None:
    opened = (folder / "opened").read_text().strip().removeprefix("file://")
    assert Path(opened).samefile(folder / "studies" / "h200x4-as-4-nodes" / "report.html")
