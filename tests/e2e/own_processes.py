# SPDX-License-Identifier: Apache-2.0
"""What tests of sweeps share whose settings need processes of their own: the command, with a
stand-in for the bench."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.bench_runs import environment
from tests.e2e.command_line import nccltune


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of native parts, of which the bench is a stand-in."""
    folder = tmp_path_factory.mktemp("native")
    (folder / "bin").mkdir()
    (folder / "lib").mkdir()
    program = folder / "bin" / "nccltune-bench"
    shutil.copy(Path(__file__).with_name("settings_bench.py"), program)
    program.chmod(0o755)
    # The dynamic loader ignores an empty file, with a word on standard error.
    for name in ("nccl-tuner-nccltune", "nccltune-sendrecv"):
        (folder / "lib" / f"lib{name}.so").touch()
    return folder


def variables(native: Path, **more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return environment(NCCLTUNE_NATIVE_DIR=str(native), PATH=path, **more)


def run(
    native: Path, *args: object, cwd: Path, code: int = 0, **more: str
) -> subprocess.CompletedProcess[str]:
    return nccltune(*args, cwd=cwd, code=code, env=variables(native, **more))
