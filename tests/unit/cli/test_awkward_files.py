# SPDX-License-Identifier: Apache-2.0
"""No verb prints a traceback for a file of another kind than it expects."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from nccltune.cli import cli, run

_NEEDED = {
    "sweep": ["-o", "{out}", "--gpus", "2"],
    "auto": ["-o", "{out}"],
    "import": ["-o", "{out}"],
    "ab": ["NCCL_ALGO=Ring", "-o", "{out}"],
    "topo convert": ["-o", "{out}"],
    "sendrecv sweep": ["-o", "{out}", "--gpus", "2"],
}
"""Words that a verb needs beside the one that is tried."""
_PROBED = (
    *("auto", "sweep", "verify", "ab", "launch run"),
    "sendrecv sweep",
)
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
