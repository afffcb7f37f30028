# SPDX-License-Identifier: Apache-2.0
"""Runs of the real nccltune-bench, on the fake GPUs of the native tests."""

import contextlib
import json
import os
import random
import secrets
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from nccltune.native import tuner_path
from tests.e2e.command_line import running

BENCH = tuner_path().parent.parent / "bin" / "nccltune-bench"
FAKES = (
    Path(__file__).parents[2] / "build" / "dev" / "tests" / "native" / "bench" / "nccl" / "fakes"
)
FAKE_NCCL = f"--nccl={FAKES / 'libnccl.so.2'}"
NEEDS_FAKES = pytest.mark.skipif(
    not (FAKES / "libnccl.so.2").exists(), reason="the fake GPUs are not built (make test-native)"
)
LIMIT_S = 120.0
"""After which a run that does not end hangs. Ten seconds are documented, on a machine at rest."""

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
    """With `SLOW` minutes of work, in steps of some hundred milliseconds."""
    return measure(bytes=[4096, 8192], rounds=1000, iterations=20)


SLOW = {"FAKE_NCCL_DELAY_US": "20000"}
"""A variable for `Run`: each collective takes that long."""


def free_ports(count: int) -> list[int]:
    """TCP ports of the loopback interface that nobody listens on. They are below those that the
    kernel gives to connections, one of which may come and take a port at any time."""
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        while len(ports) < count:
            port = random.SystemRandom().randrange(10_000, 30_000)
            listener = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                listener.bind(("127.0.0.1", port))
                ports.append(port)
    return ports


def free_port() -> int:
    return free_ports(1)[0]


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


def on_fakes(**variables: str) -> dict[str, str]:
    """The environment in which a bench with `FAKE_NCCL` finds the fake GPUs."""
    return environment(LD_LIBRARY_PATH=str(FAKES), **variables)


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
        return list(iter(self.receive, None))

    def end(self) -> tuple[int, str]:
        """Close its input and wait; its exit status and standard error."""
        assert self.popen.stdin is not None
        assert self.popen.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()
        status = self.popen.wait(LIMIT_S)
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


def listens(port: int) -> bool:
    """Whether somebody waits for connections to the port of the loopback interface."""
    sockets = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines())
    return any(fields[1::2][:2] == [f"0100007F:{port:04X}", "0A"] for fields in sockets)


class Run:
    """Processes started by hand, as ranks of one run."""

    def __init__(self, size: int, *options: str, **variables: str) -> None:
        self.port = free_port()
        shared = on_fakes(NCCLTUNE_TOKEN=secrets.token_hex(16)) | variables
        words = [str(BENCH), FAKE_NCCL, *options, "--rendezvous", f"127.0.0.1:{self.port}"]
        self.ranks = [
            Process([*words, "--rank", str(rank), "--size", str(size)], shared)
            for rank in range(size)
        ]

    @property
    def first(self) -> Process:
        return self.ranks[0]

    def hello(self) -> Answer:
        self.first.send(HELLO)
        answer = self.first.receive()
        assert answer is not None
        assert answer["op"] == "hello", answer
        return answer

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        self.ranks[rank].popen.send_signal(number)

    def end(self) -> list[int]:
        return [self.first.end()[0], *(rank.popen.wait(LIMIT_S) for rank in self.ranks[1:])]

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
