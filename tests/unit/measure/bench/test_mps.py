# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's MPS daemon: found, started and ended, with a program that stands in for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nccltune.measure.bench import mps
from nccltune.measure.bench.mps import CONTROL, LOGS, PIPES, MpsDaemon, running_daemon
from nccltune.model.errors import PlatformError
from tests.programs import write_program
from tests.waiting import wait_until

DAEMON = f"""#!{sys.executable}
import os, pathlib, sys, time
pipes = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
if sys.argv[1:] != ["-f"]:
    assert sys.stdin.read() == "quit -t 5\\n"
    (pipes / "quit").touch()
    sys.exit()
if "FAKE_MPS_FAILS" in os.environ:
    log = pathlib.Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]) / "control.log"
    log.write_text("starting\\nanother daemon holds the lock\\n")
    sys.exit(1)
(pipes / "{CONTROL}.pid").write_text(str(os.getpid()))
(pipes / "control").touch()
while not (pipes / "quit").exists():
    time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = write_program(tmp_path / "bin" / CONTROL, DAEMON)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(mps.tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv(PIPES, raising=False)


def test_a_daemon_of_our_own_takes_clients_and_leaves_nothing(tmp_path: Path) -> None:
    daemon = MpsDaemon()
    assert set(daemon.variables) == {PIPES, LOGS}
    pipes = Path(daemon.variables[PIPES])
    assert running_daemon(daemon.variables) == {PIPES: str(pipes)}
    number = int((pipes / f"{CONTROL}.pid").read_text())
    daemon.close()
    assert not Path(f"/proc/{number}").exists()
    assert [each.name for each in tmp_path.iterdir()] == ["bin"]
    assert running_daemon(daemon.variables) is None


def test_a_start_removes_folders_of_killed_runs_and_no_others(tmp_path: Path) -> None:
    code = """
import os, signal
from nccltune.measure.bench import mps
mps.tempfile.tempdir = os.environ["FOLDER"]
mps.MpsDaemon()
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", code]
    subprocess.run(command, env={**os.environ, "FOLDER": str(tmp_path)}, check=False)
    (abandoned,) = tmp_path.glob("nccltune-mps-*")
    (tmp_path / "nccltune-mps-of-another-kind").mkdir()
    first = MpsDaemon()
    assert not abandoned.exists()
    second = MpsDaemon()
    folders = {Path(each.variables[PIPES]).parent for each in (first, second)}
    assert len(folders) == 2
    assert all(folder.is_dir() for folder in folders)
    second.close()
    first.close()
    assert {each.name for each in tmp_path.iterdir()} == {"bin", "nccltune-mps-of-another-kind"}


def test_a_daemon_that_does_not_start_is_an_error_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MPS_FAILS", "1")
    with pytest.raises(PlatformError, match="did not start: another daemon holds the lock"):
        MpsDaemon()
    assert [each.name for each in tmp_path.iterdir()] == ["bin"]


def test_a_machine_without_mps_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlatformError, match="cannot be started") as caught:
        MpsDaemon()
    assert "‹replay› PATH" in (caught.value.hint or "")
    assert [each.name for each in tmp_path.iterdir()] == ["bin"]


def test_the_daemon_ends_with_the_process_that_started_it() -> None:
    code = """
import os, signal
from nccltune.measure.bench.mps import PIPES, MpsDaemon
print(MpsDaemon().variables[PIPES], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    number = int((Path(done.stdout.decode().strip()) / f"{CONTROL}.pid").read_text())
    wait_until(lambda: not Path(f"/proc/{number}").exists(), f"process {number} is left")


def test_only_a_daemon_of_this_user_or_root_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert running_daemon({PIPES: str(tmp_path)}) is None
    (tmp_path / "control").touch()
    assert running_daemon({PIPES: str(tmp_path)}) == {PIPES: str(tmp_path)}
    (tmp_path / f"{CONTROL}.pid").write_text("999999999")
    assert running_daemon({PIPES: str(tmp_path)}) is None, "it has ended"
    (tmp_path / f"{CONTROL}.pid").unlink()
    owner = (tmp_path / "control").stat().st_uid
    if owner == 0:
        os.chown(tmp_path / "control", 12345, -1)
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert running_daemon({PIPES: str(tmp_path)}) is None
