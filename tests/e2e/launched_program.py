#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands in for nccl-tests with MPI: each process writes where it runs to PLACES/RANK, and rank 0
prints the table of all, from the third row on one each LAUNCHED_SLOW seconds, after which the
others do not end, but with LAUNCHED_ENDS. LAUNCHED_CRASH: rank 1 ends with 3.
LAUNCHED_HALF: of the third row only the first half comes, and nothing more.

What a process sees of its environment goes to PLACES/RANK, too (LAUNCHED_TOLD names variables).
"""

import json
import os
import socket
import sys
import time
from pathlib import Path


def first(*names: str, default: str) -> int:
    return int(next((os.environ[name] for name in names if name in os.environ), default))


def main() -> int:
    # As nccl-tests does: a line is one write, into which no launcher puts a tag.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    if "FAKE_HOST" in os.environ and os.environ.pop("_NCCLTUNE_RUN", None):
        # hydra hands it on to hosts, where nobody who looks for it sees it.
        os.execv(sys.executable, [sys.executable, *sys.argv])
    rank = first("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", default="0")
    size = first("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", default="1")
    local = first("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", default="0")
    gpus = int(sys.argv[sys.argv.index("-g") + 1])
    places = Path(os.environ["PLACES"])
    host = os.environ.get("FAKE_HOST", os.environ.get("SLURMD_NODENAME", socket.gethostname()))
    told = {name: os.environ.get(name) for name in os.environ.get("LAUNCHED_TOLD", "").split()}
    own = {"rank": rank, "local": local, "host": host, "pid": os.getpid(), "told": told}
    own["cores"] = sorted(os.sched_getaffinity(0))
    half = places / f"{rank}.half"
    half.write_text(json.dumps(own))
    half.rename(places / str(rank))
    if rank == 1 and "LAUNCHED_CRASH" in os.environ:
        print("vm: Test CUDA failure common.cu:1 'out of memory'", flush=True)
        # mpirun of Open MPI 4 drops what it has not read when a process ends so.
        time.sleep(0.5)
        return 3
    until = time.monotonic() + 120
    while any(not (places / str(other)).exists() for other in range(size)):
        if time.monotonic() > until:
            return 9
        time.sleep(0.01)
    if rank == 0:
        table(places, size, gpus)
    elif "LAUNCHED_ENDS" not in os.environ and (
        "LAUNCHED_SLOW" in os.environ or "LAUNCHED_CRASH" in os.environ
    ):
        time.sleep(600)
    return 0


def table(places: Path, size: int, gpus: int) -> None:
    slow = float(os.environ.get("LAUNCHED_SLOW", "0"))
    print("# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809")
    print("# Collective test starting: all_reduce_perf")
    print(
        f"# nThread 1 nGpus {gpus} minBytes 1024 maxBytes 8192 step: 2(factor) warmup iters: 1 "
        "iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0\n#\n# Using devices"
    )
    for process in range(size):
        own = json.loads((places / str(process)).read_text())
        for gpu in range(gpus):
            device = own["local"] * gpus + gpu
            print(
                f"#  Rank {process * gpus + gpu:2} Group  0 Pid {own['pid']:6} on "
                f"{own['host']:>10} device {device:2} [0000:00:{device + 6:02x}] NVIDIA H200"
            )
    print("#\n#" + " " * 60 + "out-of-place" + " " * 23 + "in-place")
    group = "".join(f"{column:>8}" for column in ("time", "algbw", "busbw", "#wrong"))
    print(f"# {'size':>11}{'count':>13}{'type':>9}{'redop':>8}{'root':>8} {group} {group}")
    units = f"{'(us)':>8}{'(GB/s)':>8}{'(GB/s)':>8}{'':8}"
    print(f"# {'(B)':>11}{'(elements)':>13}{'':25} {units} {units}", flush=True)
    ranks = size * gpus
    factor = 2 * (ranks - 1) / ranks
    bytes_, busbws = 1024, []
    while bytes_ <= 8192:
        us = 10 + bytes_ / 1000
        algbw = bytes_ / us / 1e3
        cells = f"  {us:7.2f}  {algbw:6.2f}  {algbw * factor:6.2f}  {0:>6}" * 2
        row = f"{bytes_:12}  {bytes_ // 4:12}  {'float':>8}  {'sum':>6}  {-1:6}{cells}"
        if bytes_ == 4096 and "LAUNCHED_HALF" in os.environ:
            print(row[: len(row) * 2 // 3], end="", flush=True)
            (places / "cut").touch()
            time.sleep(600)
        print(row, flush=True)
        busbws.append(round(algbw * factor, 2))
        if bytes_ > 1024:
            time.sleep(slow)
        bytes_ *= 2
    mean = sum(busbws) / len(busbws)
    print(f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {mean:g}\n#")
    print("# Collective test concluded: all_reduce_perf", flush=True)


sys.exit(main())
