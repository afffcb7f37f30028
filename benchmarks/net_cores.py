# SPDX-License-Identifier: Apache-2.0
"""Measure all-reduce over TCP on few CPU cores: NCCL's own transport against the plugin.

python benchmarks/net_cores.py --program all_reduce_perf --plugin libnccl-net-nccltune.so \\
    [--cores 2,4,8] [--grid default,1x1,2x1,2x2,4x1,4x4] [--variant NAME:KEY=VALUE,...]... \\
    [--rounds 3] [--ranks-per-gpu 1] [--busy 1] [--nccl DIR] [--json FILE]

Needs GPUs, mpirun (Open MPI), taskset and nccl-tests built with MPI. Two ranks pass for nodes
(NCCL_HOSTID) on the loopback; rank r is bound to cores [r * cores, (r + 1) * cores) of those that
this process may use. With --ranks-per-gpu 2 both ranks share GPU 0 under NVIDIA's MPS daemon.

Candidates: NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD (--grid), the plugin without a setting, and
the plugin with other settings (--variant). One round runs every candidate once, each in new
processes. With --busy, that many processes spin on the cores of each rank, as data loaders
do. The table shows the median time (min - max) over the rounds, and the best of the grid
divided by the plugin: more than 1 means that the plugin is faster. CPU seconds are user and system
time of both ranks for each GB that all ranks send, measured as the difference of two runs of
64 MiB that differ only in the number of operations. The JSON also has the seconds that the host of
a virtual machine took from its CPUs in each run (steal_s).
"""

import argparse
import os
import resource
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import MIB, machine, read_row, run, save, shown, size_text, tests_version
from net_loopback import (
    DEFAULT,
    Candidate,
    built_in,
    check_network,
    environment,
    mpirun,
    nccltune,
    numbers,
    parse,
    said_by_nccl,
)

RANKS = 2
SECONDS = 200.0
# First and last size, operations, operations before the first timed one.
SPANS = [("64K", "1M", 100, 20), ("4M", "256M", 10, 5)]
QUICK = [("64K", "64M", 20, 5)]
CPU_SIZE = "64M"
CPU_OPERATIONS = (5, 45)


@dataclass
class Timings:
    """The results of one candidate on one number of cores."""

    candidate: Candidate
    micros: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    cpu_s_per_gb: list[float] = field(default_factory=list)
    steal_s: list[float] = field(default_factory=list)
    nccl: dict[str, Any] = field(default_factory=dict)


def stolen_s() -> float:
    """Return the seconds that the host took from all CPUs since the start of this machine."""
    # man 5 proc_stat: user nice system idle iowait irq softirq steal, in clock ticks.
    ticks = int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8])
    return ticks / os.sysconf("SC_CLK_TCK")


def cores_of(rank: int, cores: int) -> str:
    """Return the cores of a rank, as taskset takes them. Ranks share cores where there are few."""
    usable = sorted(os.sched_getaffinity(0))
    places = range(rank * cores, (rank + 1) * cores)
    return ",".join(map(str, sorted({usable[place % len(usable)] for place in places})))


def call(
    args: argparse.Namespace, cores: int, timings: Timings, span: tuple[str, str, int, int]
) -> tuple[dict[int, float], float]:
    """Run the program once; return the mean time in us by size, and CPU seconds of both ranks."""
    first, last, operations, warm_up = span
    program = [args.program, "-b", first, "-e", last, "-f", "4", "-g", "1"]
    program += ["-n", str(operations), "-w", str(warm_up), "-c", str(int(args.check))]
    lists = " ".join(cores_of(rank, cores) for rank in range(RANKS))
    before = f"lists=({lists}); cores=${{lists[$OMPI_COMM_WORLD_RANK]}}; "
    if args.busy:
        spin = 'taskset -c "$cores" sh -c "while :; do :; done"'
        before += f"for i in $(seq {args.busy}); do {spin} &> /dev/null & done; "
    before += 'set -- taskset -c "$cores" "$@"; '
    with tempfile.TemporaryDirectory() as name:
        env = environment(timings.candidate, Path(name), nccl=args.nccl)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = mpirun(RANKS, SECONDS, before, program, args.ranks_per_gpu)
        stolen = stolen_s()
        status, output, errors = run(command, env, SECONDS)
        timings.steal_s.append(round(stolen_s() - stolen, 2))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        timings.nccl = said_by_nccl(Path(name)) | {"nccl-tests": tests_version(output)}
        rows = [row for row in map(read_row, output.splitlines()) if row]
        if status != 0 or not rows or any(row.wrong for row in rows):
            warnings = "\n".join(timings.nccl["warnings"][-5:])
            sys.exit(
                f"error: {timings.candidate.name}: {output[-2000:]}\n{errors[-2000:]}\n{warnings}"
            )
        check_network(timings.candidate, timings.nccl)
    cpu_s = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return {row.size: statistics.mean(row.micros) for row in rows}, cpu_s


def measure(args: argparse.Namespace, cores: int, timings: Timings) -> None:
    for span in QUICK if args.quick else SPANS:
        micros, _ = call(args, cores, timings, span)
        for size, value in micros.items():
            timings.micros[size].append(value)
    if args.cpu:
        few, many = (
            call(args, cores, timings, (CPU_SIZE, CPU_SIZE, operations, 2))[1]
            for operations in CPU_OPERATIONS
        )
        # Out of place and in place; each rank sends 2 (n - 1) / n of the bytes.
        operations = 2 * (CPU_OPERATIONS[1] - CPU_OPERATIONS[0])
        gb = operations * 64 * MIB * 2 * (RANKS - 1) / 1e9
        timings.cpu_s_per_gb.append((many - few) / gb)


def table(measured: list[Timings], grid: int) -> str:
    """Times by size; the first `grid` candidates are the built-in transport's."""
    built_ins, ours = measured[:grid], measured[grid:]
    names = [each.candidate.name for each in measured]
    ratios = [f"best built-in / {each.candidate.name}" for each in ours]
    lines = ["| size | " + " | ".join(names + ratios) + " |"]
    lines.append("| --- " * (1 + len(names) + len(ratios)) + "|")
    for size in sorted(measured[0].micros):
        cells = [shown(each.micros[size]) for each in measured]
        if built_ins:
            best = min(statistics.median(each.micros[size]) for each in built_ins)
            cells += [f"{best / statistics.median(each.micros[size]):.2f}x" for each in ours]
        lines.append(f"| {size_text(size)}, us | {' | '.join(cells)} |")
    if all(each.cpu_s_per_gb for each in measured):
        cells = [shown(each.cpu_s_per_gb) for each in measured] + [""] * len(ratios)
        lines.append(f"| CPU s a GB at 64 MiB | {' | '.join(cells)} |")
    return "\n".join(lines)


def variant(plugin: str, text: str) -> Candidate:
    """NAME:KEY=VALUE,KEY=VALUE; the key `plugin` names another library."""
    name, _, words = text.partition(":")
    settings = dict(word.split("=", 1) for word in words.split(",") if word)
    return nccltune(settings.pop("plugin", plugin), name, **settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--cores", default="2,4,8", help="cores of a rank")
    parser.add_argument(
        "--grid", default="default,1x1,2x1,2x2,4x1,4x4", help="default, THREADSxSOCKETS"
    )
    parser.add_argument("--variant", action="append", default=[], metavar="NAME:KEY=VALUE,...")
    parser.add_argument("--quick", action="store_true", help="fewer operations, up to 64 MiB")
    parser.add_argument("--busy", type=int, default=0, help="spinning processes beside each rank")
    parser.add_argument("--cpu", action="store_true", help="measure CPU seconds a GB, too")
    parser.add_argument("--check", action="store_true", help="let nccl-tests check the contents")
    args = parse(parser)

    grid = [
        DEFAULT if text == "default" else built_in(*numbers(text))
        for text in args.grid.split(",")
        if text
    ]
    candidates = [*grid, nccltune(args.plugin)]
    candidates += [variant(args.plugin, text) for text in args.variant]
    result: dict[str, Any] = {"machine": machine(), "rounds": args.rounds, "cores": {}}
    for cores in map(int, args.cores.split(",")):
        measured = [Timings(candidate) for candidate in candidates]
        for number in range(args.rounds):
            for timings in measured:
                measure(args, cores, timings)
                print(
                    f"{cores} cores, round {number + 1}: {timings.candidate.name}", file=sys.stderr
                )
                result["cores"][cores] = [
                    {
                        "candidate": each.candidate.name,
                        "settings": each.candidate.settings,
                        "us_by_bytes": each.micros,
                        "cpu_s_per_gb": each.cpu_s_per_gb,
                        "steal_s": each.steal_s,
                        "nccl": each.nccl,
                    }
                    for each in measured
                ]
                save(args.json, result)
        print(f"\n{cores} cores a rank, n = {args.rounds} rounds, {RANKS} ranks\n")
        print(table(measured, len(grid)), flush=True)


if __name__ == "__main__":
    main()
