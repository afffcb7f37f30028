# SPDX-License-Identifier: Apache-2.0
"""Run many tools in parallel, each with a time limit and a limit of output size.

A tool that does not end is killed with all its child processes. A tool that cannot be killed,
because it waits in the driver, is abandoned.
"""

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from nccltune.doctor.evidence.catalogue import ToolCommand
from nccltune.model.errors import PlatformError
from nccltune.native.child import Child, start

MOST_BYTES = 16 << 20
_CHUNK = 1 << 16
_TICK_S = 0.05


class Output(NamedTuple):
    """Output of a tool. `problem` states why the output is not complete and valid, or None."""

    data: bytes
    problem: str | None
    seconds: float


class _Running:
    def __init__(self, command: ToolCommand, process: Child) -> None:
        self.command = command
        self.process = process
        self.begun = time.monotonic()
        self.parts: list[bytes] = []
        self.size = 0
        self.open = 2
        self.errors = b""
        self.ended: float | None = None
        self.problem: str | None = None

    @property
    def deadline(self) -> float:
        """Time at which the tool must have ended."""
        return self.begun + self.command.deadline_s


def run_all(
    commands: Sequence[ToolCommand],
    environment: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> dict[str, Output]:
    """Run all tools in parallel, and return their outputs by command name.

    After `stop` is set, running tools are killed and no tool is started.
    """
    environment = dict(os.environ if environment is None else environment)
    # Parsers need the words and number formats of the C locale.
    environment.update(LC_ALL="C", LANG="C")
    done: dict[str, Output] = {}
    running: list[_Running] = []
    with selectors.DefaultSelector() as selector:
        for command in commands:
            if stop is not None and stop.is_set():
                done[command.name] = Output(b"", f"{command.words[0]}: no time was left", 0.0)
                continue
            try:
                one = _Running(command, start(command.words, environment))
            except PlatformError as error:
                missing = isinstance(error.__cause__, FileNotFoundError)
                reason = "is not installed" if missing else error.message
                done[command.name] = Output(b"", f"{command.words[0]}: {reason}", 0.0)
                continue
            running.append(one)
            for stream in (one.process.stdout, one.process.stderr):
                assert stream is not None
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, one)
        while running:
            _read(selector, _TICK_S)
            if stop is not None and stop.is_set():
                _no_time_left(running)
            for one in [one for one in running if _has_ended(one)]:
                running.remove(one)
                done[one.command.name] = _finish(one, selector)
    return done


def _read(selector: selectors.BaseSelector, timeout: float) -> None:
    for key, _ in selector.select(timeout):
        one: _Running = key.data
        stream = key.fileobj
        try:
            data = os.read(key.fd, _CHUNK)
        except BlockingIOError:
            continue
        if not data:
            selector.unregister(stream)
            one.open -= 1
        elif stream is one.process.stderr:
            one.errors = (one.errors + data)[-4096:]
        elif one.size < MOST_BYTES:
            one.parts.append(data)
            one.size += len(data)
        else:
            one.problem = f"printed more than {MOST_BYTES >> 20} MiB"


def _no_time_left(running: Sequence[_Running]) -> None:
    for one in running:
        if one.problem is None and one.process.poll() is None:
            one.problem = "was stopped: no time was left"


def _has_ended(one: _Running) -> bool:
    now = time.monotonic()
    if one.process.poll() is not None and one.ended is None:
        one.ended = now
    if one.problem is None and one.ended is None and now >= one.deadline:
        one.problem = f"did not end within {one.command.deadline_s:g} s and was stopped"
    if one.problem is not None:
        return True
    # A child process of the tool may keep the pipes open. One tick after the tool has ended, all of
    # the tool's own output has arrived.
    return one.ended is not None and (not one.open or now >= one.ended + _TICK_S)


def _finish(one: _Running, selector: selectors.BaseSelector) -> Output:
    for stream in (one.process.stdout, one.process.stderr):
        assert stream is not None
        with suppress(KeyError, ValueError):
            selector.unregister(stream)
        stream.close()
    if one.process.poll() is None or one.open:
        # The tool has its own session, so this kills only the tool and its child processes.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(one.process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            one.process.wait(0.05)
    seconds = time.monotonic() - one.begun
    problem = one.problem
    if problem is None and one.process.returncode not in one.command.fine:
        words = one.errors.decode(errors="replace").strip() or _last(one.parts)
        first = words.partition("\n")[0][:200]
        problem = f"exit code {one.process.returncode}" + (f": {first}" if first else "")
    name = " ".join(one.command.words[:4])[:60]
    return Output(b"".join(one.parts), f"{name}: {problem}" if problem else None, seconds)


def _last(parts: list[bytes]) -> str:
    lines = b"".join(parts[-1:]).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
