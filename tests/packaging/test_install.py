# SPDX-License-Identifier: Apache-2.0
"""The wheel of this machine, installed as a new user does."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import wheel_path
from tests.packaging.systems import SYSROOTS, SYSTEMS, play_demo
from tests.programs import completed


def test_in_a_fresh_environment(tmp_path: Path) -> None:
    wheel = wheel_path(platform.machine())
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    folder = tmp_path / "venv" / "bin"
    installed = completed([folder / "pip", "install", "-q", "--no-compile", wheel])
    if "No matching distribution found for" in installed.stderr:
        pytest.skip("the package index is not reached")
    assert installed.returncode == 0, installed.stderr
    # Neither this checkout nor another installation.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NCCLTUNE", "PYTHON"))}
    play_demo(folder / "nccltune", cwd=tmp_path, env=environment)


def test_on_an_aarch64_python(tmp_path: Path, unpacked: dict[str, Path]) -> None:
    """Python, its libraries and ours are all aarch64's, under qemu."""
    system = next(
        system for system in SYSTEMS if system.architecture == "aarch64" and system.starter
    )
    system.check()
    wheel = wheel_path("aarch64")
    site = tmp_path / "site"
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 27, 28)]
    installed = completed(
        [
            *(sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--only-binary=:all:"),
            *("--python-version=3.11", "--implementation=cp", f"--target={site}", *platforms),
            *("--platform=manylinux2014_aarch64", str(wheel)),
        ]
    )
    if "No module named pip" in installed.stderr:
        pytest.skip("this environment has no pip")
    if "No matching distribution found for" in installed.stderr:
        pytest.skip("the package index is not reached")
    assert installed.returncode == 0, installed.stderr
    # The kernel starts no aarch64 program: scripts start them under qemu.
    native = system.wrap(site / "nccltune" / "native", tmp_path / "native")
    python = SYSROOTS / "arm64" / "usr" / "bin" / "python3.11"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NCCLTUNE", "PYTHON"))}
    environment |= {"NCCLTUNE_NATIVE_DIR": str(native), "PYTHONPATH": str(site)}
    environment |= {"PYTHONHOME": str(SYSROOTS / "arm64" / "usr"), "PYTHONDONTWRITEBYTECODE": "1"}
    play_demo(*system.starter, python, "-m", "nccltune", cwd=tmp_path, env=environment)
