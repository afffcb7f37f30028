#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speaks nccltune-bench's conversation for two GPUs on which settings matter.

Without NCCLTUNE_SENDRECV, 64 channels of NCCL's send/recv are faster. It cannot start with the
setting that BENCH_FAIL names (NAME=VALUE), and writes NCCL's lines of a start to NCCL_DEBUG_FILE,
and BENCH_TOPOLOGY to NCCL_TOPO_DUMP_FILE. NCCL is 2.28.9, or the release in --nccl; 2.32.3 is
slower outside of CUDA graphs, and runs 4 channels there instead of 2.

With NCCLTUNE_SENDRECV, the library before NCCL, which it finds in its environment as a real one
would: copy engines are faster from BENCH_CROSSING bytes on (2M, 0 for never). BENCH_WITHOUT names
what the library lacks: `copies` (none happen), `load` (it is not in the process), `setting` (one is
refused). BENCH_SLOW makes every answer take so many seconds. Calls in a CUDA graph take half as
long. BENCH_UNABLE names a kind of calls that it cannot make.
"""

import json
import math
import os
import random
import re
import shutil
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
LIBRARY = Path(next((word[7:] for word in sys.argv if word.startswith("--nccl=")), NCCL))
RELEASE = re.search(rb"NCCL version ([0-9.]+)", LIBRARY.read_bytes() if LIBRARY.is_file() else b"")
VERSION = RELEASE[1].decode() if RELEASE else "2.28.9"
HELLO = {
    "op": "hello",
    "schema_version": 1,
    "version": "0.0",
    "backend": "nccl",
    "replay": None,
    "nccl": {"version": VERSION, "path": NCCL, "from": "torch"},
    "driver": "13.0",
    "nodes": 1,
    "ranks": 2,
    "gpus": [{"rank": rank, "name": "NVIDIA H200", "host_hash": "h"} for rank in range(2)],
    "can": {
        "collectives": ["allreduce", "sendrecv", "alltoall"],
        "load": COPIES,
        **{name: name != os.environ.get("BENCH_UNABLE") for name in ("registered", "graph")},
    },
}


def say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def start_of_nccl() -> None:
    name, _, value = os.environ.get("BENCH_FAIL", "=").partition("=")
    if os.environ.get(name) == value:
        # At once, because all ranks write into one pipe.
        os.write(2, b"error: NCCL: unhandled system error\n")
        sys.exit(4)
    if path := os.environ.get("NCCL_TOPO_DUMP_FILE"):
        shutil.copy(os.environ["BENCH_TOPOLOGY"], path)
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
    load, graph = request.get("load", False), request["graph"]
    slow = VERSION == "2.32.3" and not graph
    for size in request["bytes"]:
        time.sleep(float(os.environ.get("BENCH_SLOW", "0")))
        say(
            op="point",
            id=request["id"],
            bytes=size,
            choice="default",
            round=request["first_round"],
            iterations=request["iterations"],
            ran={"algorithm": "ring", "protocol": "ll", "channels": 4 if slow else 2},
            time_us=time_us(size, load) * (0.5 if graph else 1 + 0.3 * slow),
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
