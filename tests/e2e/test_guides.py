# SPDX-License-Identifier: Apache-2.0
"""The commands of guides and tutorial run, page by page in their order, and print what is shown.

What needs several nodes is run by test_launch.py, test_bench_launchers.py, test_slurm.py and
test_kubernetes.py instead, and `launch render` by tests/unit/launch/test_render.py.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from .page_snippets import ROOT, Snippet, check, reader_folder, run, snippets

GUIDES = ROOT / "docs" / "guides"
# Nodes, a queue or pods; a table is written for a terminal of that width.
NEEDS_NODES = re.compile(r".*(?:launch render|--launcher (?!local)|studies/two)")
# Deploying and building are not tested here but by tests/packaging.
NEEDS_A_WHEEL = re.compile(r"pip install|podman|make |dpkg")
# Their blocks without a language are output.
NOT_YET = {"doctor.md", "diagnosing.md"}
PAGES = [
    page for page in sorted(GUIDES.rglob("*.md")) if snippets(page) and page.name not in NOT_YET
]


class Page(NamedTuple):
    """A guide, and the snippets that are run."""

    path: Path
    snippets: list[Snippet]


def runnable(page: Path) -> Page:
    kept = [
        snippet
        for snippet in snippets(page)
        if not NEEDS_NODES.match(snippet.shell) and not NEEDS_A_WHEEL.search(snippet.shell)
    ]
    return Page(page, kept)


@pytest.mark.parametrize(
    "page",
    [page for page in map(runnable, PAGES) if page.snippets],
    ids=lambda page: str(page.path.relative_to(GUIDES)),
)
def test_a_guide_prints_what_it_shows(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = reader_folder(tmp_path)
    monkeypatch.setenv("DESTDIR", str(tmp_path / "node"))
    if page.path.parent.name == "launching":
        # Its numbers are those of the pages about launchers.
        program = Path(__file__).with_name("launched_program.py")
        shutil.copy(program, folder / "bin" / "all_reduce_perf")
        monkeypatch.setenv("PLACES", str(tmp_path))
        monkeypatch.setenv("LAUNCHED_ENDS", "1")
    for snippet in page.snippets:
        check(run(snippet.shell, folder), snippet.shown)


def test_most_guides_show_commands_that_run() -> None:
    names = {page.path.stem for page in map(runnable, PAGES) if page.snippets}
    assert {"sweeping", "importing", "one-machine", "gpus-and-nics-on-one-switch"} <= names


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
    assert re.search(r"1(\.00)? KiB - .*KiB +tree/ll(128)? .* sure ", done.stdout), done.stdout
    assert "(1 rule)" in done.stdout


@pytest.mark.usefixtures("runs")
def test_the_report_was_opened(folder: Path) -> None:
    opened = (folder / "opened").read_text().strip().removeprefix("file://")
    assert Path(opened).samefile(folder / "studies" / "h200x4-as-4-nodes" / "report.html")
