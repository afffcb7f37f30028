# SPDX-License-Identifier: Apache-2.0
"""CPU seconds for each GB that an all-reduce moves over TCP, against its throughput.

python benchmarks/net_cpu.py --program all_reduce_perf --plugin libnccl-net-nccltune.so \\
    [--sizes 64M,256M] [--built-in 1x4,2x1,4x1] [--threads auto,2,4,8] [--rounds 3] \\
    [--seconds 4] [--ranks-per-gpu 1] [--nccl DIR] [--json FILE]

Needs GPUs, mpirun (Open MPI) and nccl-tests built with MPI; with --ranks-per-gpu, ranks share GPUs
under NVIDIA's MPS daemon. Candidates: NCCL's own transport at its
default and with other threads x sockets, ours with so many threads (or THREADSxFLOWS): throughput
and price of each are a point of its curve. A round runs all, one after the other, each in processes
of its own; shown is the median (min - max) of the rounds.

A point is two calls that differ in the number of operations alone; what they differ by in CPU time
(user and system, of all ranks) is the price of the operations between them, so that start and end
fall out. It is divided by the bytes that all ranks send, so that a GB has its sender's and its
receiver's time in it, and the time of threads that poll all the while: the program's main thread,
which waits for the GPU ("main"), and NCCL's progress thread ("NCCL Progress"), which with the
built-in may also be what moves the bytes. "Whole machine" is the same of /proc/stat, where the
kernel's work for nobody in particular is, too (softirq, kernel threads); the machine should have
nothing else to do.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from common import (
    Row,
    bytes_of,
    machine,
    read_row,
    run,
    save,
    shown,
    size_text,
    tests_version,
    told,
)
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

WRAPPER = Path(__file__).with_name("net_cpu_rank.py")
FEW = 10
WARM_UP = 5
START_S = 120.0  # for what comes before and after the operations, generously


@dataclass
class Took:
    """One call: its row, and CPU seconds of all ranks and of the machine."""

    row: Row
    cpu_s: float
    machine_s: float
    threads_s: dict[str, float]


@dataclass
class Point:
    """One round of a candidate at a size."""

    gb_per_s: float
    cpu_s_per_gb: float
    machine_s_per_gb: float
    cpus_busy: float
    threads_s_per_gb: dict[str, float]
    calls: int


@dataclass
class Curve:
    """A candidate and, by size, its points."""

    candidate: Candidate
    points: dict[int, list[Point]] = field(default_factory=lambda: defaultdict(list))
    said: dict[str, Any] = field(default_factory=dict)


def busy_s() -> float:
    """CPU seconds of this machine that were neither idle nor taken by its host."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:8]]
    user, nice, system, _idle, _waiting, irq, softirq = ticks
    return (user + nice + system + irq + softirq) / 100


def call(args: argparse.Namespace, curve: Curve, size: int, calls: int, seconds: float) -> Took:
    """One call of the program with so many operations of one size, out of place and in place."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = environment(curve.candidate, folder, nccl=args.nccl)
        program = [args.program, "-b", str(size), "-e", str(size), "-g", "1", "-c", "0"]
        program += ["-n", str(calls), "-w", str(WARM_UP)]
        file = f"{folder}/usage."
        before = f'set -- "{sys.executable}" "{WRAPPER}" "{file}$OMPI_COMM_WORLD_RANK" "$@"; '
        start = busy_s()
        status, said, complaint = run(
            mpirun(args.ranks, seconds, before, program, args.ranks_per_gpu), env, seconds
        )
        machine_s = busy_s() - start
        rows = [row for row in map(read_row, said.splitlines()) if row]
        usages = [json.loads(path.read_text()) for path in folder.glob("usage.*")]
        if status != 0 or len(rows) != 1 or len(usages) != args.ranks:
            why = "not over in time" if status is None else f"exit code {status}"
            sys.exit(
                f"error: {curve.candidate.name}: {why}\n{said[-2000:]}\n{complaint[-2000:]}\n"
                + "\n".join(said_by_nccl(folder)["warnings"][-10:])
            )
        curve.said = said_by_nccl(folder) | {"nccl-tests": tests_version(said)}
        check_network(curve.candidate, curve.said)
    threads: dict[str, float] = defaultdict(float)
    for usage in usages:
        for thread, spent in usage["threads_s"].items():
            threads[thread] += spent
    cpu_s = sum(usage["user_s"] + usage["system_s"] for usage in usages)
    return Took(rows[0], cpu_s, machine_s, threads)


def between(few: Took, many: Took, calls: int, ranks: int) -> Point:
    """Of `calls` operations more, half of them out of place and half in place."""
    gb = calls * many.row.size * 2 * (ranks - 1) / 1e9
    mean_s = statistics.mean(many.row.micros) / 1e6
    threads = {
        name: (spent - few.threads_s.get(name, 0)) / gb for name, spent in many.threads_s.items()
    }
    return Point(
        gb_per_s=statistics.mean(many.row.busbw),
        cpu_s_per_gb=(many.cpu_s - few.cpu_s) / gb,
        machine_s_per_gb=(many.machine_s - few.machine_s) / gb,
        cpus_busy=(many.cpu_s - few.cpu_s) / (calls * mean_s),
        threads_s_per_gb=threads,
        calls=calls,
    )


def measure(args: argparse.Namespace, curve: Curve, size: int) -> None:
    few = call(args, curve, size, FEW, START_S)
    more = max(FEW, round(args.seconds * 1e6 / sum(few.row.micros)))
    many = call(args, curve, size, FEW + more, START_S + 10 * args.seconds)
    curve.points[size].append(between(few, many, 2 * more, args.ranks))


def medians(curve: Curve, size: int) -> tuple[float, float]:
    """GB/s and CPU seconds a GB."""
    points = curve.points[size]
    return (
        statistics.median(point.gb_per_s for point in points),
        statistics.median(point.cpu_s_per_gb for point in points),
    )


def table(curves: list[Curve]) -> str:
    lines = ["| size | | GB/s | CPU s a GB | whole machine | CPUs busy | threads, CPU s a GB |"]
    lines.append("| --- " * 7 + "|")
    for size in curves[0].points:
        for curve in curves:
            points = curve.points[size]
            values = [
                shown([getattr(point, name) for point in points])
                for name in ("gb_per_s", "cpu_s_per_gb", "machine_s_per_gb", "cpus_busy")
            ]
            lines.append(
                f"| {size_text(size)} | {curve.candidate.name} | {' | '.join(values)} "
                f"| {by_thread(points)} |"
            )
    return "\n".join(lines)


def by_thread(points: list[Point]) -> str:
    """The dearest, medians; what is below a hundredth of the dearest is left out."""
    names = {name for point in points for name in point.threads_s_per_gb}
    spent = {
        name: statistics.median(point.threads_s_per_gb.get(name, 0.0) for point in points)
        for name in names
    }
    least = max(spent.values(), default=0.0) / 100
    shares = sorted(spent.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {seconds:.3g}" for name, seconds in shares if seconds > least)


def comparison(built_ins: list[Curve], ours: list[Curve]) -> str:
    """For each setting of the built-in the cheapest of ours that is not slower."""
    lines = ["| size | | GB/s | CPU s a GB | the cheapest of ours at least as fast | against it |"]
    lines.append("| --- " * 6 + "|")
    for size in built_ins[0].points:
        for curve in built_ins:
            speed, price = medians(curve, size)
            own = [(medians(c, size)[1], c) for c in ours if medians(c, size)[0] >= speed]
            cells = "none | -"
            if own:
                least, best = min(own, key=lambda item: item[0])
                cells = (
                    f"{best.candidate.name}: {medians(best, size)[0]:.4g} GB/s, {least:.4g} "
                    f"| {least / price:.2f}x"
                )
            start = f"| {size_text(size)} | {curve.candidate.name} "
            lines.append(f"{start}| {speed:.4g} | {price:.4g} | {cells} |")
    return "\n".join(lines)


def our_candidate(plugin: str, text: str) -> Candidate:
    """auto, THREADS or THREADSxFLOWS."""
    if text == "auto":
        return nccltune(plugin)
    threads, _, flows = text.partition("x")
    settings = {"NCCLTUNE_NET_THREADS": threads} | ({"NCCLTUNE_NET_FLOWS": flows} if flows else {})
    name = f"nccltune, {threads} threads" + (f", {flows} flows" if flows else "")
    return nccltune(plugin, name, **settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--sizes", default="64M,256M")
    parser.add_argument("--built-in", default="1x4,2x1,4x1", help="THREADSxSOCKETS,...")
    parser.add_argument("--threads", default="auto,2,4,8", help="of ours: auto, 4, 4x8 (x flows)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4, help="of operations for one point")
    args = parse(parser)

    settings = args.built_in.split(",") if args.built_in else []
    built_ins = [Curve(DEFAULT), *(Curve(built_in(*numbers(text))) for text in settings)]
    ours = [Curve(our_candidate(args.plugin, text)) for text in args.threads.split(",")]
    curves, facts = [*built_ins, *ours], machine()
    for number in range(args.rounds):
        for size in map(bytes_of, args.sizes.split(",")):
            for curve in curves:
                measure(args, curve, size)
                last = curve.points[size][-1]
                print(
                    f"round {number + 1}, {size_text(size)}, {curve.candidate.name}: "
                    f"{last.gb_per_s:.4g} GB/s, {last.cpu_s_per_gb:.4g} CPU s a GB",
                    file=sys.stderr,
                )
                save(args.json, result(args, facts, curves))
    print(told(facts | curves[-1].said), end="\n\n")
    print(f"n = {args.rounds} rounds, {args.ranks} ranks\n")
    print(table(curves), end="\n\n")
    print(comparison(built_ins, ours))


def result(args: argparse.Namespace, facts: dict[str, Any], curves: list[Curve]) -> dict[str, Any]:
    candidates = []
    for curve in curves:
        points = {size: [asdict(p) for p in points] for size, points in curve.points.items()}
        of_it = {"name": curve.candidate.name, "settings": curve.candidate.settings}
        candidates.append(of_it | {"points_by_bytes": points, "said": curve.said})
    return {"machine": facts, "ranks": args.ranks, "candidates": candidates}


if __name__ == "__main__":
    main()
