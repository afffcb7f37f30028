# SPDX-License-Identifier: Apache-2.0
"""A ring of sends and receives between the GPUs of a node: native NCCL, and copy engines.

python benchmarks/sendrecv_ring.py --program sendrecv_perf --library libnccltune-sendrecv.so \\
    [--candidate NAME:VARIABLE=VALUE,...]... [--gpus 4] [--rounds 5] [--from 1K] [--to 8G] \\
    [--cores 4,12,20,28] [--nccl DIR] [--json FILE]

Needs GPUs, mpirun (Open MPI) and nccl-tests built with MPI: a process a GPU, each sends to the next
and receives from the one before, in one group. A round runs all candidates, one after the other,
each in processes of its own; of a size the table shows median (min - max) over the rounds, and by
how much ours is faster than each: the ratio of the medians. --cores keeps each rank on a core of
its own: what small messages cost is their calls, and otherwise varies by half from start to start.
"""

import argparse
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import (
    MIB,
    bytes_of,
    exit_on_term,
    machine,
    mpirun,
    rows_of,
    run,
    save,
    shown,
    size_text,
    tests_version,
    told,
)
from sendrecv_candidates import Candidate, candidate_options, candidates, environment

# Bytes up to which so many calls are timed after so many others.
SPANS = ((MIB, 100, 20), (64 * MIB, 40, 8), (8192 * MIB, 8, 4))
SECONDS = 300
# Behind it: cores by local rank, and the command.
PINNED = (
    "bash",
    "-c",
    'IFS=, read -ra cores <<< "$0"; exec taskset -c "${cores[OMPI_COMM_WORLD_LOCAL_RANK]}" "$@"',
)


@dataclass
class Timings:
    """Of a candidate, by size in bytes the microseconds of each round."""

    candidate: Candidate
    micros: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    version: str | None = None


def call(args: argparse.Namespace, timings: Timings, first: int, last: int, times: Any) -> None:
    """One call of the program; its rows are added."""
    calls, warm_up = times
    words = [args.program, "-b", str(first), "-e", str(last), "-f", "2", "-g", "1"]
    words += ["-n", str(calls), "-w", str(warm_up)]
    if args.cores:
        words = [*PINNED, args.cores, *words]
    name, env = timings.candidate.name, environment(args, timings.candidate)
    status, said, complaint = run(mpirun(args.gpus, SECONDS, words), env, SECONDS + 10)
    rows = rows_of(name, status, said, complaint)
    timings.version = tests_version(said)
    if complaint.strip():
        print(f"{name}: {complaint.strip()[-600:]}", file=sys.stderr)
    for row in rows:
        timings.micros[row.size].append(row.micros[0])


def spans(first: int, last: int) -> list[tuple[int, int, tuple[int, int]]]:
    """First and last size of each call, with how often it is timed."""
    found, start = [], first
    for most, calls, warm_up in SPANS:
        if start <= min(most, last):
            found.append((start, min(most, last), (calls, warm_up)))
            start = 2 * most
    return found


def table(measured: list[Timings]) -> str:
    *others, ours = measured
    names = [f"{timings.candidate.name}, us" for timings in measured]
    against = [f"against {timings.candidate.name}" for timings in others]
    lines = ["| size | " + " | ".join([*names, "GB/s", *against]) + " |"]
    lines.append("| --- " * (len(names) + len(against) + 2) + "|")
    for size in sorted(ours.micros):
        own = statistics.median(ours.micros[size])
        cells = [shown(each.micros[size]) for each in measured]
        cells.append(f"{size / own / 1e3:.4g}")
        cells += [f"{statistics.median(each.micros[size]) / own:.2f}x" for each in others]
        lines.append(f"| {size_text(size)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True)
    candidate_options(parser)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--from", dest="first", type=bytes_of, default=1 << 10)
    parser.add_argument("--to", dest="last", type=bytes_of, default=8 << 30)
    parser.add_argument("--cores")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.cores and len(args.cores.split(",")) < args.gpus:
        parser.error(f"--cores names fewer than {args.gpus} cores")
    exit_on_term()

    facts, measured = machine(), [Timings(candidate) for candidate in candidates(args)]
    for number in range(args.rounds):
        for timings in measured:
            for first, last, times in spans(args.first, args.last):
                call(args, timings, first, last, times)
            print(f"round {number + 1}, {timings.candidate.name}: done", file=sys.stderr)
        rows = [
            {
                "candidate": each.candidate.name,
                "settings": each.candidate.settings,
                "us": each.micros,
            }
            for each in measured
        ]
        save(args.json, {"machine": facts, "gpus": args.gpus, "candidates": rows})
    print(told(facts | {"nccl-tests": measured[0].version}), end="\n\n")
    print(f"n = {args.rounds} rounds, {args.gpus} GPUs\n")
    print(table(measured))


if __name__ == "__main__":
    main()
