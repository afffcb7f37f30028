# SPDX-License-Identifier: Apache-2.0
"""What measurements of the network plugin share: ranks that pass for nodes, candidates, results.

Each rank is a node of its own (NCCL_HOSTID) on the loopback, so that all bytes cross TCP.
"""

import contextlib
import json
import os
import platform
import re
import shlex
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NODES = {
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_SET_THREAD_NAME": "1",
}
MIB = 1 << 20
GRACE_S = 5.0


@dataclass(frozen=True)
class Candidate:
    """What a user could choose. NCCL_NET is always named: without it NCCL takes what it finds."""

    name: str
    settings: dict[str, str] = field(hash=False)

    @property
    def network(self) -> str:
        return self.settings["NCCL_NET"]


DEFAULT = Candidate("built-in default", {"NCCL_NET": "Socket"})


def built_in(threads: int, sockets: int) -> Candidate:
    """NCCL's own transport with so many threads, and sockets for each."""
    settings = {"NCCL_SOCKET_NTHREADS": str(threads), "NCCL_NSOCKS_PERTHREAD": str(sockets)}
    return Candidate(f"built-in {threads} x {sockets}", DEFAULT.settings | settings)


def fast_socket(path: str) -> Candidate:
    """Google's. Without placement of flows, which its kernel or NIC must know."""
    settings = {"NCCL_NET_PLUGIN": str(Path(path).resolve()), "NCCL_NET": "FastSocket"}
    return Candidate("Fast Socket", settings | {"NCCL_FLOW_PLACEMENT_ENABLE": "0"})


def nccltune(path: str, name: str = "nccltune", **settings: str) -> Candidate:
    """Ours: without a setting, or with some."""
    ours = {"NCCL_NET_PLUGIN": str(Path(path).resolve()), "NCCL_NET": "nccltune"}
    return Candidate(name, ours | settings)


def pair(text: str) -> tuple[int, int]:
    """2x1 -> 2, 1."""
    first, second = text.split("x")
    return int(first), int(second)


def environment(
    candidate: Candidate, log: Path, subsystems: str = "INIT", nccl: str | None = None
) -> dict[str, str]:
    """For the ranks of one run; NCCL's log goes into files of that folder. `nccl` is the folder of
    another libnccl.so.2."""
    logs = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": subsystems,
        "NCCL_DEBUG_FILE": str(log / "nccl.%p.log"),
    }
    env = os.environ | NODES | logs | candidate.settings
    if nccl:
        env["LD_LIBRARY_PATH"] = f"{nccl}:{env.get('LD_LIBRARY_PATH', '')}"
    return env


def mpirun(ranks: int, seconds: float, before: str, command: Sequence[str]) -> list[str]:
    """Every rank a node, which does `before` (shell) and becomes the command.

    Open MPI itself listens at no port, and ends all when the time is over.
    """
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    words += ["--mca", "btl", "^tcp", "--timeout", str(int(seconds) + 1), "-np", str(ranks)]
    shell = f'export NCCL_HOSTID=node$OMPI_COMM_WORLD_RANK; {before}exec "$@"'
    return [*words, "bash", "-c", shell, "rank", *command]


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


def tests_version(text: str) -> str | None:
    """Of nccl-tests, from its first lines; with the NCCL it was built with and the one it found."""
    found = re.search(r"# nccl-tests version (.*)", text)
    return found[1].strip() if found else None


def said_by_nccl(log: Path) -> dict[str, Any]:
    """From the logs of a run: NCCL's version, networks, the plugin's line at init, warnings."""
    text = "".join(path.read_text(errors="replace") for path in sorted(log.glob("nccl.*.log")))
    version = re.search(r"NCCL version (\S+)", text)
    line = re.search(r"nccltune \S+, interface v\d+;.*", text)
    return {
        "nccl": version[1] if version else None,
        "networks": sorted(set(re.findall(r"Using network (\S+)", text))),
        "plugin": line[0] if line else None,
        "warnings": re.findall(r"NCCL WARN (.*)", text),
        "turned_away": sum(int(n) for n in re.findall(r"(\d+) strangers were turned away", text)),
    }


def check_network(candidate: Candidate, said: dict[str, Any]) -> None:
    """An error where NCCL took another network than the one meant."""
    if said["networks"] not in ([], [candidate.network]):
        sys.exit(f"error: {candidate.name}: NCCL used {', '.join(said['networks'])}")


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
