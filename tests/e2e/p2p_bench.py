#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speaks nccltune-bench's conversation; settings of send/recv matter to it. `P2P_BENCH_SLOW` makes
every answer take so many seconds, `P2P_BENCH_FAIL` names a setting (NAME=VALUE) it cannot start
with. Writes NCCL's lines of a start to NCCL_DEBUG_FILE."""

import json
import math
import os
import random
import sys
import time
from pathlib import Path

K, M = 1 << 10, 1 << 20


def setting(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


CHANNELS = max(32, setting("NCCL_MIN_P2P_NCHANNELS", 1))
CHUNK = min(setting("NCCL_P2P_NVL_CHUNKSIZE", 512 * K), setting("NCCL_BUFFSIZE", 4 * M) // 8)
HELLO = {
    "op": "hello",
    "schema_version": 1,
    "version": "0.0",
    "backend": "nccl",
    "replay": None,
    "nccl": {"version": "2.28.9", "path": "/x/libnccl.so.2", "from": "torch"},
    "driver": "13.0",
    "nodes": 1,
    "ranks": 2,
    "gpus": [{"rank": rank, "name": "NVIDIA H200", "host_hash": "h"} for rank in range(2)],
    "can": {"collectives": ["allreduce", "sendrecv", "alltoall"]},
}


def say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def time_us(collective: str, size: int) -> float:
    exact = 8 + size / 150e3
    if collective != "allreduce" and 4 * M <= size <= 64 * M and CHANNELS == 64:
        exact /= 1.5
    return exact * math.exp(random.gauss(0, 0.002))


def main() -> None:
    refused = os.environ.get("P2P_BENCH_FAIL", "=")
    name, _, value = refused.partition("=")
    if os.environ.get(name) == value:
        # At once, because all ranks write into one pipe.
        os.write(2, b"error: NCCL: unhandled system error\n")
        sys.exit(4)
    if path := os.environ.get("NCCL_DEBUG_FILE"):
        with Path(path.replace("%h", "host").replace("%p", str(os.getpid()))).open("w") as file:
            file.write(f"h:1:1 [0] NCCL INFO P2P Chunksize set to {CHUNK}\n")
            file.write(
                "h:1:1 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, "
                f"{CHANNELS} p2p channels, {CHANNELS} p2p channels per peer\n"
            )
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "hello":
            say(**HELLO)
        elif request["op"] == "measure":
            for size in request["bytes"]:
                time.sleep(float(os.environ.get("P2P_BENCH_SLOW", "0")))
                say(
                    op="point",
                    id=request["id"],
                    bytes=size,
                    choice="default",
                    round=request["first_round"],
                    iterations=request["iterations"],
                    time_us=time_us(request["collective"], size),
                    wrong=0 if request["check"] else None,
                )
            say(op="done", id=request["id"], points=len(request["bytes"]))
        elif request["op"] == "quit":
            say(op="quit")
            return


main()
