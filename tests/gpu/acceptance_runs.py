# SPDX-License-Identifier: Apache-2.0
"""Run the parts of acceptance.py, each within its time, and show their results in one table.

A part is a function that starts commands through its `PartRun`. It returns what it found, or raises
PartError or SkippedError. Nothing that a part has started outlives it.
"""

import contextlib
import ctypes
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not run"
PR_SET_CHILD_SUBREAPER = 36
TAIL = 4000
"""Characters of a part's output in the results."""
LEAST_S = 5.0
"""With less time left no part begins."""
GRACE_S = 2.0
COMPLAINT = re.compile(r"^(?:\[ *\d+ s\] )?(?:failed|error)\b.*", re.IGNORECASE | re.MULTILINE)


class PartError(Exception):
    """A check of a part failed."""


class SkippedError(Exception):
    """A part cannot run here; the text is the reason."""


@dataclass(frozen=True)
class Part:
    """A row of the table."""

    name: str
    checks: str
    limit_s: float
    function: Callable[["PartRun"], str]
    """Returns what it found, in a few words."""


@dataclass
class Row:
    """The result of a part."""

    name: str
    checks: str
    result: str
    seconds: float = 0.0
    detail: str = ""
    figures: str = ""
    """Timings to look at; they decide nothing."""
    output: str = ""
    """The last lines of a part that failed."""


class PartRun:
    """The commands of one part, its time and the file of its output."""

    def __init__(self, folder: Path, log: Path, limit_s: float) -> None:
        self.folder, self.log = folder, log
        self.end = time.monotonic() + limit_s
        self.limit_s = limit_s
        self.figures = ""

    @property
    def left_s(self) -> float:
        return self.end - time.monotonic()

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        statuses: Iterable[int] = (0,),
        is_json: bool = False,
    ) -> str:
        """Run a command and return its stdout. Its stderr goes to the log, and unless it is JSON
        its stdout, too.

        Raises PartError if it is not over in time or ends with another status.
        """
        output = self.folder / "stdout"
        with self.log.open("a") as log, output.open("w") as stdout:
            log.write(f"$ {shlex.join(command)}\n")
            log.flush()
            process = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=log,
                start_new_session=True,
            )
            status = wait(process, self.left_s)
        text = output.read_text(errors="replace")
        with self.log.open("a") as log:
            log.write("" if is_json else text)
        if status is None:
            raise PartError(f"not over after {self.limit_s:.0f} s: {shlex.join(command)[:80]}")
        if status not in statuses:
            written = self.log.read_text(errors="replace")
            found = [line[:200] for line in COMPLAINT.findall(written)]
            raise PartError("; ".join([f"exit status {status}", *found[:3]]))
        return text


def wait(process: "subprocess.Popen[Any]", seconds: float) -> int | None:
    try:
        return process.wait(max(seconds, 0.1))
    except subprocess.TimeoutExpired:
        return None


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose parent ends, so that they can be found."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root: int, kept: Iterable[int] = ()) -> list[int]:
    """Return the processes below `root`, but for those below `kept`, with these."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The name, in brackets, may have blanks; then state and parent.
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found, queue, left_out = [], [root], set(kept)
    while queue:
        below = [each for each in children.get(queue.pop(), []) if each not in left_out]
        found += below
        queue += below
    return found


def end_descendants(
    kept: Callable[[], Iterable[int]] = tuple, grace_s: float = GRACE_S, seconds: float = 5
) -> list[str]:
    """Kill what still runs below this process after `grace_s`; return the names of these."""
    names: dict[int, str] = {}
    began = time.monotonic()
    while found := descendants(os.getpid(), kept()):
        for process in found:
            # Adopted processes that have ended stay zombies until this.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{process}/stat").read_text()
                is_zombie = stat.rpartition(")")[2].split()[0] == "Z"
                if not is_zombie and time.monotonic() > began + grace_s:
                    names.setdefault(process, stat.partition("(")[2].rpartition(")")[0])
                    os.kill(process, signal.SIGKILL)
        if time.monotonic() > began + grace_s + seconds:
            break
        time.sleep(0.02)
    return sorted(names.values())


class Acceptance:
    """All parts of a run, their rows and the file of results, which is written after each part."""

    def __init__(
        self,
        folder: Path,
        output: Path | None,
        seconds: float,
        facts: dict[str, Any],
        kept: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        self.folder, self.output, self.facts, self.kept = folder, output, facts, kept
        self.began = time.monotonic()
        self.end = self.began + seconds
        self.rows: list[Row] = []

    def run(self, part: Part) -> Row:
        row = Row(part.name, part.checks, PASSED)
        left = self.end - time.monotonic()
        if left < LEAST_S:
            row.result, row.detail = NOT_RUN, "out of time"
            return self.add(row)
        number = len(self.rows) + 1
        folder = self.folder / f"{number}"
        folder.mkdir()
        log = self.folder / f"{number}-{part.name.replace(' ', '-').replace('/', '-')}.log"
        run = PartRun(folder, log, min(part.limit_s, left))
        began = time.monotonic()
        try:
            row.detail = part.function(run)
        except SkippedError as reason:
            row.result, row.detail = SKIPPED, str(reason)
        except PartError as failure:
            row.result, row.detail = FAILED, str(failure)
        except Exception as error:  # noqa: BLE001 - a fault of one part is a row, too
            row.result, row.detail = FAILED, f"{type(error).__name__}: {error}"
        grace_s = 0 if row.result == FAILED else GRACE_S
        left_over = end_descendants(self.kept, grace_s)
        if left_over and row.result == PASSED:
            row.result, row.detail = FAILED, f"left running: {', '.join(left_over)}"
        row.seconds = round(time.monotonic() - began, 1)
        row.figures = run.figures
        if row.result == FAILED and log.exists():
            row.output = log.read_text(errors="replace")[-TAIL:]
        return self.add(row)

    def add(self, row: Row) -> Row:
        self.rows.append(row)
        at = time.monotonic() - self.began
        print(f"[{at:4.0f} s] {row.result:7} {row.name}: {row.detail}", flush=True)
        if self.output is not None:
            new = self.output.with_suffix(".new")
            new.write_text(json.dumps(self.results(), indent=1))
            new.replace(self.output)
        return row

    def results(self) -> dict[str, Any]:
        seconds = round(time.monotonic() - self.began, 1)
        return {**self.facts, "seconds": seconds, "parts": [asdict(row) for row in self.rows]}

    def exit_status(self) -> int:
        return exit_status(self.rows)


def exit_status(rows: Sequence[Row]) -> int:
    """0 if at least one part passed and none failed or was out of time."""
    results = {row.result for row in rows}
    return 0 if PASSED in results and not results & {FAILED, NOT_RUN} else 1


def table(rows: Sequence[Row]) -> str:
    lines = ["| part | checked | result | seconds |", "| --- | --- | --- | --- |"]
    for row in rows:
        shown = " ".join(row.detail.replace("|", "/").split())[:200]
        result = f"{row.result}: {shown}" if shown else row.result
        lines.append(f"| {row.name} | {row.checks} | {result} | {row.seconds:.1f} |")
    return "\n".join(lines)


def summary(rows: Sequence[Row], seconds: float) -> str:
    counts = [(name, sum(row.result == name for row in rows))
              for name in (PASSED, FAILED, SKIPPED, NOT_RUN)]  # fmt: skip
    return f"{', '.join(f'{n} {name}' for name, n in counts if n)} in {seconds:.0f} s"
