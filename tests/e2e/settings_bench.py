#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speaks nccltune-bench's conversation for two GPUs on which settings matter.

Without NCCLTUNE_SENDRECV, 64 channels of NCCL's send/recv are faster. It cannot start with the
setting that BENCH_FAIL names (NAME=VALUE).

With NCCLTUNE_SENDRECV, the library before NCCL, which it finds in its environment as a real one
would: copy engines are faster from BENCH_CROSSING bytes on (2M, 0 for never). BENCH_WITHOUT names
what the library lacks: `copies` (none happen), `load` (it is not in the process), `setting` (one is
refused). BENCH_SLOW makes every answer take so many seconds.
"""

import json
import math
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

M = 1 << 20
COPIES = "NCCLTUNE_SENDRECV" in os.environ
PRELOADED = os.environ.get("LD_PRELOAD", "").split(":")[0]
OURS = COPIES and PRELOADED.endswith("libnccltune-sendrecv.so")
CROSSING = int(os.environ.get("BENCH_CROSSING", 2 * M)) or 1 << 62
WITHOUT = os.environ.get("BENCH_WITHOUT")
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
    "can": {"collectives": ["allreduce", "sendrecv", "alltoall"], "load": COPIES},
}


def say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def start_of_nccl() -> None:
    name, _, value = os.environ.get("BENCH_FAIL", "=").partition("=")
    if os.environ.get(name) == value:
        # At once, because all ranks write into one pipe.
        os.write(2, b"error: NCCL: unhandled system error\n")
        sys.exit(4)
    if path := os.environ.get("NCCL_DEBUG_FILE"):
        text = "24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p"
        with Path(path.replace("%h", "host").replace("%p", str(os.getpid()))).open("w") as file:
            file.write(f"h:1:1 [0] NCCL INFO {text} channels per peer\n")


def start_of_library() -> None:
    """Check the environment, as the command promises it to the library."""
    if not OURS:
        assert os.environ["NCCLTUNE_SENDRECV"] == "0"
        return
    assert f"--nccl={PRELOADED}" in sys.argv
    assert os.environ["NCCLTUNE_SENDRECV_NCCL"] == NCCL
    assert os.environ["NCCLTUNE_SENDRECV"] == "1"
    assert os.environ["NCCLTUNE_SENDRECV_FROM"] == "4096"
    if WITHOUT == "setting":
        text = "NCCLTUNE_SENDRECV_FROM='4096' is not 256K to 1024M; using 2M"
        os.write(2, f"h:1 nccltune sendrecv WARN {text}\n".encode())


def time_us(size: int, load: bool) -> float:
    """Beside a load NCCL takes half as much again, copy engines no longer."""
    exact = 8 + size / 150e3
    if not COPIES and os.environ.get("NCCL_MIN_P2P_NCHANNELS") == "64":
        exact /= 1.5
    if load and not OURS:
        exact *= 1.5
    if OURS and WITHOUT != "copies":
        exact *= 1 / 1.3 if size >= CROSSING else 1.3
    return exact * math.exp(random.gauss(0, 0.002))


def measure(request: dict[str, Any]) -> None:
    load = request.get("load", False)
    for size in request["bytes"]:
        time.sleep(float(os.environ.get("BENCH_SLOW", "0")))
        say(
            op="point",
            id=request["id"],
            bytes=size,
            choice="default",
            round=request["first_round"],
            iterations=request["iterations"],
            time_us=time_us(size, load),
            load_alone_us=100.0 if load else None,
            load_us=(102.0 if OURS else 120.0) if load else None,
            wrong=0 if request["check"] else None,
        )
    say(op="done", id=request["id"], points=len(request["bytes"]))


def count(messages: int) -> None:
    way = "NCCL: memory cannot be shared" if WITHOUT == "copies" else "copy engine, pushed"
    line = f"nccltune sendrecv: process {os.getpid()}: {way}: {messages} messages, {messages} bytes"
    with Path(os.environ["NCCLTUNE_SENDRECV_STATS"]).open("a") as file:
        file.write(f"{line}\n")


def main() -> None:
    start_of_library() if COPIES else start_of_nccl()
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "hello":
            say(**HELLO)
        elif request["op"] == "measure":
            measure(request)
        elif request["op"] == "quit":
            say(op="quit")
            break
    if OURS and WITHOUT != "load":
        count(100)


main()
