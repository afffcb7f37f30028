# SPDX-License-Identifier: Apache-2.0
"""Start child processes: `start` returns a running one, `run_tool` waits for its end.

Every process that nccltune starts is started here.
"""

import contextlib
import ctypes
import logging
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from nccltune.model.errors import PlatformError

Stream = int | IO[bytes]
"""A standard stream of a child: a file, or PIPE, DEVNULL or STDOUT of `subprocess`."""

_FIRST_STEP_S = 0.0005
_LONGEST_STEP_S = 0.05
_PR_SET_PDEATHSIG = 1
_LOG = logging.getLogger(__name__)
_libc = ctypes.CDLL(None)


class Child(subprocess.Popen[bytes]):
    """A `Popen` whose `poll` and `wait` may be interrupted by a signal handler that raises.

    In `Popen` that can leave a lock acquired, for which the next `wait` waits forever (Python
    3.11).
    """

    def poll(self) -> int | None:
        """Return the exit status, as in `Popen.returncode`; None while the child runs."""
        return self._status(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        if timeout is None:
            status = self._status(0)
            assert status is not None
            return status
        until = time.monotonic() + timeout
        step_s = _FIRST_STEP_S
        while (status := self.poll()) is None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(min(step_s, left_s))
            step_s = min(2 * step_s, _LONGEST_STEP_S)
        return status

    def _status(self, how: int) -> int | None:
        if self.returncode is not None:
            return self.returncode
        # With WNOWAIT the child stays a zombie until `returncode` is set, so an interruption in
        # between does not lose the status.
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | how)
        except ChildProcessError:
            # Another part of this process has reaped the child, or SIGCHLD is ignored. Popen
            # reports 0 in that case, too.
            self.returncode = 0
            return self.returncode
        if ended is None:
            return None
        exited = ended.si_code == os.CLD_EXITED
        self.returncode = ended.si_status if exited else -ended.si_status
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        return self.returncode


class ToolOutput(NamedTuple):
    """The exit status of a tool, and what it printed to standard output and standard error."""

    status: int
    out: bytes
    errors: bytes


def way_to_start(program: str) -> str:
    """Return a hint on a program that was not found."""
    if program.endswith("_perf"):
        return "build nccl-tests (https://github.com/NVIDIA/nccl-tests) and name it with its path"
    if program.startswith("nvidia-"):
        return "it is part of NVIDIA's driver. Without GPUs, use a recording: ‹replay› PATH"
    return "name it with its path, or add its folder to PATH"


def start(
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream | None = subprocess.PIPE,
    own_session: bool = True,
    before_exec: Callable[[], None] | None = None,
) -> Child:
    """Start a command and return the child process.

    With None for `environment` the child gets that of this process. With `own_session` Ctrl-C does
    not reach the child, so the caller decides how the child ends. `before_exec` is called in the
    child before the command runs. If a signal handler raises during the start, no child is left
    running. Raises PlatformError if the command cannot be started.

    >>> start(["echo", "ready"]).communicate()
    (b'ready\\n', b'')
    """
    _LOG.info("start %s", shlex.join(words))
    child: Child | None = None
    try:
        with _deferred_interruptions():
            child = Child(
                words,
                env=None if environment is None else dict(environment),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=own_session,
                preexec_fn=before_exec,
            )
    except OSError as error:
        hint = way_to_start(words[0]) if isinstance(error, FileNotFoundError) else None
        message = f"cannot be started: {error.strerror}"
        raise PlatformError(message, where=words[0], hint=hint) from error
    except BaseException:
        if child is not None:
            # Leaving the block closes the child's pipes and waits for the child's end.
            with child:
                child.kill()
        raise
    return child


def end_with_parent() -> None:
    """Make the kernel end this process with SIGTERM when its parent ends. For `before_exec`."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def _deferred_interruptions() -> Iterator[None]:
    """Defer the handling of SIGINT and SIGTERM to the end of the block.

    Hooks around a fork discard what a handler raises: 8 of 471 interruptions were lost (Python
    3.11). Other threads handle no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    handlers = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if callable(handler := signal.getsignal(number))
    }
    for number in handlers:
        signal.signal(number, lambda received, _: arrived.append(received))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for interruption in arrived:
            signal.raise_signal(interruption)


def run_tool(
    words: Sequence[str], limit_s: float, environment: Mapping[str, str] | None = None
) -> ToolOutput | None:
    """Run a tool to its end and return its exit status and output.

    None if the tool cannot be started or runs longer than `limit_s` seconds. In the second case the
    tool is killed with every process that it started.

    >>> run_tool(["echo", "ready"], limit_s=10.0)
    ToolOutput(status=0, out=b'ready\\n', errors=b'')
    """
    try:
        child = start(words, environment)
    except PlatformError:
        return None
    try:
        out, errors = child.communicate(timeout=limit_s)
    except BaseException as reason:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        # A process that waits inside a driver cannot be killed. It is left running.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=1)
        if isinstance(reason, subprocess.TimeoutExpired):
            return None
        raise
    assert child.returncode is not None
    return ToolOutput(child.returncode, out, errors)


def signal_of(stop: KeyboardInterrupt) -> signal.Signals:
    """Return the signal in the first argument of a KeyboardInterrupt; SIGINT if it has none."""
    return signal.Signals(stop.args[0]) if stop.args else signal.SIGINT
