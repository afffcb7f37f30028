# SPDX-License-Identifier: Apache-2.0
"""What the recorder costs a call, by release of NCCL, and whether it counts every call.

    python benchmarks/recorder_cost.py --recorder libnccl-profiler-nccltune.so \\
        --nccl 2.28.9/libnccl.so.2 [--nccl FILE]... [--starts 6] [--seconds 2.5] [--within 150] \\
        [--times 1,16,256] [--apart] [--shared-gpu] [--json FILE]

Needs g++ and two GPUs, or one with --shared-gpu: both ranks are then nodes on it, under NVIDIA's
MPS, so that their messages pass sockets and calls take longer than between GPUs. A start has four
copies of one libnccl in each of two processes: without a profiler (off), once more without
(control), with a profiler that asks for the recorder's events and does nothing (silent), and with
the recorder (on). Their batches alternate, and starts differ in the order in which the copies are
opened. The calls of the copy with the recorder are compared with what it recorded; exit status 1 if
any differs. --times adds a copy for each number, of which the recorder times one in so many
kernels; its columns are what that costs over the recorder without times, and the number of timed
calls is printed. --apart gives each copy processes of its own, which alternate; then starts differ
in more than the recorder.
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import common
import shared_gpu

NATIVE = Path(__file__).resolve().parents[1] / "native"
HERE = Path(__file__).with_name("native")
PROGRAM = ("recorder_cost.cc", "../../native/common/cuda_api.cc",
           "../../native/common/shared_library.cc", "-ldl")  # fmt: skip
SIDES = ("off", "silent", "on", "control")
COLUMNS = [("recorder", "on", "off"), ("silent", "silent", "off"), ("control", "control", "off"),
           ("recorder over silent", "on", "silent")]  # fmt: skip
SECONDS = 40.0
Times = dict[str, dict[str, list[tuple[float, float]]]]
"""By case and side, microseconds a call of each round: until all are done, until all are called."""


def compiled(file: Path, *words: str) -> Path:
    """Compile sources of benchmarks/native, and return the file."""
    given = [str(HERE / word) if word.endswith(".cc") else word for word in words]
    command = ["g++", "-O2", "-std=c++20", f"-I{NATIVE}", "-o", str(file), *given]
    status, said, complaint = common.run(command, dict(os.environ), 120)
    if status != 0:
        sys.exit(f"error: {said}{complaint}")
    return file


def run_once(
    args: argparse.Namespace, copies: dict[str, Path], records: Path
) -> tuple[str, Times, list[str]]:
    """Return NCCL's version, the times, and where the record differs from the calls."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_PROF", "NCCLTUNE_"))}
    records.mkdir(exist_ok=True)
    profilers = {"on": f",{args.recorder},{records},0", "silent": f",{args.silent}"}
    for number in args.times:
        # A recorder for each: it is one in a process.
        recorder = copies["off"].parent / f"recorder-{number}.so"
        shutil.copyfile(args.recorder, recorder)
        profilers[f"times{number}"] = f",{recorder},{records}/times{number},{number}"
    sides = [f"{side}={copy}{profilers.get(side, '')}" for side, copy in copies.items()]
    words = [str(args.program), str(args.seconds), *sides]
    status, said, complaint = common.run(words, env, SECONDS + args.seconds)
    if status != 0:
        raise RuntimeError(f"exit status {status}: {complaint[-1500:]}")
    version, ranks = "", defaultdict[tuple[str, str, int], list[tuple[float, float]]](list)
    sent: dict[int, Counter[tuple[str, int, bool]]] = defaultdict(Counter)
    for what, *rest in map(str.split, said.splitlines()):
        if what == "nccl":
            number = int(rest[0])
            version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        elif what == "time":
            ranks[rest[1], rest[2], int(rest[3])].append((float(rest[4]), float(rest[5])))
        else:
            sent[int(rest[0])][rest[1], int(rest[2]), rest[3] == "1"] += int(rest[4])
    times: Times = defaultdict(lambda: defaultdict(list))
    for (case, side, _), values in sorted(ranks.items()):
        times[case][side].append(
            (statistics.mean(each[0] for each in values), statistics.mean(e[1] for e in values))
        )
    for number in args.times:
        args.timed[version, number] += timed_in(records / f"times{number}")
    return version, times, differences(sent, records) if "on" in copies else []


def timed_in(folder: Path) -> Counter[str]:
    """Return the number of tasks of a start, and of those that were timed; and why there are none.

    All communicators of the files are summed up.
    """
    found: Counter[str] = Counter()
    for record in map(json.loads, map(Path.read_text, folder.glob("*.json"))):
        found["untimed: " + record["untimed"] if "untimed" in record else "files"] += 1
        for communicator in record["communicators"]:
            for row in communicator["tasks"]:
                found["tasks"] += row["count"]
                found["timed"] += sum(n for _, n in row.get("timed", {}).get("bins", ()))
    return found


def differences(sent: dict[int, Counter[tuple[str, int, bool]]], records: Path) -> list[str]:
    wrong = []
    by_pid = {record["pid"]: record for record in map(json.loads, map(Path.read_text,
              records.glob("*.json")))}  # fmt: skip
    for pid, calls in sent.items():
        found: Counter[tuple[str, int, bool]] = Counter()
        record = by_pid.get(pid, {"communicators": [], "ended": False})
        for communicator in record["communicators"]:
            for row in communicator["calls"]:
                found[row["function"], row["bytes"], row.get("captured", False)] += row["count"]
        if found != calls or not record["ended"]:
            wrong.append(f"process {pid}: only sent {calls - found}, only recorded {found - calls}"
                         f", ended: {record['ended']}")  # fmt: skip
    return wrong


def more(times: Times, case: str, side: str, base: str) -> tuple[float, float]:
    """Return by how much a side exceeds another: percent of the whole time, and ns of the calls.

    The medians over rounds, each with its own base; the first round warms up.
    """
    pairs = list(zip(times[case][side], times[case][base], strict=False))
    pairs = pairs[1:] or pairs
    percent = statistics.median(100 * (mine[0] / its[0] - 1) for mine, its in pairs)
    return percent, statistics.median(1000 * (mine[1] - its[1]) for mine, its in pairs)


def spread(values: list[float], digits: int) -> str:
    shown = (statistics.median(values), min(values), max(values))
    middle, least, most = (f"{value:+.{digits}f}" for value in shown)
    return f"{middle} ({least} to {most})"


def table(version: str, starts: list[Times]) -> str:
    rows = [["calls", "us a call"]]
    rows[0] += [f"{name}, {unit}" for unit in ("%", "ns of CPU") for name, *_ in COLUMNS]
    rows.append(["---"] * len(rows[0]))
    for case in starts[0]:
        us = statistics.median(us for start in starts for us, _ in start[case]["off"])
        rows.append([case.replace("-", " "), f"{us:.2f}"])
        for at, digits in ((0, 2), (1, 0)):
            for _, side, base in COLUMNS:
                found = [more(s, case, side, base)[at] for s in starts if side in s[case]]
                rows[-1].append(spread(found, digits) if found else "-")
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"NCCL {version}, {len(starts)} starts\n\n{lines}"


def start(args: argparse.Namespace, number: int, folder: Path, nccl: Path) -> Any:
    """Return NCCL's version, the times of one start, and what is wrong with its record."""
    copies = {}
    names = [*(SIDES[:-1] if args.apart else SIDES), *(f"times{n}" for n in args.times)]
    for side in names:
        copies[side] = folder / side / "libnccl.so.2"
        if not copies[side].exists():
            copies[side].parent.mkdir(parents=True)
            shutil.copyfile(nccl, copies[side])
    orders = list(itertools.permutations(copies))
    # Of four copies all orders come with this step, and of any number soon each copy first.
    step = len(orders) // len(copies) + 1
    order = {side: copies[side] for side in orders[step * number % len(orders)]}
    records = folder / f"records.{number}"
    if not args.apart:
        return run_once(args, order, records)
    version, both, wrong = "", defaultdict[str, dict[str, list[tuple[float, float]]]](dict), []
    for side, copy in order.items():
        version, times, found = run_once(args, {side: copy}, records)
        wrong += found
        for case, sides in times.items():
            both[case] |= sides
    return version, both, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recorder", type=Path, required=True)
    parser.add_argument("--nccl", type=Path, action="append", required=True)
    parser.add_argument("--starts", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2.5, help="of a start; 0: a trial")
    parser.add_argument("--within", type=float, help="seconds after which no start begins")
    parser.add_argument("--times", default="", help="numbers, such as 1,16,256")
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--shared-gpu", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    for path in (args.recorder, *args.nccl):
        if not path.is_file():
            parser.error(f"{path}: no such file")
    args.recorder = args.recorder.resolve()
    args.times = [int(number) for number in args.times.split(",") if number]
    if args.times and args.apart:
        parser.error("--times: not with --apart")
    args.timed = defaultdict(Counter)
    COLUMNS.extend((f"one in {n} over recorder", f"times{n}", "on") for n in args.times)
    common.exit_on_term()
    began, wrong = time.monotonic(), []
    found: dict[str, list[Times]] = defaultdict(list)
    with (
        shared_gpu.Mps(used=args.shared_gpu) as mps,
        tempfile.TemporaryDirectory(prefix="recorder-") as name,
    ):
        if args.shared_gpu:
            os.environ.update(mps.environment, CUDA_VISIBLE_DEVICES="0")
        args.program = compiled(Path(name) / "recorder_cost", *PROGRAM)
        args.silent = compiled(Path(name) / "silent.so", "silent_profiler.cc", "-shared", "-fPIC")
        # A release after the other: where time is short, each has fewer starts.
        for number, (at, nccl) in itertools.product(range(args.starts), enumerate(args.nccl)):
            if args.within and time.monotonic() - began > args.within:
                break
            try:
                version, times, differs = start(args, number, Path(name) / str(at), nccl)
            except RuntimeError as error:
                wrong.append(f"{nccl}, start {number}: {error}")
                continue
            found[version].append(times)
            wrong += [f"NCCL {version}, start {number}: {text}" for text in differs]
            common.save(args.json, {"machine": common.machine(), "wrong": wrong, "starts": found})
    print(common.told(common.machine()), end="\n\n")
    print("Median of the starts (least to most).\n")
    print("\n\n".join(table(version, starts) for version, starts in found.items()))
    for (version, number), counts in args.timed.items():
        print(f"NCCL {version}, one in {number}: {dict(counts)}")
    print("\n" + ("\n".join(wrong) or "Every call that was sent was recorded, and no other."))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
