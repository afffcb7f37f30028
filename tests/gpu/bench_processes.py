# SPDX-License-Identifier: Apache-2.0
"""The processes of one run of nccltune-bench on GPUs; requests and answers; NCCL's log."""

import argparse
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import shared_gpu

Answer = dict[str, Any]
TUNED = ["broadcast", "reduce", "allgather", "reducescatter", "allreduce"]
CHOICE_LINE = re.compile(
    r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}"
)


def calls_in(log: str, ranks: int, version: str) -> list[tuple[str, int, str, str, int]]:
    """(collective, bytes as the tuner counts, algorithm, protocol, channels) of each call."""
    # Since NCCL 2.24 the line counts all-gather and reduce-scatter per rank.
    per_rank = tuple(map(int, version.split(".")[:2])) >= (2, 24)
    calls = []
    for name, size, algorithm, protocol, low, high in CHOICE_LINE.findall(log):
        collective = name.lower()
        if collective not in TUNED:
            continue
        shared = per_rank and collective in ("allgather", "reducescatter")
        total = int(size) * (ranks if shared else 1)
        channels = int(high) - int(low) + 1
        calls.append((collective, total, algorithm.lower(), protocol.lower(), channels))
    return calls


class Bench:
    """The processes of one run; requests and answers."""

    def __init__(
        self,
        options: argparse.Namespace,
        *,
        processes: int,
        gpus_per_process: int = 1,
        nodes: int = 0,
        environment: dict[str, str] | None = None,
    ) -> None:
        env = dict(os.environ)
        env["NCCLTUNE_TOKEN"] = secrets.token_hex(16)
        env.update(options.mps.environment)
        if options.ranks_per_gpu > 1 and 0 < nodes < processes:
            env.update(shared_gpu.one_node_variables(options.ranks_per_gpu))
        env.update(environment or {})
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [options.bench, "--size", str(processes), "--rendezvous", f"127.0.0.1:{port}"]
        if options.ranks_per_gpu > 1:
            command += ["--ranks-per-gpu", str(options.ranks_per_gpu)]
        else:
            command += ["--gpus-per-process", str(gpus_per_process)]
        if options.tuner:
            command += ["--tuner", options.tuner]
        if options.nccl:
            command += ["--nccl", options.nccl]
        if nodes:
            command += ["--emulate-nodes", str(nodes)]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed at the end
        self.processes = [
            subprocess.Popen(
                [*command, "--rank", str(rank)],
                env=env,
                stdin=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                stderr=self.errors,
                text=True,
            )
            for rank in range(processes)
        ]
        self.ids = 0
        # Whatever goes wrong, no check waits for ever.
        self.watch = threading.Timer(options.limit, self.kill)
        self.watch.start()

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self.watch.cancel()
        self.kill()
        self.errors.close()

    def kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()

    def send(self, request: dict[str, Any]) -> None:
        stdin = self.processes[0].stdin
        assert stdin is not None
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()

    def read(self) -> Answer:
        stdout = self.processes[0].stdout
        assert stdout is not None
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"no answer; standard error: {self.talk()[-3000:]}")
        return dict(json.loads(line))

    def talk(self) -> str:
        self.errors.seek(0)
        return self.errors.read()

    def hello(self) -> Answer:
        self.send({"op": "hello", "schema_version": 1})
        answer = self.read()
        if answer["op"] != "hello":
            raise RuntimeError(f"{answer}; standard error: {self.talk()[-3000:]}")
        return answer

    def measure(self, **request: Any) -> list[Answer]:
        """The points of one request; an error answer is the last."""
        self.ids += 1
        defaults = {"choices": ["default"], "rounds": 1, "default_repeats": 1, "warmup": 1}
        self.send({"op": "measure", "id": self.ids, "seed": 1, **defaults, **request})
        points = []
        while True:
            answer = self.read()
            if answer["op"] == "done":
                return points
            points.append(answer)
            if answer["op"] == "error":
                return points

    def table(self, collective: str, sizes: list[int]) -> dict[int, Answer]:
        self.ids += 1
        self.send({"op": "table", "id": self.ids, "collective": collective, "bytes": sizes})
        answer = self.read()
        if answer["op"] != "table":
            raise RuntimeError(str(answer))
        return {row["bytes"]: row for row in answer["rows"]}

    def end(self, seconds: float = 30) -> list[int]:
        deadline = time.monotonic() + seconds
        return [p.wait(timeout=max(0.1, deadline - time.monotonic())) for p in self.processes]

    def quit(self) -> list[int]:
        self.send({"op": "quit"})
        self.read()
        return self.end()
