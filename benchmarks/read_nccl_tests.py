# SPDX-License-Identifier: Apache-2.0
"""How fast 600,000 lines of nccl-tests output are read, and in how much memory.

python benchmarks/read_nccl_tests.py [ROUNDS]

Three readers take turns, each in a process of its own on the same file:

- ours: `formats.importing.inputs.read_inputs`, everything on: detection, hash, flags, samples;
- ours with every line tagged by Open MPI (`[1,0]<stdout>:`), which takes the careful way;
- plain: a loop that splits a line and takes it for a row when it has 13 words, which is what most
  scripts around nccl-tests do (and what -S, -I, a prefix or a log line break in silence).
"""

import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from common import machine

LINES = 600_000
RANKS = 8
CYCLES = 4

HEADER = [
    "# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809",
    "# Collective test starting: all_reduce_perf",
    f"# nThread 1 nGpus {RANKS} minBytes 8 maxBytes 8589934592 step: 2(factor)"
    f" warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0",
    "#",
    "# Using devices",
    *(
        f"#  Rank {rank:2d} Group  0 Pid {4711:6d} on {'node1':>10} device {rank:2d}"
        f" [0000:{rank + 1:02x}:00] NVIDIA H200"
        for rank in range(RANKS)
    ),
    "#",
    f"# {'':10}  {'':12}  {'':8}  {'':6}  {'':6}           out-of-place"
    "                       in-place          ",
    f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}"
    + 2 * f"  {'time':>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}"
    + " ",
    f"# {'(B)':>10}  {'(elements)':>12}  {'':8}  {'':6}  {'':6}"
    + 2 * f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':6}"
    + " ",
]


def fitted(value: float, width: int) -> str:
    for digits in (2, 1, 0):
        text = f"{value:{width}.{digits}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.1e}"


def output(lines: int) -> Iterator[str]:
    """Tables of 31 sizes, each measured CYCLES times, until there are `lines` lines."""
    rng = random.Random(600_000)
    written = 0
    while written < lines:
        yield from HEADER
        total, rows = 0.0, 0
        for _ in range(CYCLES):
            for exponent in range(3, 34):
                size = 1 << exponent
                row = f"{size:12d}  {size // 4:12d}  {'float':>8}  {'sum':>6}  {-1:6d}"
                for _ in range(2):
                    time_us = rng.uniform(18, 22) + size / 350e3
                    algbw = size / time_us / 1e3
                    busbw = algbw * 2 * (RANKS - 1) / RANKS
                    row += f"  {fitted(time_us, 7)}  {fitted(algbw, 6)}  {fitted(busbw, 6)}  {0:6g}"
                    total += busbw
                    rows += 1
                yield row
        footer = [
            "# Out of bounds values : 0 OK",
            f"# Avg bus bandwidth    : {total / rows:g} ",
            "#",
            "# Collective test concluded: all_reduce_perf",
            "#",
            "",
        ]
        yield from footer
        written += len(HEADER) + CYCLES * 31 + len(footer)


def read_ours(path: Path) -> int:
    from nccltune.formats.importing.inputs import ReadOptions, find_inputs, read_inputs

    samples = 0
    for reading in read_inputs(find_inputs([path]), ReadOptions(study="bench")):
        for batch in reading.batches():
            samples += len(batch)
        report = reading.report
        assert report.unreadable == 0, report.first_unreadable
        assert not report.doubtful, report.flags
        assert report.samples == samples
    return samples


def read_plain(path: Path) -> int:
    rows = []
    with path.open() as file:
        for line in file:
            words = line.split()
            if len(words) == 13 and not line.startswith("#"):
                rows.append(
                    {
                        "size": int(words[0]),
                        "count": int(words[1]),
                        "type": words[2],
                        "redop": words[3],
                        "out_of_place": {
                            "time": float(words[5]),
                            "algbw": float(words[6]),
                            "busbw": float(words[7]),
                            "wrong": words[8],
                        },
                        "in_place": {
                            "time": float(words[9]),
                            "algbw": float(words[10]),
                            "busbw": float(words[11]),
                            "wrong": words[12],
                        },
                    }
                )
    return 2 * len(rows)


READERS = {"ours": read_ours, "plain": read_plain}


def child(reader: str, path: Path) -> None:
    import resource

    started = time.perf_counter()
    samples = READERS[reader](path)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"samples": samples, "seconds": seconds, "peak_mib": peak}))


def main() -> None:
    if len(sys.argv) == 4 and sys.argv[1] == "--child":
        child(sys.argv[2], Path(sys.argv[3]))
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with tempfile.TemporaryDirectory() as folder:
        plain, tagged = Path(folder, "default.txt"), Path(folder, "tagged-default.txt")
        # Written as it is made: a child's peak memory starts at its parent's.
        lines = 0
        with plain.open("w") as one, tagged.open("w") as two:
            for line in output(LINES):
                one.write(f"{line}\n")
                two.write(f"[1,0]<stdout>:{line}\n")
                lines += 1
        runs = {
            "ours": ("ours", plain),
            "ours, tagged lines": ("ours", tagged),
            "plain 13-word split": ("plain", plain),
        }
        results: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, (reader, path) in runs.items():
                command = [sys.executable, __file__, "--child", reader, str(path)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                results[name].append(json.loads(done.stdout))
        size = plain.stat().st_size
    print(f"command    python benchmarks/read_nccl_tests.py {rounds}")
    facts = machine()
    where = f"{facts['cpu']}, {facts['cpus']} CPUs"
    print(f"machine    {where}, Python {platform.python_version()}, n = {rounds}")
    print(f"input      {lines:,} lines, {size / (1 << 20):.1f} MiB")
    base = statistics.median(run["seconds"] for run in results["plain 13-word split"])
    for name, runs_of in results.items():
        seconds = sorted(run["seconds"] for run in runs_of)
        middle = statistics.median(seconds)
        peak = max(run["peak_mib"] for run in runs_of)
        print(
            f"{name:<20} {lines / middle:>9,.0f} lines/s  {middle:.2f} s"
            f" ({seconds[0]:.2f}-{seconds[-1]:.2f})  peak {peak:5.0f} MiB"
            f"  {int(runs_of[0]['samples']):,} timings  {middle / base:.2f} x plain"
        )


if __name__ == "__main__":
    main()
