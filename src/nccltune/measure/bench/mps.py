# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's MPS daemon, without which processes on one GPU take turns.

A daemon that runs for this user is used. Another one is started on request, with a folder of its
own, and ends with nccltune.
"""

import contextlib
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
    "instead of 42); --mps starts one"
)
"""Measured with 2 ranks on an H200, NCCL 2.28.9."""
_DEFAULT_PIPES = "/tmp/nvidia-mps"  # noqa: S108 - where the daemon puts them
_START_LIMIT_S = 20.0
_QUIT_LIMIT_S = 15.0


def running_daemon(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Return the variables of the clients of a daemon that runs for this user; None without one.

    A daemon of root serves every user. That of another user is left alone.
    """
    folder = Path(environment.get(PIPES, _DEFAULT_PIPES))
    try:
        owner = (folder / "control").stat().st_uid
    except OSError:
        return None
    if owner not in (0, os.getuid()) or _has_ended(folder):
        return None
    return {PIPES: str(folder)}


class MpsDaemon:
    """A daemon of our own. `variables` are those of its clients."""

    def __init__(self) -> None:
        """Start it and wait until it takes clients.

        Raises PlatformError where it is not installed or does not start.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="nccltune-mps-"))
        self.variables = {PIPES: str(self._folder / "pipe"), LOGS: str(self._folder / "log")}
        self._process: Child | None = None
        try:
            for place in self.variables.values():
                Path(place).mkdir()
            # In the foreground, so that it ends with this process, whatever ends that.
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
        """End the daemon and its server, and remove its folder."""
        if self._process is not None and self._process.poll() is None:
            self._quit()
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_QUIT_LIMIT_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_for_clients(self, process: Child) -> None:
        until = time.monotonic() + _START_LIMIT_S
        while not (Path(self.variables[PIPES]) / "control").exists():
            if process.poll() is not None or time.monotonic() > until:
                raise PlatformError(
                    f"the MPS daemon did not start: {self._last_words()}",
                    where=CONTROL,
                    hint="leave out --mps: ranks then take turns on the GPU",
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
        """Ask the daemon to end its server. The answer can take long while a client hangs."""
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


def _has_ended(folder: Path) -> bool:
    """Return whether the process that made `folder` is known to have ended, and left its files."""
    try:
        number = int((folder / f"{CONTROL}.pid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False
    return not Path(f"/proc/{number}").exists()
