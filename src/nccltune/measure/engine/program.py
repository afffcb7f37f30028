# SPDX-License-Identifier: Apache-2.0
"""Run a program to its end, or stop it together with all processes that it started."""

import contextlib
import os
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

from nccltune.formats.text.prefixes import strip_prefix
from nccltune.launch.kubernetes.kubectl import EXEC_FAILED
from nccltune.launch.run import MARK, kill_marked
from nccltune.native.child import Child, end_with_parent, start
from nccltune.native.line_process import ending

_KEPT_BYTES = 16 << 20
"""Bytes of the end of the error output that are kept: training scripts log to it."""
_PATIENCE_S = 5.0


class ProgramResult(NamedTuple):
    """How a program ended, and what it printed.

    `status` is its exit status, or minus the number of the signal that ended it; None if it was
    killed at its limit.
    """

    status: int | None
    output: bytes
    errors: str

    @property
    def succeeded(self) -> bool:
        """Return whether the program ended with exit status 0."""
        return self.status == 0

    def sentence(self) -> str:
        """Return a sentence on how the program ended, with the last line that it printed."""
        how = "took too long and was killed" if self.status is None else ending(self.status)
        errors = [line for line in self.errors.splitlines() if not line.startswith(EXEC_FAILED)]
        said = errors or self.output.decode(errors="replace").splitlines()
        lines = [strip_prefix(line) for line in said if line.strip(" \t-=*")]
        # A launcher prefixes the program's lines. The launcher's own report of a dead process has
        # no prefix and is printed last. Prefer the lines with a prefix.
        own = [text for source, text in lines if source] or [text for _, text in lines]
        return f"{how}; its last line: {own[-1].strip()}" if own else how


class InterruptedProgram(KeyboardInterrupt):
    """The user interrupted nccltune; `output` is what the program had printed by then."""

    def __init__(self, reason: KeyboardInterrupt, output: bytes) -> None:
        super().__init__(*reason.args)
        self.output = output


def run_program(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    limit_s: float,
    *,
    lines: Sequence[bytes] = (),
) -> ProgramResult:
    """Run a program for at most `limit_s` seconds.

    It has its own session, so Ctrl-C reaches only nccltune. `lines` go to its input, which stays
    open. A launcher gets time to end its processes. Raises PlatformError where it cannot be
    started, and InterruptedProgram on Ctrl-C.

    >>> run_program(["echo", "ready"], os.environ, limit_s=10).output
    b'ready\\n'
    """
    mark = secrets.token_hex(16)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = start(
            arguments,
            {**environment, MARK: mark},
            stdin=subprocess.PIPE if lines else subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            before_exec=end_with_parent,
        )
        status: int | None = None
        try:
            _send(process, lines)
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        except KeyboardInterrupt as reason:
            _end(process, mark)
            raise InterruptedProgram(reason, _content(output)) from reason
        finally:
            _end(process, mark)
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
        return ProgramResult(
            status, _content(output), _content(errors)[-_KEPT_BYTES:].decode(errors="replace")
        )


def _send(process: Child, lines: Sequence[bytes]) -> None:
    if process.stdin is None:
        return
    # The program may have ended already. Then `wait` returns its status.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(b"".join(line + b"\n" for line in lines))
        process.stdin.flush()


def _end(process: Child, mark: str) -> None:
    """End the program, by SIGTERM first: a killed launcher leaves its remote processes."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        if process.poll() is None:
            process.terminate()
            process.wait(_PATIENCE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # Open MPI gives each process its own process group, so `killpg` does not reach them all.
    kill_marked(mark)
    process.wait()


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
