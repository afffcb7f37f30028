# SPDX-License-Identifier: Apache-2.0
"""All-reduce over TCP between ranks that pass for nodes: NCCL's own transport, and plugins.

python benchmarks/net_allreduce.py --program all_reduce_perf --plugin libnccl-net-nccltune.so \
    [--peer NAME=PATH]... [--ranks 2] [--ranks-per-gpu 1] [--rounds 3] [--grid] [--largest 256M] \
    [--nccl DIR] [--json FILE]

Needs GPUs, mpirun (Open MPI) and nccl-tests built with MPI. Every rank is a node of its own
(NCCL_HOSTID) on the loopback, so that all bytes cross TCP; with --ranks-per-gpu, ranks share GPUs
under NVIDIA's MPS daemon. Candidates: NCCL's default, the best of its NCCL_SOCKET_NTHREADS
{1,2,4,8} x NCCL_NSOCKS_PERTHREAD {1,2,4}, also with NCCL_MIN_NCHANNELS {4,8,16} for few of them
(--grid: found by one call of each at 16 MiB and more; else 2 x 1), each peer, and ours without a
setting. A round runs all one after another, each in
processes of its own; of a size the table shows median (min - max) over the rounds.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from common import MIB, rows_of, run, shown, size_text
from net_loopback import (
    DEFAULT,
    Candidate,
    built_in,
    check_network,
    environment,
    mpirun,
    nccltune,
    parse,
    said_by_nccl,
)

SMALL = ("1K", "1M", 100, 20)
LARGE = ("4M", 10, 5)
SECONDS = 300
GRID = [
    *itertools.product((1, 2, 4, 8), (1, 2, 4)),
    *itertools.product((1, 2), (1, 2), (4, 8, 16)),
]
"""Threads, sockets for each thread, and channels."""


@dataclass
class Timings:
    """Of a candidate, by size in bytes the microseconds and GB/s of each round."""

    candidate: Candidate
    micros: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    busbw: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))


def call(args: argparse.Namespace, timings: Timings, span: tuple[str, str, int, int]) -> None:
    """One call of the program; its rows (out of place) are added."""
    first, last, calls, warm_up = span
    program = [args.program, "-b", first, "-e", last, "-f", "4", "-g", "1"]
    program += ["-n", str(calls), "-w", str(warm_up)]
    with tempfile.TemporaryDirectory() as log:
        env = environment(timings.candidate, Path(log), nccl=args.nccl)
        command = mpirun(args.ranks, SECONDS, "", program, args.ranks_per_gpu)
        status, said, complaint = run(command, env, SECONDS)
        check_network(timings.candidate, said_by_nccl(Path(log)))
    for row in rows_of(timings.candidate.name, status, said, complaint):
        timings.micros[row.size].append(row.micros[0])
        timings.busbw[row.size].append(row.busbw[0])


def best_of_grid(args: argparse.Namespace) -> Candidate:
    """The one with the highest geometric mean of busbw at 16 MiB and more."""
    best, most = built_in(2, 1), 0.0
    for setting in GRID:
        timings = Timings(built_in(*setting))
        call(args, timings, ("16M", args.largest, 5, 2))
        mean = statistics.geometric_mean(max(v[0], 1e-3) for v in timings.busbw.values())
        name = timings.candidate.name
        print(f"{name}: {mean:.2f} GB/s at 16 MiB and more", file=sys.stderr)
        if mean > most:
            best, most = timings.candidate, mean
    return best


def table(measured: list[Timings]) -> str:
    """Microseconds below 4 MiB, GB/s from there on, and ours against the default and the best."""
    *others, ours = measured
    names = [timings.candidate.name for timings in measured]
    lines = ["| size | " + " | ".join(names) + " | against the default | against the best |"]
    lines.append("| --- " * (len(names) + 3) + "|")
    for size in sorted(ours.micros):
        large = size >= 4 * MIB
        cells = [shown((c.busbw if large else c.micros)[size]) for c in measured]
        medians = [statistics.median(c.micros[size]) for c in others]
        own = statistics.median(ours.micros[size])
        unit = "GB/s" if large else "us"
        lines.append(
            f"| {size_text(size)}, {unit} | {' | '.join(cells)} "
            f"| {medians[0] / own:.2f}x | {min(medians) / own:.2f}x |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--largest", default="256M", help="size of an all-reduce")
    parser.add_argument("--grid", action="store_true")
    args = parse(parser)

    candidates = [DEFAULT, best_of_grid(args) if args.grid else built_in(2, 1)]
    for peer in args.peer:
        name, path = peer.split("=", 1)
        candidates.append(Candidate(name, {"NCCL_NET_PLUGIN": path, "NCCL_NET": name}))
    measured = [Timings(candidate) for candidate in [*candidates, nccltune(args.plugin)]]
    for _ in range(args.rounds):
        for timings in measured:
            call(args, timings, SMALL)
            first, calls, warm_up = LARGE
            call(args, timings, (first, args.largest, calls, warm_up))
    print(f"n = {args.rounds} rounds, {args.ranks} ranks, {os.cpu_count()} CPUs\n")
    print(table(measured))
    if args.json:
        rows = [
            {
                "candidate": each.candidate.name,
                "settings": each.candidate.settings,
                "us": each.micros,
                "busbw_gb_s": each.busbw,
            }
            for each in measured
        ]
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
