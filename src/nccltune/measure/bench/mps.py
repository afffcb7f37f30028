# SPDX-License-Identifier: Apache-2.0
"""Find or start NVIDIA's MPS daemon. Without this daemon, processes on one GPU take turns.

If a daemon already runs for this user, it is used. Otherwise nccltune can start its own daemon in a
separate folder. That daemon ends when nccltune ends. If nccltune is killed, its folder stays, and
the next start of a daemon removes it.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from nccltune.model.errors import PlatformError
from nccltune.native.child import Child, end_with_parent, start

CONTROL = "nvidia-cuda-mps-control"
PIPES = "CUDA_MPS_PIPE_DIRECTORY"
LOGS = "CUDA_MPS_LOG_DIRECTORY"
WITHOUT = (
    "no MPS daemon runs: ranks on one GPU take turns of about 2 ms (all-reduce of 1 KiB: 4,504 us "
    "instead of 42); ‹mps› starts one"
)
"""The times were measured with 2 ranks on an H200, NCCL 2.28.9."""
_DEFAULT_PIPES = "/tmp/nvidia-mps"  # noqa: S108 - where the daemon puts them
_START_LIMIT_S = 20.0
_QUIT_LIMIT_S = 15.0
_PREFIX = "nccltune-mps-"
_LOCK = "lock"
"""A file in the daemon's folder that nccltune locks while it lives."""


def running_daemon(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Return the variables to use the running daemon, of root or this user; None without one."""
    folder = Path(environment.get(PIPES, _DEFAULT_PIPES))
    try:
        owner = (folder / "control").stat().st_uid
    except OSError:
        return None
    if owner not in (0, os.getuid()) or _has_ended(folder):
        return None
    return {PIPES: str(folder)}


class MpsDaemon:
    """An MPS daemon of ours; `variables` are the environment variables of its clients."""

    def __init__(self) -> None:
        """Start the daemon, and wait until it accepts clients. Raises PlatformError if it does
        not."""
        _remove_abandoned_folders()
        # The folder gets its name when it is locked, so that nobody takes it for an abandoned one.
        unlocked = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
        self._lock = (unlocked / _LOCK).open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._folder = unlocked.rename(unlocked.with_name(unlocked.name.removeprefix(".")))
        self.variables = {PIPES: str(self._folder / "pipe"), LOGS: str(self._folder / "log")}
        self._process: Child | None = None
        try:
            for place in self.variables.values():
                Path(place).mkdir()
            # With -f the daemon stays a child process, so `end_with_parent` ends it together with
            # nccltune, even if nccltune is killed.
            self._process = start(
                [CONTROL, "-f"],
                {**os.environ, **self.variables},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                before_exec=end_with_parent,
            )
            self._wait_for_clients(self._process)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the daemon and its server process, and remove the daemon's folder."""
        if self._process is not None and self._process.poll() is None:
            self._quit()
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_QUIT_LIMIT_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()

    def _wait_for_clients(self, process: Child) -> None:
        until = time.monotonic() + _START_LIMIT_S
        while not (Path(self.variables[PIPES]) / "control").exists():
            if process.poll() is not None or time.monotonic() > until:
                raise PlatformError(
                    f"the MPS daemon did not start: {self._last_words()}",
                    where=CONTROL,
                    hint="leave out ‹mps›: ranks then take turns on the GPU",
                )
            time.sleep(0.02)

    def _last_words(self) -> str:
        lines = [
            line
            for log in sorted(Path(self.variables[LOGS]).glob("*.log"))
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
            if line.strip()
        ]
        return lines[-1].strip() if lines else "it logged nothing"

    def _quit(self) -> None:
        """Ask the daemon to end its server, which takes long while a client hangs."""
        try:
            asking = start(
                [CONTROL],
                {**os.environ, **self.variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except PlatformError:
            return
        try:
            asking.communicate(b"quit -t 5\n", timeout=_QUIT_LIMIT_S)
        except subprocess.TimeoutExpired:
            asking.kill()
            asking.wait()


def _remove_abandoned_folders() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.getuid():
                continue
            with (folder / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def _has_ended(folder: Path) -> bool:
    """Return whether the daemon that made `folder` is known to have ended."""
    try:
        number = int((folder / f"{CONTROL}.pid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False
    return not Path(f"/proc/{number}").exists()
