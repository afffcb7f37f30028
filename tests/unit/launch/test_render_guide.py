# SPDX-License-Identifier: Apache-2.0
"""The guides show exactly what is rendered, and link to files that exist."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from nccltune.cli import cli

ROOT = Path(__file__).parents[3]
GUIDES = sorted((ROOT / "docs" / "guides").glob("launching/*.md"))
RENDER = "$ nccltune launch render "
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def blocks(page: Path, language: str = "") -> Iterator[str]:
    """Yield the text between fences."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S):
        if match[1] == language:
            yield match[2]


def rendered(page: Path) -> list[str]:
    """Return the blocks that show a command with what it renders."""
    return [block for block in blocks(page) if block.startswith(RENDER)]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_what_a_guide_renders_is_what_is_rendered(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    # For root a command has another option, and in an allocation Slurm has another line.
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    shown = rendered(page)
    assert shown, "a guide shows what is started"
    for block in shown:
        line, _, text = block.partition("\n")
        done = CliRunner().invoke(cli, shlex.split(line.removeprefix("$ nccltune ")))
        assert done.exit_code == 0, done.output
        assert done.stdout == text, line


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_jobs_of_a_guide_are_the_shipped_ones(page: Path) -> None:
    shipped = [path.read_text() for path in (ROOT / "examples" / "jobs").glob("*.toml")]
    for block in blocks(page, "toml"):
        if block.startswith("#"):
            assert block in shipped


def test_every_launcher_has_its_guide() -> None:
    index = (ROOT / "docs" / "guides" / "launching.md").read_text()
    named = set(re.findall(r"\(launching/([a-z-]+)\.md\)", index))
    assert named >= {page.stem for page in GUIDES} | {"one-machine", "openmpi", "hydra", "slurm"}


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).is_file(), target
