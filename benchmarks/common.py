# SPDX-License-Identifier: Apache-2.0
"""What measurements share: processes of which nothing is left, tables of nccl-tests, facts of the
machine, results.
"""

import contextlib
import json
import os
import platform
import re
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIB = 1 << 20
GRACE_S = 5.0
MESSAGES = re.compile(r"process \d+: (.+): (\d+) messages, (\d+) bytes")
"""A line of the send/recv library's counts: route, messages, bytes."""


def exit_on_term() -> None:
    """An end from outside ends what was started, too."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def end_session(leader: int) -> None:
    """Kills all processes of a session: launchers put what they start into groups of its own."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The name, in brackets, may have blanks; then state, parent, group, session.
            if (folder / "stat").read_text().rpartition(")")[2].split()[3] == str(leader):
                os.kill(int(folder.name), signal.SIGKILL)


@contextlib.contextmanager
def session(
    command: Sequence[str], env: dict[str, str], **pipes: Any
) -> Iterator[subprocess.Popen[str]]:
    """The command in a session of its own, of which nothing is left afterwards."""
    process = subprocess.Popen(command, env=env, text=True, start_new_session=True, **pipes)
    try:
        yield process
    finally:
        end_session(process.pid)
        process.wait()


def run(command: Sequence[str], env: dict[str, str], seconds: float) -> tuple[int | None, str, str]:
    """Exit status (None: killed when the time was over), stdout and stderr."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with session(command, env, **pipes) as process:
        try:
            said, complaint = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            end_session(process.pid)
            said, complaint = process.communicate()
            return None, said, complaint
        return process.returncode, said, complaint


def mpirun(ranks: int, seconds: float, command: Sequence[str]) -> list[str]:
    """Open MPI itself listens at no port, and ends all when the time is over."""
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    words += ["--mca", "btl", "^tcp", "--timeout", str(int(seconds) + 1), "-np", str(ranks)]
    return [*words, *command]


def of_rank(rank: int, ranks: int, port: int) -> dict[str, str]:
    """What torchrun sets for a process of one node."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def run_ranks(
    folder: Path,
    command: Sequence[str],
    environments: Sequence[dict[str, str]],
    seconds: float,
) -> list[dict[str, Any]] | None:
    """A process for each environment, which writes its results into the file that it gets
    as --report. Nothing where one fails, or the time is over: reported on stderr."""
    port, processes, ranks = free_port(), [], range(len(environments))
    with contextlib.ExitStack() as stack:
        for rank, environment in enumerate(environments):
            output = stack.enter_context((folder / f"output.{rank}").open("w"))
            pipes = {"stdout": output, "stderr": output, "stdin": subprocess.DEVNULL}
            whole = environment | of_rank(rank, len(environments), port)
            words = [*command, "--report", str(folder / f"report.{rank}")]
            processes.append(stack.enter_context(session(words, whole, **pipes)))
        if not all_ended(processes, seconds):
            states = [process.poll() for process in processes]
            print(f"failed, exit codes {states}", file=sys.stderr)
            print(*((folder / f"output.{r}").read_text()[-600:] for r in ranks), file=sys.stderr)
            return None
    return [json.loads((folder / f"report.{rank}").read_text()) for rank in ranks]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def all_ended(processes: list[subprocess.Popen[str]], seconds: float) -> bool:
    """Waits for all; not on for long when one has failed, since the others would for ever."""
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        states = [process.poll() for process in processes]
        if None not in states:
            return not any(states)
        if any(states):
            end = min(end, now + GRACE_S)
        time.sleep(0.05)
    return False


@dataclass
class Row:
    """Of an nccl-tests table: bytes, and microseconds and GB/s out of place and in place."""

    size: int
    micros: list[float]
    busbw: list[float]
    wrong: bool


def read_row(line: str) -> Row | None:
    """size count type redop root, then twice time algbw busbw #wrong."""
    words = line.split()
    if len(words) != 13 or not words[0].isdigit() or words[2] != "float":
        return None
    return Row(
        size=int(words[0]),
        micros=[float(words[5]), float(words[9])],
        busbw=[float(words[7]), float(words[11])],
        wrong={words[8], words[12]} - {"0", "N/A"} != set(),
    )


def rows_of(name: str, status: int | None, said: str, complaint: str) -> list[Row]:
    """The rows of a call of nccl-tests; without any, or with wrong elements, this process ends."""
    rows = [row for row in map(read_row, said.splitlines()) if row]
    if status != 0 or not rows:
        sys.exit(f"error: {name}: {said[-2000:]}\n{complaint[-2000:]}")
    for row in rows:
        if row.wrong:
            sys.exit(f"error: {name}: wrong elements at {row.size} bytes")
    return rows


def tests_version(text: str) -> str | None:
    """Of nccl-tests, from its first lines; with the NCCL it was built with and the one it found."""
    found = re.search(r"# nccl-tests version (.*)", text)
    return found[1].strip() if found else None


def first_line(command: Sequence[str]) -> str | None:
    with contextlib.suppress(OSError, IndexError):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.splitlines()[0].strip() if done.returncode == 0 else None
    return None


def machine() -> dict[str, Any]:
    """Where this runs, and with what; null: not known."""
    model = None
    with contextlib.suppress(OSError):
        model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    kernel: dict[str, str | None] = {}
    for name in ("tcp_congestion_control", "tcp_rmem", "tcp_wmem"):
        kernel[name] = None
        with contextlib.suppress(OSError):
            value = Path(f"/proc/sys/net/ipv4/{name}").read_text()
            kernel[name] = " ".join(value.split())
    gpus = ["nvidia-smi", "--query-gpu=count,name,driver_version", "--format=csv,noheader"]
    return {
        "command": shlex.join(["python", *sys.argv]),
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": model[1] if model else None,
        "gpus (number, name, driver)": first_line(gpus),
        "kernel": platform.release(),
        **kernel,
        "open mpi": first_line(["mpirun", "--version"]),
        "python": platform.python_version(),
        "nccltune commit": first_line(
            ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
        ),
    }


def told(facts: dict[str, Any]) -> str:
    """The same as a list."""
    return "\n".join(f"- {name}: {value}" for name, value in facts.items() if value)


def shown(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.4g} ({min(values):.4g} - {max(values):.4g})"


def size_text(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // 1024} KiB"


def bytes_of(text: str) -> int:
    """64M -> 67108864, as nccl-tests reads it."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1].upper()] if text[-1].isalpha() else int(text)


def save(path: Path | None, result: dict[str, Any]) -> None:
    """Written anew after each run, so that what was measured is there whatever comes later."""
    if path is not None:
        path.write_text(json.dumps(result, indent=1))
