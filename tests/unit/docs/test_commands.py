# SPDX-License-Identifier: Apache-2.0
"""Every command line that a page shows has a verb or script and options that exist."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from nccltune.cli import cli
from tests.programs import completed

ROOT = Path(__file__).parents[3]
PAGES = [
    path
    for folder in (".", "docs/**", "benchmarks/**", "examples/**")
    for path in sorted(ROOT.glob(f"{folder}/*.md"))
    if path.name != "CHANGELOG.md"
]
ENDS = {"|", ">", ">>", "<", "&&", ";", "#", "&", "2>&1"}


def shell_lines(text: str) -> Iterator[str]:
    """Lines of blocks that are no output, with their continuations, and code within sentences."""
    text = text.replace("\\\n", " ")
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S)
    rest = re.sub(r"^```\w*\n(.*?)^```$", "", text, flags=re.M | re.S)
    for block in blocks:
        prompted = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
        yield from prompted or block.splitlines()
    yield from re.findall(r"^ {4}(?:\$ )?(\S.*)$", rest, re.M)
    yield from re.findall(r"`([^`\n]+)`", rest)


def commands(page: Path) -> list[str]:
    found = []
    for line in shell_lines(page.read_text(encoding="utf-8")):
        # Lines of a log begin with the name, too, and go on with a version or a colon.
        match = re.match(r'(?:\w+=\S+ )*(?:eval "\$\()?nccltune ((?:-|[a-z-]+(?:\s|$)).*)', line)
        if match is not None:
            found.append(match[1])
    return found


def words_of(line: str) -> list[str]:
    """The words of the command itself, up to what the shell takes for its own."""
    lexer = shlex.shlex(line.replace(')"', " "), posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words = list(lexer)
    ends = [at for at, word in enumerate(words) if word in ENDS or word.startswith((">", "2>"))]
    return words[: min(ends, default=len(words))]


def parsed(words: list[str]) -> None:
    """Raises click's error for a verb or an option that does not exist."""
    command: click.Command = cli
    context = click.Context(cli, info_name="nccltune", **cli.context_settings)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        inner = command.get_command(context, name)
        if inner is None:
            raise click.UsageError(f"no verb {name!r}")
        command = inner
        context = click.Context(command, parent=context, info_name=name, **command.context_settings)
    command.make_parser(context).parse_args(words)


ALL = [(page, line) for page in PAGES for line in commands(page)]


@pytest.mark.parametrize(
    ("page", "line"), ALL, ids=[f"{page.relative_to(ROOT)}-{line[:40]}" for page, line in ALL]
)
def test_a_command_line_has_a_verb_and_options_that_exist(page: Path, line: str) -> None:
    parsed(words_of(line))


@pytest.mark.parametrize("line", ["sweap", "tune --min-gian 3", "topo shw x.xml"])
def test_a_mistake_is_found(line: str) -> None:
    with pytest.raises(click.UsageError):
        parsed(words_of(line))


def test_the_pages_show_command_lines() -> None:
    assert len(ALL) > 100
    assert {"ab", "auto", "demo", "env", "topo"} <= {line.split()[0] for _, line in ALL}


SCRIPT_PAGES = [
    *sorted((ROOT / "benchmarks").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
COMMAND = re.compile(r"python ((?:benchmarks|tests/gpu)/\w+\.py)([^\n`;#]*)")


def shown() -> dict[str, set[str]]:
    """Return the options that pages show for each script, without those of what it starts."""
    options: dict[str, set[str]] = {}
    for page in SCRIPT_PAGES:
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
        for page in SCRIPT_PAGES
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
