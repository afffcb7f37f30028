# SPDX-License-Identifier: Apache-2.0
"""Runs of the real nccltune-bench for the end-to-end tests."""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from nccltune.native import tuner_path
from tests.e2e.command_line import running

BENCH = tuner_path().parent.parent / "bin" / "nccltune-bench"
EXAMPLES = Path(__file__).parents[2] / "examples"
FOUR_NODES = EXAMPLES / "h200x4-as-4-nodes"
LIMIT_S = 10.0
"""What a run may take to end after one of its processes died, as documented."""

Answer = dict[str, Any]
HELLO = {"op": "hello", "schema_version": 1}
QUIT = {"op": "quit"}


def measure(**members: Any) -> dict[str, Any]:
    """A request for 1 KiB all-reduces with the default; `members` in addition or instead."""
    return {
        "op": "measure",
        "collective": "allreduce",
        "bytes": [1024],
        "choices": ["default"],
        **members,
    }


def slow_measure() -> dict[str, Any]:
    """With `--pace 1` minutes of work, in steps of some hundred milliseconds."""
    return measure(bytes=[1 << 24, 1 << 16], rounds=1000, iterations=20)


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def environment(**variables: str) -> dict[str, str]:
    """The environment without what another launcher, or a user, may have left there."""
    foreign = ("OMPI_", "PMI", "SLURM_", "MPI_LOCAL", "NCCL", "HYDRA", "I_MPI_", "TORCHELASTIC")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(foreign) and name not in names
    }
    return kept | variables


class Process:
    """One program with pipes; what it writes to standard error is read at its end."""

    def __init__(self, arguments: Sequence[str], variables: dict[str, str]) -> None:
        self.popen = subprocess.Popen(
            arguments,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def send(self, *requests: dict[str, Any] | str) -> None:
        assert self.popen.stdin is not None
        for request in requests:
            line = request if isinstance(request, str) else json.dumps(request)
            self.popen.stdin.write(line.encode() + b"\n")
        self.popen.stdin.flush()

    def receive(self) -> Answer | None:
        """The next answer; None after the last."""
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        if not line:
            return None
        answer: Answer = json.loads(line)
        return answer

    def rest(self) -> list[Answer]:
        """All answers until the end."""
        return list(iter(self.receive, None))

    def end(self, limit_s: float = LIMIT_S) -> tuple[int, str]:
        """Close its input and wait; its exit status and standard error. It must end in time."""
        assert self.popen.stdin is not None
        assert self.popen.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()
        status = self.popen.wait(limit_s)
        return status, self.popen.stderr.read().decode()

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Run:
    """Processes started by hand, as ranks of one run, the last `absent` of them by `complete`."""

    def __init__(
        self,
        size: int,
        *options: str,
        study: Path | None = FOUR_NODES,
        absent: int = 0,
        **variables: str,
    ) -> None:
        self.port = free_port()
        self.size = size
        self._variables = environment(NCCLTUNE_TOKEN=secrets.token_hex(16)) | variables
        self._common = [str(BENCH), *options]
        if study is not None:
            self._common += ["--replay", str(study)]
        if size > 1:
            self._common += ["--rendezvous", f"127.0.0.1:{self.port}"]
        self.ranks: list[Process] = []
        self._start(size - absent, {})

    def _start(self, until: int, more: dict[str, str]) -> None:
        for rank in range(len(self.ranks), until):
            own = ["--rank", str(rank), "--size", str(self.size)] if self.size > 1 else []
            self.ranks.append(Process([*self._common, *own], self._variables | more))

    def complete(self, **variables: str) -> None:
        """Start those that are absent; with variables that the others do not have."""
        self._start(self.size, variables)

    @property
    def first(self) -> Process:
        """Rank 0, which answers."""
        return self.ranks[0]

    def hello(self) -> Answer:
        self.first.send(HELLO)
        answer = self.first.receive()
        assert answer is not None
        assert answer["op"] == "hello", answer
        return answer

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        self.ranks[rank].popen.send_signal(number)

    def end(self, limit_s: float = LIMIT_S) -> list[int]:
        """The exit statuses of all ranks, all within the limit."""
        until = time.monotonic() + limit_s
        statuses = [self.first.end(limit_s)[0]]
        statuses += [rank.popen.wait(max(0.1, until - time.monotonic())) for rank in self.ranks[1:]]
        return statuses

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            rank.close()


def bench_processes(port: int) -> dict[int, int]:
    """Processes of nccltune-bench that meet at `port`, by their launcher's rank: {rank: pid}."""
    found: dict[int, int] = {}
    for process in running():
        if Path(process.words[0]).name != BENCH.name or f"127.0.0.1:{port}" not in process.words:
            continue
        for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK"):
            if name in process.variables:
                found[int(process.variables[name])] = process.pid
    return found


def eventually(limit_s: float = 60) -> Iterator[None]:
    """Steps of waiting, to be left when what is waited for is there: long on a machine at work."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        yield
        time.sleep(0.02)
    raise AssertionError(f"it did not come about within {limit_s} s")
