#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speaks nccltune-bench's conversation; the library before NCCL matters to it, which it finds in
its environment as a real one would: copy engines are faster from `CROSSING` bytes on (2M, 0 for
never).
`SLOW` makes every answer take so many seconds. `WITHOUT` names what the library lacks: `copies`
(none happen), `load` (it is not in the process), `setting` (one is refused)."""

import json
import math
import os
import random
import sys
import time
from pathlib import Path

M = 1 << 20
PRELOADED = os.environ.get("LD_PRELOAD", "").split(":")[0]
OURS = PRELOADED.endswith("libnccltune-sendrecv.so")
CROSSING = int(os.environ.get("SENDRECV_BENCH_CROSSING", 2 * M)) or 1 << 62
WITHOUT = os.environ.get("SENDRECV_BENCH_WITHOUT")
NCCL = "/x/libnccl.so.2"
HELLO = {
    "op": "hello",
    "schema_version": 1,
    "version": "0.0",
    "backend": "nccl",
    "replay": None,
    "nccl": {"version": "2.28.9", "path": NCCL, "from": "torch"},
    "driver": "13.0",
    "nodes": 1,
    "ranks": 2,
    "gpus": [{"rank": rank, "name": "NVIDIA H200", "host_hash": "h"} for rank in range(2)],
    "can": {"collectives": ["allreduce", "sendrecv", "alltoall"], "load": True},
}


def say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def check_environment() -> None:
    """As the command promises it to the library."""
    assert f"--nccl={PRELOADED}" in sys.argv
    assert os.environ["NCCLTUNE_SENDRECV_NCCL"] == NCCL
    assert os.environ["NCCLTUNE_SENDRECV"] == "1"
    assert os.environ["NCCLTUNE_SENDRECV_FROM"] == "4096"


def time_us(size: int, load: bool) -> float:
    """Beside a load NCCL takes half as much again, copy engines no longer."""
    exact = 8 + size / 150e3
    if load and not OURS:
        exact *= 1.5
    if OURS and WITHOUT != "copies":
        exact *= 1 / 1.3 if size >= CROSSING else 1.3
        if os.environ.get("NCCLTUNE_SENDRECV_POLICY") == "vccl":
            exact *= 1.1
    return exact * math.exp(random.gauss(0, 0.002))


def count(messages: int) -> None:
    way = "NCCL: memory cannot be shared" if WITHOUT == "copies" else "copy engine, pushed"
    line = f"nccltune sendrecv: process {os.getpid()}: {way}: {messages} messages, {messages} bytes"
    with Path(os.environ["NCCLTUNE_SENDRECV_STATS"]).open("a") as file:
        file.write(f"{line}\n")


def main() -> None:
    if not OURS:
        assert os.environ["NCCLTUNE_SENDRECV"] == "0"
    else:
        check_environment()
        if WITHOUT == "setting":
            text = "NCCLTUNE_SENDRECV_FROM='4096' is not 256K to 1024M; using 2M"
            os.write(2, f"h:1 nccltune sendrecv WARN {text}\n".encode())
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "hello":
            say(**HELLO)
        elif request["op"] == "measure":
            for size in request["bytes"]:
                time.sleep(float(os.environ.get("SENDRECV_BENCH_SLOW", "0")))
                say(
                    op="point",
                    id=request["id"],
                    bytes=size,
                    choice="default",
                    round=request["first_round"],
                    iterations=request["iterations"],
                    time_us=time_us(size, request["load"]),
                    load_alone_us=100.0 if request["load"] else None,
                    load_us=(102.0 if OURS else 120.0) if request["load"] else None,
                    wrong=0 if request["check"] else None,
                )
            say(op="done", id=request["id"], points=len(request["bytes"]))
        elif request["op"] == "quit":
            say(op="quit")
            break
    if OURS and WITHOUT != "load":
        count(100)


main()
