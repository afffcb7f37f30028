# SPDX-License-Identifier: Apache-2.0
"""A child process that reads and answers single lines, with time limits."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Self

from nccltune.native.child import Child, start

_KEPT_BYTES = 64 * 1024
_LAST_WORDS_S = 12.0
"""Seconds to read on after the first process closed its output: others may hold stderr."""
_KILL_LIMIT_S = 10.0
_LONGEST_ANSWER_BYTES = 64 * 1024 * 1024


class ProcessEnded(Exception):  # noqa: N818 - it may have ended well
    """The process ended instead of answering; `stderr` is the last 64 KiB of it."""

    def __init__(self, status: int, stderr: str) -> None:
        super().__init__(ending(status))
        self.status = status
        self.stderr = stderr


class NoAnswer(Exception):  # noqa: N818 - a plain fact for the caller to judge
    """The process was killed: no answer in time, or more than 64 MiB without a newline."""


class LineProcess:
    """A child process and its pipes. The last 64 KiB of standard error are kept, not shown.

    `others` are the commands of further processes of the same job. Only the first process answers.
    The others share the standard error of the first and are killed with it. With `apart` no process
    gets the signals of the terminal, so the caller decides what Ctrl-C does. If a process cannot be
    started, the others are killed and PlatformError is raised.

    >>> with LineProcess(["cat"], {}) as process:
    ...     process.send(b"ready")
    ...     process.receive(10.0)
    b'ready'
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        others: Sequence[Sequence[str]] = (),
        apart: bool = False,
    ) -> None:
        self._all: list[Child] = []
        reading, writing = os.pipe()
        self._stderr = os.fdopen(reading, "rb", buffering=0)
        try:
            self._process = start(
                arguments, environment, stdin=subprocess.PIPE, stderr=writing, own_session=apart
            )
            self._all.append(self._process)
            for other in others:
                self._all.append(
                    start(
                        other,
                        environment,
                        stdout=subprocess.DEVNULL,
                        stderr=writing,
                        own_session=apart,
                    )
                )
        except BaseException:
            self.kill()
            for pipe in (self._stderr, *(pipe for p in self._all for pipe in (p.stdin, p.stdout))):
                if pipe is not None:
                    pipe.close()
            raise
        finally:
            os.close(writing)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._answers = b""
        self._errors = b""
        self._selector = selectors.DefaultSelector()
        for pipe in (self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ)

    @property
    def stderr(self) -> str:
        """Return the last 64 KiB of standard error, without white space at both ends."""
        return self._errors.decode(errors="replace").strip()

    def send(self, line: bytes) -> None:
        """Write `line` and a newline. If the process has ended, the next `receive` raises."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(line + b"\n")
            self._stdin.flush()

    def receive(self, limit_s: float) -> bytes:
        """Return the next line of standard output, without its newline.

        Raises ProcessEnded. After `limit_s`, or 64 MiB, it kills the job and raises NoAnswer.
        """
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._answers:
            open_pipes = len(self._selector.get_map())
            if open_pipes == 0:
                raise ProcessEnded(self._wait(deadline), self.stderr)
            if self._output_closed():
                # Other processes may still write to the shared standard error, but not for long.
                deadline = min(deadline, time.monotonic() + _LAST_WORDS_S)
            left = deadline - time.monotonic()
            if left <= 0 or len(self._answers) > _LONGEST_ANSWER_BYTES:
                status = self._process.poll()
                self.kill()
                if status is not None:
                    raise ProcessEnded(status, self.stderr)
                raise NoAnswer
            self._read(left)
        line, _, self._answers = self._answers.partition(b"\n")
        return line

    def receive_all(self, limit_s: float) -> list[bytes]:
        """Return the next line, and all that can be read without waiting. Raises as `receive`."""
        lines = [self.receive(limit_s)]
        if not self._output_closed():
            self._read(0.0)
        *whole, self._answers = self._answers.split(b"\n")
        return lines + whole

    def _output_closed(self) -> bool:
        return self._stdout not in {key.fileobj for key in self._selector.get_map().values()}

    def _read(self, wait_s: float) -> None:
        for key, _ in self._selector.select(wait_s):
            data = os.read(key.fd, 65536)
            if not data:
                self._selector.unregister(key.fileobj)
            elif key.fileobj is self._stdout:
                self._answers += data
            else:
                self._errors = (self._errors + data)[-_KEPT_BYTES:]

    def _wait(self, deadline: float) -> int:
        try:
            return self._process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            raise NoAnswer from None

    def finish(self, limit_s: float) -> int | None:
        """Close the input, wait for the end of the job; return the first status, None if killed."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        deadline = time.monotonic() + limit_s
        while self._selector.get_map() and time.monotonic() < deadline:
            self._read(max(0.0, deadline - time.monotonic()))
        try:
            status = self._wait(deadline)
            for other in self._all[1:]:
                other.wait(max(0.1, deadline - time.monotonic()))
        except (NoAnswer, subprocess.TimeoutExpired):
            self.kill()
            return None
        return status

    def kill(self) -> None:
        """Kill all processes of the job and reap them."""
        for process in self._all:
            process.kill()
        for process in self._all:
            # A process that waits inside a driver cannot die before the driver returns.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if any(process.poll() is None for process in self._all):
            self.kill()
        self._selector.close()
        for pipe in (self._stdin, self._stdout, self._stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def ending(status: int) -> str:
    """Return how a process ended, in words.

    `status` has the meaning of `Popen.returncode`.

    >>> ending(3), ending(-11)
    ('ended with status 3', 'was killed by SIGSEGV')
    """
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
