# SPDX-License-Identifier: Apache-2.0
"""The command nccltune: start, help of groups, hints for misspelt words, errors, exit codes."""

import os
import signal
import sys
from pathlib import Path

import click
import pytest

from nccltune.cli import SECTIONS, VERBS, run
from nccltune.cli.options import Percent
from nccltune.examples import examples
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


Output = pytest.CaptureFixture[str]
PROGRAM = ["--", "all_reduce_perf", "-b", "8", "-e", "1G", "-f", "2"]


@pytest.mark.parametrize("words", [[], ["topo"], ["launch"]])
def test_a_group_alone_prints_its_help(words: list[str], cli: Cli) -> None:
    shown = cli(*words)
    assert shown.out.startswith("Usage: nccltune")
    assert ("Verbs:" if words else "Start:") in shown.out
    assert shown.err == ""


def test_an_unknown_recording_names_the_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    err = cli("demo", "--recording", "h200x4-1-nodes", code=2).err
    assert "did you mean 'h200x4-1-node'?" in err
    shown = cli("auto", "--replay", "nosuch", "-o", "study", code=2).err
    assert all(name in shown for name in examples())
    assert "no such study" in cli("auto", "--replay", "studies/nosuch", "-o", "study", code=2).err


def test_an_unknown_rule_lists_few_others(cli: Cli) -> None:
    shown = cli("doctor", "--rule", "gdr", code=2).err
    assert "gdr-read" in shown
    assert len(shown) < 300


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('progam = ["all_reduce_perf"]', "did you mean 'program'?"),
        ('program = ["all_reduce_perf"]\nnode = 2', "did you mean 'nodes'?"),
        ('program = ["a"]\n[slurm]\npartiton = "x"', "did you mean 'partition'?"),
    ],
)
def test_a_misspelt_key_of_a_job_file_names_the_right_one(
    tmp_path: Path, cli: Cli, text: str, hint: str
) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    shown = cli("launch", "render", path, code=2).err
    assert hint in shown
    assert str(path) in shown


@pytest.mark.parametrize("data", [bytes(range(128, 256)) * 8, b"\x89PNG\r\n\x1a\n\xff\xfe\xc3(abc"])
def test_binary_files_are_refused(tmp_path: Path, cli: Cli, data: bytes) -> None:
    path = tmp_path / "file.xml"
    path.write_bytes(data)
    assert "is a binary file" in cli("topo", "show", path, code=2).err
    study = str(examples()["h200x4-1-node"])
    err = cli("tune", study, "--weights", path, "-o", tmp_path / "conf", code=2).err
    assert "is a binary file" in err


def test_weights_of_another_encoding_are_refused_with_their_line(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "weights.csv"
    path.write_bytes(b"bytes,weight\n8,1 # gr\xf6\xdfe\n")
    study = str(examples()["h200x4-1-node"])
    err = cli("tune", study, "--weights", path, "-o", tmp_path / "conf", code=2).err
    assert f"{path}:2: is not UTF-8 text" in err


@pytest.mark.parametrize("launcher", [[], ["--launcher", "openmpi"], ["--launcher", "hydra"]])
def test_rendering_needs_no_launcher(
    monkeypatch: pytest.MonkeyPatch, cli: Cli, launcher: list[str]
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    shown = cli("launch", "render", *launcher, "--nodes", "2", *PROGRAM)
    assert shown.out.startswith(("mpirun", "mpiexec.hydra"))
    assert "2 nodes and no hosts" in shown.err
    assert ("no launcher is installed" in shown.err) is (not launcher)


def test_rendering_with_hosts_has_no_warning(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    words = ["launch", "render", "--launcher", "openmpi", "--set", "hosts=a,b", *PROGRAM]
    assert cli(*words).err == ""


def test_starting_needs_a_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.devnull)
    assert "no launcher here" in cli("launch", "run", "--nodes", "2", *PROGRAM, code=3).err


def test_text_of_another_kind_is_no_broken_xml(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "topo.txt"
    path.write_text("nvidia-smi: command not found\n")
    err = cli("topo", "show", path, code=2).err
    assert "neither XML nor the matrix of nvidia-smi topo -m" in err


def test_a_recording_without_timings_of_choices_is_refused(tmp_path: Path, cli: Cli) -> None:
    name = "h200x2-1-node"
    assert name in examples()
    err = cli("demo", "--recording", name, "-o", tmp_path / "a", code=2).err
    assert "no timings of choices" in err
    assert "h200x4-as-4-nodes" in err
    assert not (tmp_path / "a").exists()
