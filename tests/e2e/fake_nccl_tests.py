#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what an nccl-tests binary prints (2.19.6), with NCCL's log (2.28.9), from a model of
times: tree is twice as fast as ring to 64 KiB, then the reverse; the default runs ring.

Under a launcher the first process does it, for all. FAKE_NODES nodes of FAKE_RANKS ranks (default:
as many as -g sets, for each process); FAKE_REFUSE `tree/ll`: NCCL
cannot run it; FAKE_IGNORE: NCCL runs ring/simple whatever is forced; FAKE_WRONG `ring/ll`: wrong
results; FAKE_CRASH_AT bytes: ends there in every run that measures; FAKE_SLOW seconds a row.
FAKE_EFFECT `NCCL_X=1:0.8:65536`: from that size on times are so many times as long where NCCL_X is
1, and with a fourth word `:tree/ll` NCCL chooses that there; FAKE_READS `NCCL_X`: NCCL reads it.
NCCL is 2.28.9, or the release in the last library of LD_PRELOAD, or FAKE_VERSION. FAKE_LL128: NCCL
has LL128. Every start is a line in FAKE_STARTS.
"""

import os
import random
import re
import sys
import time
from pathlib import Path

ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
USABLE = {("Tree", "LL"), ("Tree", "Simple"), ("Ring", "LL"), ("Ring", "Simple")}
if "FAKE_LL128" in os.environ:
    USABLE |= {("Tree", "LL128"), ("Ring", "LL128")}
FUNCTIONS = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
}


def option(name: str, default: str) -> str:
    words = sys.argv
    return words[words.index(name) + 1] if name in words else default


STEM = Path(sys.argv[0]).name.partition("_perf")[0]


def bytes_of(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text.rstrip("KMG")) * units.get(text[-1], 1)


def of_launcher(names: str, default: int) -> int:
    return next((int(os.environ[name]) for name in names.split() if name in os.environ), default)


RANK = of_launcher("OMPI_COMM_WORLD_RANK PMI_RANK SLURM_PROCID", 0)
PROCESSES = of_launcher("OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_NTASKS", 1)
RANKS = int(os.environ.get("FAKE_RANKS", PROCESSES * int(option("-g", "1"))))
FORCED = (os.environ.get("NCCL_ALGO", ""), os.environ.get("NCCL_PROTO", ""))
LABEL = "/".join(FORCED).strip("/")
LOOKS = option("-n", "20") == "1"


def usable(function: str, algorithm: str, protocol: str) -> bool:
    if function != "AllReduce" and algorithm != "Ring":
        return False
    if FORCED[0] and algorithm.lower() != FORCED[0] and "FAKE_IGNORE" not in os.environ:
        return False
    return (algorithm, protocol) in USABLE


def runs(size: int) -> tuple[str, str]:
    words = FORCED
    if "FAKE_IGNORE" in os.environ or not LABEL:
        chosen = os.environ.get("FAKE_EFFECT", "").split(":")[3:]
        words = tuple((chosen if chosen and effect(size) != 1 else ["ring/simple"])[0].split("/"))
    algorithm = next(name for name in ALGORITHMS if name.lower() == words[0])
    protocol = next(name for name in PROTOCOLS if name.lower() == words[1])
    return algorithm, protocol


def version() -> str:
    if "FAKE_VERSION" in os.environ:
        return os.environ["FAKE_VERSION"]
    library = os.environ.get("LD_PRELOAD", "").rpartition(":")[2]
    found = re.search(rb"NCCL version ([0-9.]+)", Path(library).read_bytes()) if library else None
    return found[1].decode() if found else "2.28.9"


def time_us(size: int) -> float:
    algorithm, protocol = runs(size)
    ring = 40 + size / 2e3
    exact = (ring / 2 if size <= 1 << 16 else ring * 2) if algorithm == "Tree" else ring
    # Worse than ring/simple everywhere, so that there is one winner.
    return (
        exact
        * effect(size)
        * (1.1 if protocol == "LL" and algorithm == "Ring" else 1.0)
        * (1.05 if protocol == "Simple" and algorithm == "Tree" else 1.0)
        * random.gauss(1, 0.005)
    )


def effect(size: int) -> float:
    setting, factor, first = (os.environ.get("FAKE_EFFECT") or "none=:1:0").split(":")[:3]
    name, _, value = setting.partition("=")
    return float(factor) if os.environ.get(name) == value and size >= int(first) else 1.0


class Log:
    def __init__(self) -> None:
        path = os.environ.get("NCCL_DEBUG_FILE", "")
        self.path = Path(path.replace("%h", "vm").replace("%p", str(os.getpid()))) if path else None
        self.tuning = "TUNING" in os.environ.get("NCCL_DEBUG_SUBSYS", "")

    def __call__(self, text: str) -> None:
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(f"vm:{os.getpid()}:{os.getpid()} [0] NCCL {text}\n")

    def start(self) -> None:
        self(f"INFO NCCL version {version()}+cuda13.0")
        for name in ("NCCL_ALGO", "NCCL_PROTO", *os.environ.get("FAKE_READS", "").split()):
            if name in os.environ:
                self(f"INFO {name} set by environment to {os.environ[name]}")
        nodes = int(os.environ.get("FAKE_NODES", "1"))
        channels = 2 if "FAKE_EFFECT" in os.environ and effect(1 << 40) > 1 else 24
        peers = "4 p2p channels, 4 p2p channels per peer"
        self(f"INFO {channels} coll channels, 0 nvls channels, {peers}")
        self(f"INFO comm 0x1 rank 0 nRanks {RANKS} nNodes {nodes} localRanks 1 localRank 0 MNNVL 0")
        for first in (0, 3, 6) if self.tuning else ():
            names = ALGORITHMS[first : first + 3]
            self("INFO   Algorithm   |" + "".join(f"{name:^50}|" for name in names))
            for function in reversed(FUNCTIONS.values()):
                cells = "".join(
                    f" {26.8:7.1f}/{24.0 if usable(function, name, protocol) else 0.0:6.1f} |"
                    for name in names
                    for protocol in PROTOCOLS
                )
                self(f"INFO {function:>13} |{cells}")

    def call(self, size: int) -> None:
        if self.tuning:
            function = FUNCTIONS[STEM]
            per_task = size // RANKS if function in ("AllGather", "ReduceScatter") else size
            algorithm, protocol = (word.upper() for word in runs(size))
            self(
                f"INFO {function}: {per_task} Bytes -> Algo {algorithm} proto {protocol} "
                "channel{Lo..Hi}={0..1}"
            )


def header() -> None:
    low, high = bytes_of(option("-b", "0")), bytes_of(option("-e", "0"))
    major, minor, patch = map(int, version().split("."))
    code = 10000 * major + 100 * minor + patch
    print(f"# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library={code}")
    print(f"# Collective test starting: {STEM}_perf")
    print(
        f"# nThread 1 nGpus {option('-g', '1')} minBytes {low} maxBytes {high} step: 2(factor) "
        f"warmup iters: 1 iters: {option('-n', '20')} agg iters: 1 "
        f"validation: {option('-c', '1')} graph: 0 unalign: 0\n#\n# Using devices"
    )
    for rank in range(RANKS):
        print(
            f"#  Rank {rank:2} Group  0 Pid {os.getpid():6} on {'vm':>10} device {rank:2} "
            f"[0000:00:{rank + 6:02x}] NVIDIA H200"
        )
    print("#\n#" + " " * 60 + "out-of-place" + " " * 23 + "in-place")
    columns = ("time", "algbw", "busbw", "#wrong")
    group = "".join(f"{column:>8}" for column in columns)
    print(f"# {'size':>11}{'count':>13}{'type':>9}{'redop':>8}{'root':>8} {group} {group}")
    units = f"{'(us)':>8}{'(GB/s)':>8}{'(GB/s)':>8}{'':8}"
    print(f"# {'(B)':>11}{'(elements)':>13}{'':25} {units} {units}")


def row(size: int) -> tuple[int, float]:
    """Print it; how many results are wrong, and its bus bandwidth."""
    per_rank = STEM in ("all_gather", "reduce_scatter")
    reduces = STEM in ("all_reduce", "reduce_scatter", "reduce")
    factor = {"all_reduce": 2 * (RANKS - 1) / RANKS}.get(STEM, 1.0)
    factor = (RANKS - 1) / RANKS if per_rank else factor
    wrong = 3 if LABEL and os.environ.get("FAKE_WRONG") == LABEL else 0
    told = "N/A" if option("-c", "1") == "0" else str(wrong)
    groups, busbw = "", 0.0
    for _ in range(2):
        us = time_us(size)
        algbw = size / us / 1e3
        busbw += algbw * factor / 2
        groups += f"  {us:7.2f}  {algbw:6.2f}  {algbw * factor:6.2f}  {told:>6}"
    count = size // 4 // (RANKS if per_rank else 1)
    redop, root = "sum" if reduces else "none", 0 if STEM in ("broadcast", "reduce") else -1
    print(f"{size:12}  {count:12}  {'float':>8}  {redop:>6}  {root:6}{groups}", flush=True)
    return (wrong if told != "N/A" else 0), busbw


def main() -> int:
    # As nccl-tests does: a line is one write, into which no launcher puts a tag.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    if RANK > 0:
        # Until the first one has ended, like a rank of MPI.
        time.sleep(600 if "FAKE_SLOW" in os.environ and not LOOKS else 0)
        return 0
    if starts := os.environ.get("FAKE_STARTS"):
        with Path(starts).open("a") as file:
            file.write(f"{STEM} {LABEL or 'default'} {' '.join(sys.argv[1:])}\n")
    log = Log()
    log.start()
    header()
    if LABEL and os.environ.get("FAKE_REFUSE") == LABEL:
        log("WARN Error : no algorithm/protocol available for function AllReduce")
        print(f"vm: Test NCCL failure {STEM}.cu:40 'invalid usage / '")
        return 3
    size, wrong, all_busbw = bytes_of(option("-b", "0")), 0, []
    while size <= bytes_of(option("-e", "0")):
        step = 16 * (RANKS if STEM in ("all_gather", "reduce_scatter") else 1)
        aligned = size // step * step
        if not LOOKS and int(os.environ.get("FAKE_CRASH_AT", "0")) == size:
            print("CUDA error: unspecified launch failure", file=sys.stderr)
            return 2
        if not LOOKS:
            time.sleep(float(os.environ.get("FAKE_SLOW", "0")))
        log.call(aligned)
        its_wrong, busbw = row(aligned)
        wrong += its_wrong
        all_busbw.append(busbw)
        size *= 2
    print(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    print(f"# Avg bus bandwidth    : {sum(all_busbw) / len(all_busbw):.6g}\n#")
    print(f"# Collective test concluded: {STEM}_perf")
    return 7 if wrong else 0


sys.exit(main())
