# SPDX-License-Identifier: Apache-2.0
"""What tests of sweeps share whose settings need processes of their own: the command, with a
stand-in for the bench."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.e2e.bench_runs import environment
from tests.e2e.command_line import nccltune


def native_parts(folder: Path, stand_in: Path) -> Path:
    """The folder, made one of native parts, of which the bench is the stand-in."""
    (folder / "bin").mkdir()
    (folder / "lib").mkdir()
    program = folder / "bin" / "nccltune-bench"
    shutil.copy(stand_in, program)
    program.chmod(0o755)
    (folder / "lib" / "libnccl-tuner-nccltune.so").touch()
    return folder


def variables(native: Path, **more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return environment(NCCLTUNE_NATIVE_DIR=str(native), PATH=path, **more)


def run(
    native: Path, *args: object, cwd: Path, code: int = 0, **more: str
) -> subprocess.CompletedProcess[str]:
    return nccltune(*args, cwd=cwd, code=code, env=variables(native, **more))
