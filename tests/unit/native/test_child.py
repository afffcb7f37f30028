# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nccltune
from nccltune.model.errors import PlatformError
from nccltune.native import host_path, tuner_path
from nccltune.native.child import Child, ToolOutput, run_tool, start
from tests.programs import completed


class StoppedError(Exception):
    pass


@pytest.fixture
def interrupting() -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise StoppedError

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("code", "status"), [("exit(0)", 0), ("exit(3)", 3)])
def test_the_status_is_that_of_the_program(code: str, status: int) -> None:
    child = Child([sys.executable, "-c", code])
    assert child.wait() == status
    assert (child.poll(), child.returncode) == (status, status)


def test_a_signal_is_below_zero_and_the_child_is_collected() -> None:
    child = Child(["sleep", "60"])
    assert child.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.05)
    child.kill()
    assert child.wait(30) == -signal.SIGKILL
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, 0)


def test_its_output_is_communicated() -> None:
    child = Child(["sh", "-c", "cat; exit 4"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.communicate(b"words", timeout=30) == (b"words", None)
    assert child.returncode == 4


def test_what_somebody_else_has_collected_is_over() -> None:
    child = Child(["true"])
    os.waitpid(child.pid, 0)
    assert child.wait() == 0


@pytest.mark.usefixtures("interrupting")
def test_interruptions_at_any_moment_keep_nobody_waiting() -> None:
    """With Popen itself about one in eight leaves its lock taken."""
    random_ = random.Random(1)
    child = Child(["sleep", "60"])
    interrupted = 0
    for _ in range(300):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + 0.0003 * random_.random())
            while child.poll() is None:
                pass
        except StoppedError:
            interrupted += 1
    assert interrupted == 300
    child.kill()
    signal.setitimer(signal.ITIMER_REAL, 30)
    assert child.wait() == -signal.SIGKILL


@pytest.mark.usefixtures("interrupting")
def test_an_interruption_at_the_end_does_not_lose_the_status() -> None:
    random_ = random.Random(1)
    for _ in range(40):
        child = Child(["sh", "-c", "exit 5"])
        with contextlib.suppress(StoppedError):
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.002 * random_.random())
            child.wait(30)
            # Raises what has come by now, and nothing comes behind it.
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert child.wait(30) == 5


def test_what_is_started_has_a_session_of_its_own() -> None:
    code = "import os; print(os.getsid(0) == os.getpid())"
    assert start([sys.executable, "-c", code]).communicate() == (b"True\n", b"")
    child = start([sys.executable, "-c", code], own_session=False)
    assert child.communicate() == (b"False\n", b"")


def test_what_cannot_be_started_is_an_error_of_this_environment() -> None:
    for tool, hint in (("/nowhere/tool", "name it with"), ("all_reduce_perf", "NVIDIA/nccl-tests")):
        with pytest.raises(PlatformError, match="cannot be started") as caught:
            start([tool])
        assert hint in (caught.value.hint or "")
    assert run_tool(["/nowhere/tool"], 30) is None


def test_a_tool_has_the_environment_that_is_given() -> None:
    done = run_tool(["/bin/sh", "-c", "echo $NAME; echo no >&2; exit 3"], 30, {"NAME": "x"})
    assert done == ToolOutput(3, b"x\n", b"no\n")


def test_a_tool_that_hangs_is_killed_with_what_it_started() -> None:
    mark = f"{random.randrange(10**6, 10**7)}.5"
    assert run_tool(["sh", "-c", f"sleep {mark} & wait"], 0.2) is None
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert running
    assert f"sleep\0{mark}\0".encode() not in running


def test_an_interruption_during_a_fork_is_not_lost_and_leaves_no_child() -> None:
    """In a process of its own: a fork hook cannot be removed."""
    code = """
import os, signal
from nccltune.native.child import start
hooks = []
def interrupt():
    hooks.append(1)
    signal.raise_signal(signal.SIGINT)
os.register_at_fork(after_in_parent=interrupt)
try:
    start(["sleep", "60"], before_exec=os.getpid)
except KeyboardInterrupt:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print(len(hooks), "hook, interrupted, no child")
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    done = completed([sys.executable, "-W", "error::ResourceWarning", "-c", code], timeout=60)
    assert (done.stdout, done.stderr) == ("1 hook, interrupted, no child\nTrue\n", "")


@pytest.fixture
def two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two package folders, as an editable installation has them."""
    folders = [tmp_path / "sources", tmp_path / "site"]
    for folder in folders:
        (folder / "native").mkdir(parents=True)
    monkeypatch.setattr(nccltune, "__path__", [str(folder) for folder in folders])
    monkeypatch.delenv("NCCLTUNE_NATIVE_DIR", raising=False)
    return folders


def put(folder: Path, part: str) -> Path:
    path = folder / part
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_found_in_any_folder_of_the_package(two_folders: list[Path]) -> None:
    tuner = put(two_folders[1] / "native", "lib/libnccl-tuner-nccltune.so")
    host = put(two_folders[0] / "native", "bin/nccltune-host")
    assert tuner_path() == tuner
    assert host_path() == host


def test_the_environment_goes_first(
    two_folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(two_folders[0] / "native", "bin/nccltune-host")
    other = put(tmp_path / "other", "bin/nccltune-host")
    monkeypatch.setenv("NCCLTUNE_NATIVE_DIR", str(tmp_path / "other"))
    assert host_path() == other
    with pytest.raises(PlatformError) as caught:
        tuner_path()
    assert str(tmp_path / "other") in str(caught.value)
    assert "NCCLTUNE_NATIVE_DIR" in (caught.value.hint or "")


def test_the_environment_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = put(tmp_path / "other", "bin/nccltune-host")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NCCLTUNE_NATIVE_DIR", "other")
    assert host_path() == host


def test_missing_parts_say_where_they_were_looked_for(two_folders: list[Path]) -> None:
    with pytest.raises(PlatformError, match="libnccl-tuner-nccltune.so") as caught:
        tuner_path()
    assert caught.value.exit_code == 3
    for folder in two_folders:
        assert str(folder) in str(caught.value)
    assert "pip install" in (caught.value.hint or "")
