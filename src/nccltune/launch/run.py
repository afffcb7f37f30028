# SPDX-License-Identifier: Apache-2.0
"""Start a rendered command, follow its output and end it.

To end a job, its launcher is asked first. Then all processes of the job that are left on this
machine are killed.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from nccltune.launch.follow import Follower
from nccltune.launch.state import RunEnd, RunState
from nccltune.native.child import Child, signal_of, start

GRACE_S = ((signal.SIGINT, 5.0), (signal.SIGTERM, 3.0))
"""Signals that ask the launcher to end its job, and the seconds to wait after each signal."""
MARK = "_NCCLTUNE_RUN"
"""Marks the processes of a run here; unknown names with NCCLTUNE_ would cause a warning."""
_STEP_S = 0.1
_LAST_OUTPUT_S = 2.0
_KILL_LIMIT_S = 10.0


def run(
    words: Sequence[str],
    output: Path,
    follower: Follower,
    environment: Mapping[str, str] = os.environ,
) -> RunEnd:
    """Run the command `words` to its end and return how it ended.

    Standard output and standard error are passed to `output` and `follower` as they arrive.
    KeyboardInterrupt ends the job; the returned state is then STOPPED. Raises PlatformError if the
    command cannot be started, and OSError if `output` cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run(["true"], Path(folder, "output.txt"), Follower()).state.value
    'done'
    """
    mark = secrets.token_hex(16)
    with output.open("wb") as kept:
        process = start(words, {**environment, MARK: mark}, stderr=subprocess.STDOUT)
        job = _Job(process, kept, follower)
        try:
            job.follow(None)
            stopped = None
        except KeyboardInterrupt as stop:
            stopped = signal_of(stop)
            job.end()
        finally:
            job.kill(mark)
        follower.finish()
    if stopped is not None:
        return RunEnd(RunState.STOPPED, f"by {stopped.name}", stopped)
    return _end_by_status(process.returncode, words[0])


def _end_by_status(status: int, name: str) -> RunEnd:
    if status == 0:
        return RunEnd(RunState.DONE)
    if status < 0:
        return RunEnd(RunState.FAILED, f"{name} was killed by {signal.Signals(-status).name}")
    return RunEnd(RunState.FAILED, f"{name} ended with status {status}")


class _Job:
    def __init__(self, process: Child, kept: IO[bytes], follower: Follower) -> None:
        assert process.stdout is not None
        self._process = process
        self._pipe = process.stdout
        self._kept = kept
        self._follower = follower
        os.set_blocking(self._pipe.fileno(), False)

    def follow(self, limit_s: float | None) -> bool:
        """Process output until the launcher ends, or for `limit_s`; return whether it has ended."""
        until = None if limit_s is None else time.monotonic() + limit_s
        gone_at: float | None = None
        while until is None or time.monotonic() < until:
            more = self._take()
            if more is None:
                # End of the output: every process that could write to the pipe has closed it.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_STEP_S)
                    return True
            elif self._process.poll() is not None:
                gone_at = gone_at or time.monotonic()
                if not more and time.monotonic() - gone_at > _LAST_OUTPUT_S:
                    return True
            if not more:
                time.sleep(_STEP_S / 4)
        return self._process.poll() is not None

    def _take(self) -> bool | None:
        """Process the output that has arrived, if any; None at its end."""
        try:
            data = os.read(self._pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            return None
        self._kept.write(data)
        self._kept.flush()
        self._follower.feed(data)
        return True

    def end(self) -> None:
        """Send each signal of `GRACE_S` until it ends; KeyboardInterrupt skips a wait."""
        for number, patience_s in GRACE_S:
            self._process.send_signal(number)
            with contextlib.suppress(KeyboardInterrupt):
                if self.follow(patience_s):
                    return

    def kill(self, mark: str) -> None:
        """Kill the processes of the job that are left on this machine, and reap the launcher."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        kill_marked(mark)
        self._process.wait()
        while self._take():
            pass
        self._pipe.close()


def kill_marked(mark: str) -> None:
    """Kill the processes on this machine that carry the mark of a run, until none is left."""
    # Limit the time: a process that waits inside a driver cannot die before the driver returns.
    until = time.monotonic() + _KILL_LIMIT_S
    while (left := list(marked(mark))) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_STEP_S / 4)


def marked(mark: str) -> Iterator[int]:
    """Yield the ids of processes on this machine that carry the mark of a run."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        try:
            variables = (folder / "environ").read_bytes()
        except OSError:
            continue
        # A zombie has no environment, so it does not match.
        if wanted in variables.split(b"\0"):
            yield int(folder.name)
