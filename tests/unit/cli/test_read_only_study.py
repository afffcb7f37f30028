# SPDX-License-Identifier: Apache-2.0
"""Verbs on a study that cannot be written to: the result is printed, with a warning."""

import json
from pathlib import Path

import pytest

from nccltune.cli import run
from nccltune.examples import example
from nccltune.model.errors import UnwritableError
from tests.unit.runs import Cli

WRITTEN = ("findings.json", "tuner.conf", "tuning.json", "report.html", "doctor.json")


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a study whose files cannot be written, also by root: the writers are patched."""
    path = tmp_path / "study"
    path.mkdir()
    for name in ("platform.json", "samples.jsonl"):
        (path / name).write_bytes((example("h200x4-as-4-nodes") / name).read_bytes())

    def refuse(target: Path, text: str) -> None:
        if Path(target).parent == path:
            raise UnwritableError("cannot be written: Read-only file system", where=str(target))
        Path(target).write_text(text, encoding="utf-8")

    monkeypatch.setattr("nccltune.study.files.write_whole", refuse)
    for writer in ("nccltune.tune.study", "nccltune.app.report"):
        monkeypatch.setattr(f"{writer}.write_whole", refuse)
    return path


@pytest.mark.parametrize(
    ("verb", "shows", "file"),
    [
        ("analyze", "platform   ", "findings.json"),
        ("tune", "Left alone on purpose", "tuner.conf"),
        ("report", "rules are expected to make", "report.html"),
    ],
)
def test_the_result_is_printed_with_a_warning(
    study: Path, cli: Cli, verb: str, shows: str, file: str
) -> None:
    captured = cli(verb, study)
    assert shows in captured.out
    warning = next(line for line in captured.err.splitlines() if line.startswith("warning:"))
    assert f"{study / file}: cannot be written: Read-only file system" in warning
    assert "printed and not saved" in warning
    assert "error:" not in captured.err
    assert not [name for name in WRITTEN if (study / name).exists()]


def test_json_is_printed_whole(study: Path, cli: Cli) -> None:
    for verb in ("analyze", "tune"):
        captured = cli(verb, study, "--json")
        assert json.loads(captured.out)
        assert "warning:" in captured.err


def test_the_exit_code_is_that_of_a_writable_study(study: Path) -> None:
    assert run(["analyze", str(study), "--check"]) == 1


def test_a_file_that_the_user_named_is_written(study: Path, tmp_path: Path, cli: Cli) -> None:
    captured = cli("tune", study, "-o", tmp_path / "tuner.conf")
    assert (tmp_path / "tuner.conf").is_file()
    assert f"Wrote {tmp_path / 'tuner.conf'}" in captured.out
    assert f"{study / 'tuning.json'}: cannot be written" in captured.err


def test_a_file_that_the_user_named_and_cannot_be_written_is_an_error(
    study: Path, cli: Cli
) -> None:
    for verb, name in (("tune", "mine.conf"), ("report", "mine.html")):
        err = cli(verb, study, "-o", study / name, code=2).err
        assert f"error: {study / name}: cannot be written" in err
