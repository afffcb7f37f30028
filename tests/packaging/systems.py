# SPDX-License-Identifier: Apache-2.0
"""Systems that the wheels are loaded on: this one, and those that sysroots.sh unpacks."""

import json
import os
import platform
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.programs import completed

ROOT = Path(__file__).resolve().parents[2]
SYSROOTS = ROOT / "build" / "sysroots"


@dataclass(frozen=True)
class System:
    """How a program for `architecture` is started on a system."""

    name: str
    architecture: str
    starter: tuple[str, ...] = ()

    def check(self) -> None:
        if self.starter and not Path(self.starter[0]).is_file():
            pytest.skip(f"no {self.name} in build/sysroots (tests/packaging/sysroots.sh)")
        runs = self.architecture if "qemu" in self.name else platform.machine()
        if runs != self.architecture:
            pytest.skip(f"{self.name} needs an {self.architecture} machine")

    def run(
        self, program: Path, *arguments: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        words = [*self.starter, str(program), *arguments]
        return completed(words, env={**os.environ, **environment}, timeout=250)

    def wrap(self, native: Path, target: Path) -> Path:
        """Make a folder like `native` in `target`, whose programs start on this system."""
        (target / "bin").mkdir(parents=True)
        (target / "lib").symlink_to(native / "lib")
        starter = list(self.starter)
        if "--library-path" in starter:
            # The bench looks for the plugin beside /proc/self/exe, which is the loader.
            starter[0] = str(shutil.copy(starter[0], target / "bin" / "loader"))
        for program in (native / "bin").iterdir():
            script = target / "bin" / program.name
            command = shlex.join([*starter, str(program)])
            script.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
            script.chmod(0o755)
        return target


def play_demo(*words: object, **options: Any) -> None:
    """Check that the tuner plugin decides by the rules of a recording, verified in its replay."""
    done = completed([*words, "demo", "--json"], **options)
    assert done.returncode == 0, done.stderr
    plugin = json.loads(done.stdout)["plugin"]
    assert plugin["asked"] == plugin["as_predicted"] > 0


def _with_loader(name: str) -> System:
    libraries = SYSROOTS / name.split("-")[0] / "lib" / "x86_64-linux-gnu"
    loader = libraries / "ld-linux-x86-64.so.2"
    return System(name, "x86_64", (str(loader), "--library-path", str(libraries)))


_QEMU = SYSROOTS / "tools" / "usr" / "bin" / "qemu-aarch64-static"
SYSTEMS = (
    System("this-machine", platform.machine()),
    _with_loader("bionic-glibc-2.27"),
    _with_loader("focal-glibc-2.31"),
    System("qemu-aarch64-glibc-2.36", "aarch64", (str(_QEMU), "-L", str(SYSROOTS / "arm64"))),
)
