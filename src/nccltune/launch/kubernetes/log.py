# SPDX-License-Identifier: Apache-2.0
"""Follow the log of a pod. If the connection breaks, no line is lost and none is repeated."""

import contextlib
import os
import re
import subprocess
import time
from pathlib import Path

from nccltune.launch.follow import Follower
from nccltune.launch.kubernetes.kubectl import Kubectl
from nccltune.native.child import Child, start

_AGAIN_S = 2.0
_TRIES = 3
# With --timestamps each line begins with its time, to the nanosecond. Times of one node have equal
# length, so they are compared as text.
_STAMPED = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\S*) ?(.*)", re.DOTALL)


class PodLog:
    """The log of one container. Its lines go to the file `output` and to `follower`."""

    def __init__(
        self, kubectl: Kubectl, pod: str, container: str, output: Path, follower: Follower
    ) -> None:
        self._kubectl = kubectl
        self._words = ("logs", pod, "-c", container, "--timestamps")
        self._output = output
        self._follower = follower
        self._process: Child | None = None
        self._rest = b""
        self._last = b""
        self._again_at = 0.0

    def take(self) -> bool:
        """Process the lines that have arrived, if any; reopen a broken log. Raises
        PlatformError."""
        if self._process is None:
            if time.monotonic() < self._again_at:
                return False
            self._process = start(
                self._kubectl.words(*self._since(), "--follow"),
                self._kubectl.environment,
                stderr=subprocess.DEVNULL,
            )
            assert self._process.stdout is not None
            os.set_blocking(self._process.stdout.fileno(), False)
        assert self._process.stdout is not None
        try:
            data = os.read(self._process.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            self._again_at = time.monotonic() + _AGAIN_S
            return False
        self._feed(data)
        return True

    def finish(self) -> bool:
        """Process the rest; return whether the log was read to its end. Raises PlatformError."""
        self.close()
        for attempt in range(_TRIES):
            answer = self._kubectl.ask(*self._since())
            if answer.status == 0:
                self._feed(answer.out)
                # The last line of a program that died may have no newline.
                self._line(self._rest, b"")
                self._rest = b""
                return True
            time.sleep(_AGAIN_S * (attempt + 1 < _TRIES))
        return False

    def close(self) -> None:
        """End the connection. The next connection reads an unfinished line again."""
        self._rest = b""
        if self._process is None:
            return
        process, self._process = self._process, None
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def _since(self) -> tuple[str, ...]:
        if not self._last:
            return self._words
        # kubectl rounds the time to seconds, so some known lines come again. `_line` drops them.
        return (*self._words, f"--since-time={self._last.decode()}")

    def _feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line, b"\n")

    def _line(self, line: bytes, end: bytes) -> None:
        match = _STAMPED.fullmatch(line)
        # A line without a time is a message of Kubernetes about the log, not output of the program.
        if match is None or match[1] <= self._last:
            return
        self._last = match[1]
        with self._output.open("ab") as file:
            file.write(match[2] + end)
        self._follower.feed(match[2] + end)
