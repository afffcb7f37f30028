# SPDX-License-Identifier: Apache-2.0
"""Studies with unusual names, contents and places."""

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from nccltune.cli.output import hanging
from nccltune.formats.importing.suspect import suspect_sentences
from nccltune.formats.reading.file_report import FileKind, ImportRecord
from nccltune.study.files import Study
from tests.unit.builders import measure, sizes, study_of
from tests.unit.runs import Cli

SIZES = sizes(1 << 10, 1 << 20)


def study_at(path: Path, gain: float = 2.0) -> Study:
    return study_of(path, measure(SIZES, {"default": 100.0, "tree/ll": 100.0 / gain}))


def test_the_next_command_quotes_the_name_of_the_study(tmp_path: Path, cli: Cli) -> None:
    study = study_at(tmp_path / "it's [red] mine")
    for verb, following in (("analyze", "tune"), ("tune", "verify"), ("lint", "explain")):
        last = cli(verb, study.path).err.splitlines()[-1]
        assert shlex.split(last) == ["next:", "nccltune", following, str(study.path)]


def test_a_study_without_rules_is_explained_at_the_scale_it_was_measured(
    tmp_path: Path, cli: Cli
) -> None:
    study = study_at(tmp_path / "fine", gain=0.5)
    cli("tune", study.path)
    out = cli("explain", study.path, "--collectives", "allreduce").out
    assert "4 nodes, 4 ranks" in out
    assert "tree/" not in out


def test_the_demo_does_not_overwrite_another_study(tmp_path: Path, cli: Cli) -> None:
    study = study_at(tmp_path / "mine")
    before = study.samples_path.read_bytes()
    assert "another study" in cli("demo", "-o", study.path, code=2).err
    assert study.samples_path.read_bytes() == before


def test_the_same_doubt_about_many_files_is_one_sentence(tmp_path: Path) -> None:
    study = study_at(tmp_path / "mine")
    records = [
        ImportRecord(
            file=f"{number}.txt",
            file_hash=str(number),
            kind=FileKind.NCCL_TESTS_TEXT,
            sentences=["ran on one rank"],
        )
        for number in range(3)
    ]
    study.append_lines(study.imports_path, records)
    assert suspect_sentences(study) == ["0.txt: ran on one rank (and in 2 files more)"]


def test_characters_outside_the_locale_are_replaced(tmp_path: Path) -> None:
    study = study_at(tmp_path / "mine")
    study.platform_path.write_text('{"name": "mine", "gpu": "GPU", "link": "NVLink"}')
    done = subprocess.run(
        [sys.executable, "-m", "nccltune", "analyze", str(study.path)],
        env={
            **os.environ,
            "LC_ALL": "C",
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            "PYTHONIOENCODING": "ascii",
        },
        capture_output=True,
        check=True,
    )
    assert b"GPU ? NVLink" in done.stdout


@pytest.mark.parametrize(("terminal", "lines"), [(True, 3), (False, 1)])
def test_wrapped_lines_are_indented_on_a_terminal_only(terminal: bool, lines: int) -> None:
    out = io.StringIO()
    console = Console(
        file=out, width=40, force_terminal=terminal, highlight=False, soft_wrap=not terminal
    )
    hanging(
        console,
        f"{'dip':<10}",
        10,
        "from [64 KiB] to 128 KiB the bandwidth falls by a quarter of it",
    )
    shown = out.getvalue().splitlines()
    assert len(shown) == lines
    assert shown[0].startswith("dip       from [64 KiB]")
    assert all(line.startswith(" " * 10) and line[10] != " " for line in shown[1:])
