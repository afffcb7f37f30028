# SPDX-License-Identifier: Apache-2.0
"""The command `nccltune`: start, help of groups, errors and exit codes."""

import signal
import sys

import click
import pytest

from nccltune.cli import SECTIONS, VERBS, run
from nccltune.cli.options import Percent
from tests.programs import completed
from tests.unit.runs import Cli


def test_no_verb_is_imported_for_version_and_help() -> None:
    code = (
        "import sys; from nccltune.cli import run;"
        "run(['--version']); run(['--help']); run(['topo', '--help']);"
        "heavy = {'msgspec', 'rich', 'numpy', 'scipy', 'jinja2', 'plotly'} & set(sys.modules);"
        "ours = sorted(m for m in sys.modules if m.startswith('nccltune.'));"
        "print(sorted(heavy), ours)"
    )
    done = completed([sys.executable, "-c", code], check=True)
    assert done.stdout.splitlines()[-1] == (
        "[] ['nccltune.cli', 'nccltune.cli.lazy_group', "
        "'nccltune.cli.topo', 'nccltune.cli.verbosity']"
    )


def test_help_lists_every_verb_with_one_line(cli: Cli) -> None:
    out = cli("--help").out
    for verb, words in VERBS.items():
        assert verb in out
        assert " ".join(words.split()[:3]) in " ".join(out.split())
    assert max(len(line) for line in out.splitlines()) <= 100


@pytest.mark.parametrize("group", SECTIONS["Groups"])
def test_a_group_has_help_with_two_examples(group: str, cli: Cli) -> None:
    out = cli(group, "--help").out
    assert out.startswith(f"Usage: nccltune {group} ")
    examples = [line for line in out.split("Examples:")[1].splitlines() if "nccltune" in line]
    assert len(examples) >= 2
    assert "--json" not in out


def test_an_error_names_the_place_and_a_hint(cli: Cli) -> None:
    out, err = cli("analyze", "/nonexistent/study", code=2)
    assert out == ""
    assert err.splitlines()[0] == "error: /nonexistent/study: no such study"
    assert err.splitlines()[1].startswith("hint:  ")


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nccltune.cli.cli.main", interrupted)
    assert run([]) == 130


def test_an_interrupt_with_a_signal_number_exits_with_128_plus_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def terminated(*_: object) -> None:
        raise KeyboardInterrupt(signal.SIGTERM)

    monkeypatch.setattr("click.Context.invoke", terminated)
    assert run(["demo"]) == 143


def test_a_bug_exits_with_70(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("nccltune.cli.cli.main", broken)
    assert "bug" in cli(code=70).err


def test_a_closed_pipe_is_no_error() -> None:
    done = completed(
        f"{sys.executable} -c 'from nccltune.cli import main; main()' --help | head -1; "
        "echo ${PIPESTATUS[0]}",
        shell=True,
        executable="/bin/bash",
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] in ("0", "141")


@pytest.mark.parametrize(("text", "fraction"), [("3%", 0.03), ("3", 0.03), ("0.03", 0.03)])
def test_a_percentage_may_be_written_three_ways(text: str, fraction: float) -> None:
    assert Percent().convert(text, None, None) == fraction


def test_a_percentage_that_may_be_a_fraction_needs_its_sign() -> None:
    assert Percent().convert("0.5%", None, None) == 0.005
    with pytest.raises(click.UsageError, match="write 0.5%"):
        Percent().convert("0.5", None, None)
