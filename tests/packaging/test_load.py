# SPDX-License-Identifier: Apache-2.0
"""Everything in the wheels is loaded, and started, on systems old and foreign."""

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, wheel_path
from tests.packaging.systems import SYSTEMS, System, play_demo
from tests.programs import completed

PROGRAMS = ("nccltune-bench", "nccltune-host")


@pytest.fixture(params=SYSTEMS, ids=lambda system: system.name)
def system(request: pytest.FixtureRequest) -> System:
    chosen: System = request.param
    chosen.check()
    wheel_path(chosen.architecture)
    return chosen


@pytest.fixture
def native(system: System, unpacked: dict[str, Path]) -> Path:
    return unpacked[system.architecture]


def compiled(source: Path, target: Path, architecture: str) -> Path:
    """A C program for glibc 2.28; skips the test without the compiler of the wheels."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed (make wheels)")
    target_of = f"{architecture}-linux-gnu.2.28"
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target_of, "-O3"]
    command += ["-Wl,-s", "-I", str(ROOT / "native"), "-o", str(target), str(source)]
    subprocess.run(command, check=True)
    return target


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_start(system: System, native: Path, program: str) -> None:
    done = system.run(native / "bin" / program, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{program}: ")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("library", "arguments"),
    [
        ("libnccl-tuner-nccltune.so", "ncclTunerPlugin_v 2 7 leaves"),
        ("libnccl-profiler-nccltune.so", "ncclProfiler_v 4 7 stays"),
        ("libnccl-net-nccltune.so", "ncclNetPlugin_v 6 12 stays"),
        ("nccltune-net/libnccl-net.so", "ncclNetPlugin_v 6 12 stays"),
    ],
)
def test_plugins_open_from_c(
    system: System, native: Path, tmp_path: Path, library: str, arguments: str
) -> None:
    source = ROOT / "tests" / "native" / "dlopen_c_test.c"
    program = compiled(source, tmp_path / "opens", system.architecture)
    done = system.run(program, str(native / "lib" / library), *arguments.split())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("library", ["libnccltune-sendrecv.so", "nccltune-sendrecv/libnccl.so.2"])
def test_sendrecv_is_preloaded(system: System, native: Path, library: str) -> None:
    # Where the loader cannot, it prints that on stderr and starts the program without it.
    path = native / "lib" / library
    arguments = (str(native / "bin" / "nccltune-host"), "--help")
    if "qemu" in system.name:
        command = [*system.starter, "-E", f"LD_PRELOAD={path}", *arguments]
        environment = dict(os.environ)
    else:
        command = [*system.starter, *arguments]
        environment = {**os.environ, "LD_PRELOAD": str(path)}
    environment |= {"NCCLTUNE_SENDRECV": "1"}
    done = completed(command, env=environment)
    assert done.returncode == 0
    assert done.stdout.startswith("nccltune-host: ")
    assert "preload" not in done.stderr


def test_demo(system: System, native: Path, tmp_path: Path) -> None:
    """The rules of a recording are decided by the tuner plugin and verified in the replay, by
    programs that run on that system."""
    folder = system.wrap(native, tmp_path / "native")
    environment = {**os.environ, "NCCLTUNE_NATIVE_DIR": str(folder)}
    play_demo(sys.executable, "-m", "nccltune", cwd=tmp_path, env=environment)


def test_exceptions_beside_another_runtime(unpacked: dict[str, Path], tmp_path: Path) -> None:
    architecture = platform.machine()
    wheel_path(architecture)
    config = tmp_path / "large.conf"
    config.write_text("# no rule in this line, only many bytes\n" * 700_000, encoding="utf-8")
    script = Path(__file__).with_name("foreign_runtime.py")
    tuner = unpacked[architecture] / "lib" / "libnccl-tuner-nccltune.so"
    environment = {**os.environ, "NCCLTUNE_CONFIG": str(config)}
    done = completed([sys.executable, script, tuner], env=environment)
    assert done.returncode == 0, done.stderr
    assert "out of memory at init: NCCL decides everything" in done.stdout
    assert done.stdout.splitlines()[-1] == "result 0 context None"
