# SPDX-License-Identifier: Apache-2.0
"""A bench that misbehaves, as the real one does only when hardware fails.

stand_in.py MODE FOLDER [options of nccltune-bench]

Every process leaves its process number in FOLDER.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

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
    "gpus": [{"rank": 0, "name": "GPU", "host_hash": "h"}, {"rank": 1, "name": "GPU"}],
    "can": {"collectives": ["allreduce"]},
    "something": "new",
}


def say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def fail(status: int, *lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr, flush=True)
    sys.exit(status)


def point(request: dict[str, object], size: int, **more: object) -> None:
    say(op="point", id=request["id"], bytes=size, choice="default", **more)


def answer(mode: str, request: dict[str, object]) -> None:
    sizes = request["bytes"]
    assert isinstance(sizes, list)
    for size in sizes:
        point(request, size, time_us=10.5, times_us=[10.5, 9.0], iterations=20)
    if mode == "stuck":
        time.sleep(600)
    if mode == "crash":
        os.kill(os.getpid(), 11)
    if mode == "timeout":
        stuck = {"kind": "timeout", "text": "allreduce of 8 bytes is stuck: rank 1", "rank": 1}
        point(request, 8, error=stuck)
        fail(4, "error: allreduce of 8 bytes is stuck: rank 1")
    if mode == "died":
        say(op="error", id=request["id"], kind="died", text="rank 1 died", hint="look at it")
        fail(4, "error: something else")
    if mode == "strange":
        print("this is not JSON", flush=True)
    if mode == "refused":
        say(op="error", id=request["id"], kind="request", text="'bytes' must hold integers")
    say(op="done", id=request["id"], points=len(sizes))


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


def written(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def running(pid: str) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def follow(mode: str, folder: Path) -> None:
    """End soon after process 0, as real processes do, or stay."""
    leader = folder / "0.pid"
    until(lambda: written(leader))
    until(lambda: mode != "leaves-others" and not running(leader.read_text()))


def main() -> None:
    mode, folder = sys.argv[1], Path(sys.argv[2])
    rank = next((a.partition("=")[2] for a in sys.argv if a.startswith("--rank=")), "0")
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    if rank != "0":
        follow(mode, folder)
        return
    if mode == "no-gpu":
        fail(3, "error: no libnccl.so.2 was found", "hint:  name one with --nccl")
    if mode == "bad":
        fail(2, "error: /no/study: no such study")
    if mode == "refused-node":
        fail(
            255,
            "ssh: connect to host b port 22: Connection refused",
            "-" * 70,
            "ORTE was unable to reliably start one or more daemons.",
            "command terminated with exit code 255",
        )
    if mode == "leaves-others":
        until(lambda: written(folder / "1.pid"))
        fail(4, "error: cannot listen")
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "hello":
            say(**HELLO)
        elif request["op"] == "measure":
            answer(mode, request)
        elif request["op"] == "quit":
            say(op="quit")
            return


main()
