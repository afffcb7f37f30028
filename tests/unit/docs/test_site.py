# SPDX-License-Identifier: Apache-2.0
"""The documentation as a site: it builds without a warning, and has every verb and option."""

import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from nccltune.cli import VERBS, cli
from tests.programs import completed, load_script

ROOT = Path(__file__).parents[3]


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("material", reason="mkdocs-material is not installed: make docs")
    return completed(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=source,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stderr
    return folder


def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def commands(
    command: click.Command, context: click.Context
) -> list[tuple[click.Command, click.Context]]:
    found = [(command, context)]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found += commands(inner, click.Context(inner, parent=context, info_name=name))
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_its_page_with_every_option(site: Path, verb: str) -> None:
    shown = text_of(site / "reference" / "cli" / verb / "index.html")
    parent = click.Context(cli, info_name="nccltune", **cli.context_settings)
    command = cli.get_command(parent, verb)
    assert command is not None
    for inner, context in commands(command, click.Context(command, parent=parent, info_name=verb)):
        assert context.command_path in shown
        for parameter in inner.get_params(context):
            if isinstance(parameter, click.Option) and not parameter.hidden:
                for name in [*parameter.opts, *parameter.secondary_opts]:
                    assert name in shown, f"{context.command_path} {name}"


def test_a_link_out_of_the_folder_leads_to_a_page(site: Path) -> None:
    page = (site / "tutorial" / "index.html").read_text(encoding="utf-8")
    assert 'href="../benchmarks/results/tuner-on-gpus/"' in page
    assert (site / "benchmarks" / "results" / "tuner-on-gpus" / "index.html").is_file()


def test_a_pipe_in_code_of_a_table_has_no_backslash(site: Path) -> None:
    code = [
        html.unescape(match)
        for page in site.rglob("*.html")
        for match in re.findall(r"<code>(.*?)</code>", page.read_text(encoding="utf-8"), re.S)
    ]
    assert "--channels [default|any]" in code
    assert "_NCCLTUNE_COMPLETE=fish_source nccltune | source" in code
    assert [text for text in code if r"\|" in text] == []


def test_a_file_that_is_no_page_comes_along(site: Path) -> None:
    assert (site / "images" / "report.png").is_file()
    assert (site / "src" / "nccltune" / "topology" / "hardware" / "gpu_models.toml").is_file()


@pytest.mark.parametrize("text", ["[gone](../nowhere.md)", "[gone](tutorial.md#nowhere)"])
def test_a_broken_link_fails_the_build(tmp_path: Path, text: str) -> None:
    for name in ("docs", "benchmarks", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.pyc"))
    for path in [*ROOT.glob("*.md"), ROOT / "LICENSE", ROOT / "mkdocs.yml"]:
        shutil.copy(path, tmp_path)
    readme = tmp_path / "docs" / "tutorial.md"
    readme.write_text(readme.read_text(encoding="utf-8") + f"\n{text}\n", encoding="utf-8")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode == 1
    assert "nowhere" in built.stdout + built.stderr


TABLES = load_script(Path(__file__).parents[3] / "docs" / "site" / "tables.py")


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        (r"| a | `on\|off` |", "| a | `on|off` |"),
        (r"| `a\|b\|c` | ``d\|`e`` |", "| `a|b|c` | ``d|`e`` |"),
        # A pipe outside of code still needs its backslash, or it would end the cell.
        (r"| a \| b | `c\|d` \| e |", r"| a \| b | `c|d` \| e |"),
        (r"No table: `grep a\|b`", r"No table: `grep a\|b`"),
        ("```\n| `a\\|b` |\n```\n| `a\\|b` |", "```\n| `a\\|b` |\n```\n| `a|b` |"),
        (
            "~~~~\n| `a\\|b` |\n```\n~~~~\n\n| `a\\|b` |\n",
            "~~~~\n| `a\\|b` |\n```\n~~~~\n\n| `a|b` |\n",
        ),
    ],
)
def test_only_code_of_a_table_loses_the_backslash(page: str, shown: str) -> None:
    assert TABLES.unescaped(page) == shown
