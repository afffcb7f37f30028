# SPDX-License-Identifier: Apache-2.0
"""Help of groups, hints that name the nearest valid word, and rendering without a launcher."""

import os
from pathlib import Path

import pytest

from nccltune.examples import examples
from tests.unit.runs import Cli

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
