# SPDX-License-Identifier: Apache-2.0
"""Studies and files with unusual names, contents and places, also such that cannot be written."""

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from rich.console import Console

from nccltune.cli import cli, run
from nccltune.cli.output import hanging
from nccltune.examples import example
from nccltune.formats.importing.suspect import suspect_sentences
from nccltune.formats.reading.file_report import FileKind, ImportRecord
from nccltune.model.errors import UnwritableError
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
    link = "https://github.com/NVIDIA/nccl-tests/issues/309"
    hanging(console, "alike     ", 10, f"one system, with its source: {link}")
    assert link in out.getvalue().splitlines()[-1]


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


_NEEDED = {
    "sweep": ["-o", "{out}", "--gpus", "2"],
    "auto": ["-o", "{out}"],
    "import": ["-o", "{out}"],
    "ab": ["NCCL_ALGO=Ring", "-o", "{out}"],
    "topo convert": ["-o", "{out}"],
    "sendrecv sweep": ["-o", "{out}", "--gpus", "2"],
}
"""Words that a verb needs beside the one that is tried."""
_PROBED = (*("auto", "sweep", "verify", "ab", "launch run"), "sendrecv sweep")
"""Verbs that run programs: only options that are read before anything starts are tried."""
_SAFE = {"replay", "study", "weights", "studies", "topology"}


def _commands(
    command: click.Command, path: tuple[str, ...], context: click.Context
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from _commands(inner, (*path, name), click.Context(inner, parent=context))


def _takes_path(parameter: click.Parameter) -> bool:
    metavar = parameter.metavar or ""
    words = ("FILE", "STUDY", "FOLDER", "JOB.toml", "DIR")
    return isinstance(parameter.type, click.Path) or any(word in metavar for word in words)


def _cases() -> Iterator[object]:
    for verb, command in _commands(cli, (), click.Context(cli)):
        for parameter in command.params:
            if not _takes_path(parameter) and parameter.name not in ("files", "what"):
                continue
            if " ".join(verb) in _PROBED and parameter.name not in _SAFE:
                continue
            option = parameter.opts[-1] if isinstance(parameter, click.Option) else ""
            yield pytest.param(verb, option, id=f"{'-'.join(verb)}-{option or parameter.name}")


def _directory(path: Path) -> None:
    path.mkdir()


def _binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 16)


def _latin(path: Path) -> None:
    path.write_bytes("größe,gewicht\n8,1\n".encode("latin-1") * 20)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _unreadable(path: Path) -> None:
    # Root reads every file, but nobody can open a link to itself.
    path.symlink_to(path)


def _absent(path: Path) -> None:
    assert not path.exists()


def _json(path: Path) -> None:
    path.write_text('{"schema_version": 1, "name": [null, {}]}\n')


def _deep(path: Path) -> None:
    path.write_text("[" * 4_000)


def _long(path: Path) -> None:
    """Make nothing: the name is longer than any file system takes."""


KINDS: list[Callable[[Path], None]] = [
    _directory, _binary, _latin, _empty, _unreadable, _absent, _json, _deep, _long,
]  # fmt: skip
UNREAD = (_directory, _unreadable, _absent, _long)
"""Without a content, for which the end of a name could decide."""


@pytest.mark.parametrize("make", KINDS, ids=lambda kind: kind.__name__.strip("_"))
@pytest.mark.parametrize(("verb", "option"), list(_cases()))
def test_a_file_of_another_kind_causes_no_traceback(
    verb: tuple[str, ...],
    option: str,
    make: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.devnull)
    suffixes = [""]
    if make not in UNREAD:
        suffixes += [".toml"] if verb[0] == "launch" else [".xml", ".conf"]
    for number, suffix in enumerate(suffixes):
        path = tmp_path / f"{'n' * 300 if make is _long else 'input'}{number}{suffix}"
        make(path)
        words = [*verb, *([option] if option else []), str(path)]
        out = str(tmp_path / f"out{number}")
        words += [word.format(out=out) for word in _NEEDED.get(" ".join(verb), [])]
        code = run(words)
        shown = capsys.readouterr()
        assert code in (0, 1, 2, 3), shown.err
        assert "Traceback" not in shown.err
        assert "codec" not in shown.err
