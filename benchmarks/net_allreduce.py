# SPDX-License-Identifier: Apache-2.0
"""All-reduce over TCP between ranks that pass for nodes: NCCL's own transport, and plugins.

python benchmarks/net_allreduce.py --program all_reduce_perf --plugin libnccl-net-nccltune.so \
    [--peer NAME=PATH]... [--ranks 2] [--rounds 3] [--grid] [--nccl DIR] [--json FILE]

Needs GPUs, mpirun (Open MPI) and nccl-tests built with MPI. Every rank is a node of its own
(NCCL_HOSTID) on the loopback, so that all bytes cross TCP. Candidates: NCCL's default, the best of
its NCCL_SOCKET_NTHREADS {1,2,4,8} x NCCL_NSOCKS_PERTHREAD {1,2,4} (--grid: found by one call of
each at 16 MiB and more; else 2 x 1), each peer, and ours without a setting. A round runs all in
turn, each in processes of its own; of a size the table shows median (min - max) over the rounds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from net_loopback import MIB, NODES, shown, size_text

SMALL = ("1K", "1M", 100, 20)
LARGE = ("4M", "256M", 10, 5)
# `exec` so that nothing stands between mpirun and the program.
RANK = 'export NCCL_HOSTID=node$OMPI_COMM_WORLD_RANK; exec "$@"'


@dataclass
class Candidate:
    """What a user could choose, and by size in bytes the microseconds and GB/s of each round."""

    name: str
    settings: dict[str, str]
    micros: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    busbw: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))


def call(args: argparse.Namespace, candidate: Candidate, span: tuple[str, str, int, int]) -> None:
    """One call of the program; its rows are added."""
    first, last, calls, warm_up = span
    environment = os.environ | NODES | candidate.settings
    if args.nccl:
        environment["LD_LIBRARY_PATH"] = f"{args.nccl}:{environment.get('LD_LIBRARY_PATH', '')}"
    command = ["mpirun", "--allow-run-as-root", "-np", str(args.ranks), "--bind-to", "none"]
    command += ["bash", "-c", RANK, "rank", args.program, "-b", first, "-e", last, "-f", "4"]
    command += ["-n", str(calls), "-w", str(warm_up), "-g", "1"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    rows = 0
    for line in done.stdout.splitlines():
        words = line.split()
        # size count type redop root, then time algbw busbw #wrong out of place
        if len(words) < 9 or not words[0].isdigit() or words[2] != "float":
            continue
        if words[8] not in ("0", "N/A"):
            sys.exit(f"error: {candidate.name}: {words[8]} wrong elements at {words[0]} bytes")
        candidate.micros[int(words[0])].append(float(words[5]))
        candidate.busbw[int(words[0])].append(float(words[7]))
        rows += 1
    if done.returncode != 0 or rows == 0:
        sys.exit(f"error: {candidate.name}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def built_in(threads: int, sockets: int) -> Candidate:
    """NCCL's own transport with so many threads, and sockets for each."""
    settings = {"NCCL_SOCKET_NTHREADS": str(threads), "NCCL_NSOCKS_PERTHREAD": str(sockets)}
    return Candidate(f"built-in {threads} x {sockets}", settings)


def best_of_grid(args: argparse.Namespace) -> Candidate:
    """The one with the highest geometric mean of busbw at 16 MiB and more."""
    best, most = built_in(2, 1), 0.0
    for threads in (1, 2, 4, 8):
        for sockets in (1, 2, 4):
            candidate = built_in(threads, sockets)
            call(args, candidate, ("16M", "256M", 5, 2))
            mean = statistics.geometric_mean(max(v[0], 1e-3) for v in candidate.busbw.values())
            print(f"{candidate.name}: {mean:.2f} GB/s at 16 MiB and more", file=sys.stderr)
            if mean > most:
                best, most = built_in(threads, sockets), mean
    return best


def table(candidates: list[Candidate]) -> str:
    """Microseconds below 4 MiB, GB/s from there on, and ours against the default and the best."""
    *others, ours = candidates
    names = [candidate.name for candidate in candidates]
    lines = ["| size | " + " | ".join(names) + " | against the default | against the best |"]
    lines.append("| --- " * (len(names) + 3) + "|")
    for size in sorted(ours.micros):
        large = size >= 4 * MIB
        cells = [shown((c.busbw if large else c.micros)[size]) for c in candidates]
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
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--nccl", help="folder of the libnccl.so.2 to use")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()

    candidates = [Candidate("default", {}), best_of_grid(args) if args.grid else built_in(2, 1)]
    for peer in args.peer:
        name, path = peer.split("=", 1)
        candidates.append(Candidate(name, {"NCCL_NET_PLUGIN": path, "NCCL_NET": name}))
    ours = {"NCCL_NET_PLUGIN": str(Path(args.plugin).resolve()), "NCCL_NET": "nccltune"}
    candidates.append(Candidate("nccltune", ours))
    for _ in range(args.rounds):
        for candidate in candidates:
            call(args, candidate, SMALL)
            call(args, candidate, LARGE)
    print(f"n = {args.rounds} rounds, {args.ranks} ranks, {os.cpu_count()} CPUs\n")
    print(table(candidates))
    if args.json:
        rows = [
            {"candidate": c.name, "settings": c.settings, "us": c.micros, "busbw_gb_s": c.busbw}
            for c in candidates
        ]
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
