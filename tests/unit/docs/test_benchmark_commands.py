# SPDX-License-Identifier: Apache-2.0
"""Each benchmark and GPU test that a page starts exists and has the options that the page shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import completed

ROOT = Path(__file__).parents[3]
PAGES = [*sorted((ROOT / "benchmarks").rglob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"python ((?:benchmarks|tests/gpu)/\w+\.py)([^\n`;#]*)")


def shown() -> dict[str, set[str]]:
    """Return the options that pages show for each script, without those of what it starts."""
    options: dict[str, set[str]] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for script, words in COMMAND.findall(text):
            own = words.split(" -- ")[0]
            options.setdefault(script, set()).update(re.findall(r"(?<!\S)--[a-z][\w-]*", own))
    return options


@pytest.mark.parametrize(("script", "options"), sorted(shown().items()))
def test_a_script_has_the_options_that_pages_show(script: str, options: set[str]) -> None:
    assert (ROOT / script).is_file()
    if options:
        done = completed([sys.executable, script, "--help"], cwd=ROOT)
        assert done.returncode == 0, done.stderr
        assert options <= set(re.findall(r"--[a-z][\w-]*", done.stdout))


def named() -> set[tuple[str, str]]:
    """Return the commit (empty: this one) and path of each program that a page names."""
    path = re.compile(r"(?:git show (\w+):)?\b(benchmarks/(?:\w+/)*\w+\.(?:py|cu|cuh|cc))\b")
    return {
        (commit, name)
        for page in PAGES
        for commit, name in path.findall(page.read_text(encoding="utf-8"))
    }


@pytest.mark.parametrize(("commit", "path"), sorted(named()))
def test_a_program_that_a_page_names_exists(commit: str, path: str) -> None:
    if not commit:
        assert (ROOT / path).is_file()
        return

    def git(*words: str) -> int:
        command = ["git", "-C", str(ROOT), *words]
        return subprocess.run(command, capture_output=True, check=False).returncode

    if git("cat-file", "-e", f"{commit}^{{commit}}") != 0:
        pytest.skip(f"{commit} is not in this copy of the repository")
    assert git("cat-file", "-e", f"{commit}:{path}") == 0


def test_pages_show_scripts_with_options() -> None:
    assert sum(map(len, shown().values())) > 50
