# SPDX-License-Identifier: Apache-2.0
"""Random programs of sends and receives by copy engines, on the GPUs of one machine.

    python tests/gpu/sendrecv_on_gpus.py --programs .../sendrecv_programs \
        --library libnccltune-sendrecv.so [--operations 1000000] [--kills 100] [--nccl DIR] \
        [--side-by-side 8] [--gpus 4 --gpus-of-a-program 2] [--mps] [--graphs] [--later] \
        [-o results.json]

Needs NCCL and GPUs; ranks are spread over those in sight, or over so many of them: programs that
share a GPU wait for each other's time slices, unless they run under an MPS daemon (--mps, not for
kills: its server does not outlive a killed client). Programs are those of
tests/native/sendrecv/whole/rank_program.cc: sends and receives in random order, in groups and not,
in two communicators and two streams, every byte checked; some with memory mapped by hand
(`mapped`), which is given back and mapped anew now and then. They go on until so many sends and
receives are done; with --graphs some of their groups are captured into CUDA graphs, with --later
their communicators do not block. Then one rank at a time is killed in as many programs of their
own: all others must return an error within half a minute. Either takes --seconds at most. What is
wrong ends it with exit code 1 and the words of the program, whose seed is named.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import shared_gpu
from common import MESSAGES as COUNTED_MESSAGES

TOLD = re.compile(r"well: all learned of the end of rank \d+ in ([\d.]+) s")
MESSAGES = 20
SECONDS = 300
KILL_ROUNDS = 200
"""More than are over when the kill comes."""


@dataclass
class Sum:
    """Of all programs so far."""

    messages: collections.Counter[str] = field(default_factory=collections.Counter)
    sizes: collections.Counter[str] = field(default_factory=collections.Counter)
    programs: int = 0
    told_s: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def operations(self) -> int:
        return sum(self.messages.values())


def environment(args: argparse.Namespace, place: int, stats: Path) -> dict[str, str]:
    """Return that of the program in that place of those that run side by side."""
    ours = shared_gpu.connections() | {
        "LD_PRELOAD": str(args.library.resolve()),
        "NCCLTUNE_SENDRECV": "1",
        # As small as may be, so that many messages are for copy engines.
        "NCCLTUNE_SENDRECV_FROM": "256K",
        "NCCLTUNE_SENDRECV_EAGER": "1M",
        "NCCLTUNE_SENDRECV_STATS": str(stats),
        # A program that hangs asks its ranks what they wait for.
        "NCCLTUNE_SENDRECV_SIGNAL": "USR1",
    }
    if args.native:
        ours = {}
    elif args.graphs:
        # A lone send of a graph that must not wait is NCCL's.
        ours |= {"NCCLTUNE_SENDRECV_GRAPHS": "1", "NCCLTUNE_SENDRECV_EAGER": "0"}
    if args.graphs:
        # NCCL alone delivers wrong bytes if memory of a graph is unmapped and mapped again, but
        # not without this registration (benchmarks/results/one-gpu.md). A user's is kept.
        ours["NCCL_GRAPH_REGISTER"] = os.environ.get("NCCL_GRAPH_REGISTER", "0")
    folders = [*args.nccl, os.environ.get("LD_LIBRARY_PATH", "")]
    if args.gpus_of_a_program:
        first = place * args.gpus_of_a_program
        gpus = range(first, first + args.gpus_of_a_program)
        ours["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu % args.gpus) for gpu in gpus)
    return os.environ | ours | {"LD_LIBRARY_PATH": ":".join(filter(None, folders))}


def run(
    args: argparse.Namespace,
    seed: int,
    place: int,
    how: tuple[str, str],
    total: Sum,
    lock: threading.Lock,
) -> None:
    """One program to its end; its output is added."""
    began = time.monotonic()
    rounds = KILL_ROUNDS if "kill" in how else args.rounds
    ranks = 2 + seed % (args.ranks - 1)
    largest = (3 << 20) if seed % 4 == 0 else (1 << 20)
    more = ["graphs"] * args.graphs + ["later"] * args.later
    words = [str(args.programs), str(seed), str(rounds), str(MESSAGES), str(ranks), "plain"]
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "stats"
        try:
            done = subprocess.run(
                [*words, str(largest), how[0], "0", how[1], "single", *more],
                env=environment(args, place, stats),
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            status, said = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as late:
            status, said = None, f"not over after {SECONDS} s: {late.stdout!r} {late.stderr!r}"
        text = stats.read_text() if stats.exists() else ""
        counts = COUNTED_MESSAGES.findall(text)
    with lock:
        total.programs += 1
        for name, messages, size in counts:
            total.messages[name] += int(messages)
            total.sizes[name] += int(size)
        if args.native:
            total.messages["NCCL"] += rounds * MESSAGES * 2
        if told := TOLD.search(said):
            total.told_s.append(float(told[1]))
            took = time.monotonic() - began
            print(
                f"killed {len(total.told_s)}: others knew within {told[1]} s, {took:.1f} s in all"
            )
        if status != 0 or "well" not in said:
            open_messages = [line for line in text.splitlines() if ": communicator " in line]
            complaint = "\n".join([*open_messages, said[-6000:]])
            total.wrong.append(f"seed {seed} {' '.join(how)}: exit {status}\n{complaint}")


def until_done(args: argparse.Namespace, total: Sum) -> None:
    """Run programs side by side, until there were operations enough, something is wrong, or the
    time is over."""
    lock, end = threading.Lock(), time.monotonic() + args.seconds

    def one_after_the_other(place: int) -> None:
        seed = args.seed + place
        while total.operations < args.operations and not total.wrong and time.monotonic() < end:
            how = ("all", "mapped" if seed % 3 == 0 else "allocated")
            run(args, seed, place, how, total, lock)
            seed += args.side_by_side

    with concurrent.futures.ThreadPoolExecutor(args.side_by_side) as pool:
        list(pool.map(one_after_the_other, range(args.side_by_side)))


def kills(args: argparse.Namespace, total: Sum) -> None:
    lock, end = threading.Lock(), time.monotonic() + args.seconds
    with concurrent.futures.ThreadPoolExecutor(args.side_by_side) as pool:

        def one(seed: int) -> None:
            if not total.wrong and time.monotonic() < end:
                run(args, seed, seed % args.side_by_side, ("kill", "allocated"), total, lock)

        list(pool.map(one, range(args.seed, args.seed + args.kills)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--nccl", action="append", default=[], help="folder of a libnccl.so.2")
    parser.add_argument("--native", action="store_true", help="without the library")
    parser.add_argument("--graphs", action="store_true", help="some groups in CUDA graphs")
    parser.add_argument("--later", action="store_true", help="communicators that do not block")
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=4, help="at most in one program")
    parser.add_argument("--rounds", type=int, default=200, help="of one program")
    parser.add_argument("--side-by-side", type=int, default=8)
    parser.add_argument("--gpus", type=int, default=1, help="in sight")
    parser.add_argument("--gpus-of-a-program", type=int, default=0, help="0: all")
    parser.add_argument("--mps", action="store_true", help="one daemon for all programs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()

    total, killed = Sum(), Sum()
    with shared_gpu.Mps(used=args.mps) as mps, mock.patch.dict(os.environ, mps.environment):
        began = time.monotonic()
        until_done(args, total)
        seconds = time.monotonic() - began
    print(f"{total.operations} operations in {total.programs} programs, {seconds:.0f} s")
    for name, messages in sorted(total.messages.items()):
        print(f"  {name}: {messages} messages, {total.sizes[name] / 1e9:.4g} GB")
    if args.kills and not total.wrong:
        kills(args, killed)
        slowest = max(killed.told_s, default=0.0)
        print(f"{len(killed.told_s)} ranks killed, all others knew within {slowest:.1f} s")
    wrong = [*total.wrong, *killed.wrong]
    print(*wrong, sep="\n", file=sys.stderr)
    if args.output:
        result = {
            "operations": total.operations,
            "messages": total.messages,
            "bytes": total.sizes,
            "programs": total.programs,
            "seconds": seconds,
            "told_s": killed.told_s,
            "wrong": wrong,
        }
        args.output.write_text(json.dumps(result, indent=1))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
