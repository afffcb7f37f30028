# SPDX-License-Identifier: Apache-2.0
"""Submit a job to Slurm's queue, watch it, follow its output file and cancel it."""

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nccltune.launch.follow import Follower
from nccltune.launch.state import RunEnd, RunState
from nccltune.model.errors import LaunchError
from nccltune.native.child import run_tool, signal_of, start

POLL_S = 2.0
_COMMAND_LIMIT_S = 60
_UNKNOWN_LIMIT = 15
"""Number of failed status queries in a row after which the job counts as lost."""
_CANCEL_LIMIT_S = 30.0
_OVER = {
    "COMPLETED": "",
    "CANCELLED": "it was cancelled",
    "FAILED": "the program failed",
    "TIMEOUT": "its time limit was reached",
    "NODE_FAIL": "a node went away",
    "OUT_OF_MEMORY": "it ran out of memory",
    "PREEMPTED": "another job took its nodes",
    "BOOT_FAIL": "a node did not start",
    "DEADLINE": "its deadline came first",
}
_WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "SUSPENDED")


class SlurmStatus(NamedTuple):
    """The state of a job in Slurm, and Slurm's reason for the state, which may be empty."""

    state: str
    reason: str = ""


class SlurmBatchJob:
    """One job in Slurm's queue, whose `output` file is passed to `follower`.

    `on_change` is called with a sentence when the job's state or reason changes.
    """

    def __init__(
        self,
        output: Path,
        follower: Follower,
        on_change: Callable[[str], None],
        environment: Mapping[str, str] = os.environ,
        poll_s: float = POLL_S,
    ) -> None:
        self.number = ""
        self._output = output
        self._follower = follower
        self._on_change = on_change
        self._environment = dict(environment)
        self._poll_s = poll_s
        self._read = 0

    def run(self, words: Sequence[str], start_within_s: float | None = None) -> RunEnd:
        """Submit the job with the command `words`, follow it to its end and return how it ended.

        Not started after `start_within_s` seconds (None: no limit) it is cancelled, as PENDING; by
        KeyboardInterrupt as STOPPED. Raises LaunchError if Slurm refuses or does not answer,
        PlatformError if sbatch cannot be started.
        """
        try:
            self._submit(words)
            self._on_change(f"job {self.number} is submitted")
            return self._watch(start_within_s)
        except KeyboardInterrupt as stop:
            number = signal_of(stop)
            why = f"by {number.name}"
            if self.number:
                why += f"; {self._cancel()}"
            self._follow()
            return RunEnd(RunState.STOPPED, why, number)
        finally:
            self._follower.finish()

    def _submit(self, words: Sequence[str]) -> None:
        process = start(words, self._environment)
        try:
            out, errors = process.communicate(timeout=_COMMAND_LIMIT_S)
        except KeyboardInterrupt:
            # sbatch may have submitted the job already. Wait for the job's number, to cancel the
            # job.
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, _ = process.communicate(timeout=_COMMAND_LIMIT_S)
                self.number = _number_of(out)
            process.kill()
            raise
        except subprocess.TimeoutExpired:
            process.kill()
            raise LaunchError(
                "sbatch does not answer", hint="is slurmctld up? scontrol ping"
            ) from None
        self.number = _number_of(out)
        if process.returncode != 0 or not self.number:
            raise LaunchError(
                f"sbatch refused the job: {_plain(errors) or _plain(out) or 'it gave no reason'}",
                hint="options for Slurm stand under [slurm] of a job file; gpus = false where the "
                "site has no GPUs as a resource"
                if b"gres" in errors.lower() or b"gpu" in errors.lower()
                else None,
            )

    def _watch(self, start_within_s: float | None) -> RunEnd:
        before: SlurmStatus | None = None
        unknown = 0
        begun = time.monotonic()
        while True:
            status = self.status()
            self._follow()
            if status is None:
                unknown += 1
                if unknown >= _UNKNOWN_LIMIT:
                    return self._lost(before)
            else:
                unknown = 0
                if status != before:
                    before = status
                    self._on_change(f"job {self.number} {_words(status)}")
                if status.state in _OVER:
                    return self._over(status)
                waited_s = time.monotonic() - begun
                if start_within_s is not None and waited_s > start_within_s:
                    if status.state in _WAITS:
                        why = f"not started after {waited_s:.0f} s ({status.reason or 'no reason'})"
                        return RunEnd(RunState.PENDING, f"{why}; {self._cancel()}")
                    start_within_s = None
            time.sleep(self._poll_s)

    def status(self) -> SlurmStatus | None:
        """Return the job's state from squeue or else sacct; None if neither reports the job."""
        number = self.number.partition(";")[0]
        # squeue forgets a job some minutes after its end. sacct still knows the job.
        text = self._ask(["squeue", "-h", "-t", "all", "-j", number, "-o", "%T|%r"])
        text = text or self._ask(["sacct", "-n", "-P", "-X", "-j", number, "-o", "State"])
        if not text:
            return None
        state, _, reason = text.splitlines()[0].partition("|")
        # Keep the first word: sacct prints `CANCELLED by 1000` or `COMPLETED+`.
        state = re.split(r"[ +]", state.strip(), maxsplit=1)[0]
        return SlurmStatus(state, "" if reason == "None" else reason)

    def _over(self, status: SlurmStatus) -> RunEnd:
        # On a network file system, the last output may become visible after the end of the job.
        # Wait before the last read.
        time.sleep(min(self._poll_s, 1.0))
        self._follow()
        if status.state == "COMPLETED":
            return RunEnd(RunState.DONE)
        return RunEnd(RunState.FAILED, f"{_OVER[status.state]} ({status.state})")

    def _lost(self, before: SlurmStatus | None) -> RunEnd:
        last = f"; it was {before.state.lower()} before" if before is not None else ""
        return RunEnd(
            RunState.LOST,
            f"neither squeue nor sacct knows job {self.number}{last}: it may still run. "
            f"Look: scontrol show job {self.number}. End it: scancel {self.number}",
        )

    def _cancel(self) -> str:
        """Cancel the job, wait at most `_CANCEL_LIMIT_S` for its end; return a sentence."""
        number = self.number.partition(";")[0]
        with contextlib.suppress(KeyboardInterrupt):
            asked = self._ask(["scancel", number])
            until = time.monotonic() + _CANCEL_LIMIT_S
            while asked is not None and time.monotonic() < until:
                status = self.status()
                if status is not None and status.state in _OVER:
                    return f"job {number} is over ({status.state.lower()})"
                time.sleep(min(self._poll_s, 0.5))
        return f"job {number} is not over yet: scancel {number}"

    def _follow(self) -> None:
        with contextlib.suppress(FileNotFoundError), self._output.open("rb") as file:
            file.seek(self._read)
            while data := file.read(1 << 16):
                self._read += len(data)
                self._follower.feed(data)

    def _ask(self, command: list[str]) -> str | None:
        """Return the output of a Slurm command; None if it fails or takes too long."""
        done = run_tool(command, _COMMAND_LIMIT_S, self._environment)
        return _plain(done.out) if done is not None and done.status == 0 else None


def _number_of(out: bytes) -> str:
    """Return the number that `sbatch --parsable` printed (`123;cluster`), or empty text."""
    last = _plain(out).splitlines()[-1:]
    return last[0] if last and re.fullmatch(r"\d+(;\S+)?", last[0]) else ""


def _plain(data: bytes) -> str:
    return data.decode(errors="replace").strip()


def _words(status: SlurmStatus) -> str:
    state = status.state.lower().replace("_", " ")
    because = f" ({status.reason})" if status.reason and status.state in _WAITS else ""
    return f"is {state}{because}"
