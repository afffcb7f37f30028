# SPDX-License-Identifier: Apache-2.0
"""The command line of nccltune, run as a user runs it."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from nccltune.cli import run
from nccltune.launch.find import find
from nccltune.launch.flavor import Launcher
from nccltune.model.errors import PlatformError
from tests.programs import alive, completed


def line(*words: object) -> list[str]:
    return [sys.executable, "-m", "nccltune", *map(str, words)]


def environment() -> dict[str, str]:
    """This shell's variables without its settings, but for where our binaries are."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL", "NO_COLOR"))}
    if "NCCLTUNE_NATIVE_DIR" in os.environ:
        kept["NCCLTUNE_NATIVE_DIR"] = os.environ["NCCLTUNE_NATIVE_DIR"]
    return kept


def nccltune(
    *words: object, cwd: Path, code: int = 0, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it to its end in `cwd`, with `env` or `environment()`; it must exit with `code`.

    Within this process, which saves a second of imports, unless a signal is to end it.
    test_alone.py starts every verb in a process of its own.
    """
    variables = environment() if env is None else env
    if code >= 128:
        done = completed(line(*words), cwd=cwd, env=variables)
    else:
        done = _within(words, cwd, variables)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def _within(
    words: tuple[object, ...], cwd: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        mock.patch.dict(os.environ, variables, clear=True),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        status = run([str(word) for word in words])
    told = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess([str(word) for word in words], status, *told)


def launcher_here(name: str) -> str:
    """The launcher's name; the test is skipped where it is not here."""
    try:
        find(Launcher(name))
    except PlatformError as error:
        pytest.skip(f"{error} ({error.hint})")
    return name


def intel_mpi() -> Path:
    """The folder of Intel MPI's programs; the test is skipped where there is none."""
    folder = os.environ.get("INTELMPI_BIN")
    if not folder or not (Path(folder) / "mpiexec.hydra").is_file():
        pytest.skip("no Intel MPI: PyPI's impi-rt in an environment of its own, and INTELMPI_BIN")
    return Path(folder)


class Running(NamedTuple):
    """A process that has not ended."""

    pid: int
    words: list[str]
    variables: dict[str, str]


def running() -> Iterator[Running]:
    """The processes of this machine whose environment can be read."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text(errors="replace").split("\0")
            pairs = (folder / "environ").read_text(errors="replace").split("\0")
        except OSError:
            continue
        pid = int(folder.name)
        if alive(pid):
            variables = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            yield Running(pid, words, variables)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
