# SPDX-License-Identifier: Apache-2.0
"""Completion in the shells that are here, set up by the line that the guide has for each."""

import os
import pty
import re
import select
import shutil
import sys
from pathlib import Path

import pytest

from tests.programs import completed, write_program

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "installing.md"
LIMIT_S = 60.0


def documented(shell: str) -> str:
    """The line for a start-up file."""
    match = re.search(rf"^\| {shell}\b.*\| `([^`]+)` \|$", GUIDE.read_text(), re.M)
    assert match is not None
    return match[1].replace("\\|", "|")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A PATH on which `nccltune` is this tree's."""
    text = f'#!/bin/sh\nexec {sys.executable} -m nccltune "$@"\n'
    program = write_program(tmp_path / "bin" / "nccltune", text)
    (tmp_path / "study").mkdir()
    path = f"{program.parent}:/usr/local/bin:/usr/bin:/bin"
    return {"PATH": path, "HOME": str(tmp_path), "TERM": "dumb", "LC_ALL": "C.UTF-8"}


def needs(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} here")
    return path


def run(words: list[str], environment: dict[str, str]) -> list[str]:
    done = completed(words, env=environment, cwd=environment["HOME"])
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


CASES = [
    ("tu", "tune"),
    ("topo what", "what-if"),
    ("tune --min-g", "--min-gain"),
    ("env --format nccl", "nccl.conf"),
]


@pytest.mark.parametrize(("typed", "completed"), CASES)
def test_bash(environment: dict[str, str], typed: str, completed: str) -> None:
    words = ["nccltune", *typed.split(" ")]
    script = (
        f"{documented('bash')}\n"
        f"COMP_WORDS=({' '.join(words)}) COMP_CWORD={len(words) - 1}\n"
        "function=$(complete -p nccltune | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n"
        '"$function" nccltune; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    assert run([needs("bash"), "--norc", "-c", script], environment) == [completed]


@pytest.mark.parametrize(("typed", "completed"), CASES)
def test_fish(environment: dict[str, str], typed: str, completed: str) -> None:
    script = f"{documented('fish')}; complete --do-complete 'nccltune {typed}'"
    found = run([needs("fish"), "--no-config", "-c", script], environment)
    assert [line.partition("\t")[0] for line in found] == [completed]


def test_verbs_come_with_their_help(environment: dict[str, str]) -> None:
    script = f"{documented('fish')}; complete --do-complete 'nccltune re'"
    # click's script for fish ends a help text at its first comma.
    assert run([needs("fish"), "--no-config", "-c", script], environment) == [
        "report\twrite one HTML file with verdict"
    ]


class Terminal:
    """A shell at a terminal, whose keys are typed here."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self._seen = ""
        self._child, self._fd = pty.fork()
        if self._child == 0:
            os.chdir(environment["HOME"])
            os.execve(words[0], words, environment)

    def type_(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def wait_for(self, text: str) -> None:
        while text not in self._seen:
            ready, _, _ = select.select([self._fd], [], [], LIMIT_S)
            assert ready, f"{text!r} is not in {self._seen!r}"
            self._seen += os.read(self._fd, 4096).decode(errors="replace")
        self._seen = self._seen.partition(text)[2]

    def close(self) -> None:
        os.close(self._fd)
        os.waitpid(self._child, 0)


@pytest.mark.parametrize(("typed", "completed"), CASES)
def test_zsh(environment: dict[str, str], typed: str, completed: str) -> None:
    terminal = Terminal([needs("zsh"), "-f", "-i"], environment)
    try:
        terminal.type_("PS1='ready%% '; autoload -U compinit; compinit -D\n")
        terminal.wait_for("ready% ")
        terminal.type_(f"{documented('zsh')}\n")
        terminal.wait_for("ready% ")
        # The completed line is an argument of echo, so that it is shown whole, whatever was drawn.
        terminal.type_(f"nccltune {typed}\t\x01echo shown: \n")
        terminal.wait_for("\nshown: ")
        terminal.wait_for(f"nccltune {typed.rpartition(' ')[0]}".rstrip() + f" {completed}")
    finally:
        terminal.close()
