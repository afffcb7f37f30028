# SPDX-License-Identifier: Apache-2.0
"""What a step of nccltune-bench costs beside the calls it times.

python benchmarks/bench_overhead.py --gpus N [--rounds N] [--nccl PATH]

The calls, warm-up included, are taken off; the rest is the conversation: processes requested,
agreed, collected, answered. Beside it: a process for every timing, which is what forcing a choice
by environment takes.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from nccltune.measure.bench.conversation import Measure
from nccltune.measure.bench.process import Bench, Launch
from nccltune.model.choice import DEFAULT, AnyChoice, parse_choice
from nccltune.model.collective import Collective

SIZES = [1024, 65536, 1 << 20]
CHOICES: list[AnyChoice] = [DEFAULT, parse_choice("tree/ll"), parse_choice("ring/simple")]
WARMUP, ITERATIONS = 2, 20
ROUNDS_OF_REQUEST = 100


def bench(arguments: argparse.Namespace) -> Bench:
    return Bench(Launch(gpus=arguments.gpus, nccl=arguments.nccl))


def overhead_us(running: Bench, *, check: bool) -> float:
    """Of one step of a request."""
    request = Measure(
        id=0,
        collective=Collective.ALLREDUCE,
        bytes=SIZES,
        choices=CHOICES,
        rounds=ROUNDS_OF_REQUEST,
        default_repeats=1,
        warmup=WARMUP,
        iterations=ITERATIONS,
        check=check,
    )
    started = time.perf_counter()
    points = [point for part in running.measure(request) for point in part]
    spent = 1e6 * (time.perf_counter() - started)
    spent -= sum((WARMUP + ITERATIONS) * (point.time_us or 0) for point in points)
    return spent / len(points)


def start_us(arguments: argparse.Namespace) -> float:
    """Of a process for each timing."""
    started = time.perf_counter()
    with bench(arguments):
        pass
    return 1e6 * (time.perf_counter() - started)


def told(label: str, values: Sequence[float], base: float) -> str:
    ordered = sorted(values)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    middle = statistics.median(values)
    return f"| {label} | {middle:,.0f} us | {low:,.0f} - {high:,.0f} us | {middle / base:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--nccl", type=Path)
    arguments = parser.parse_args()
    times: dict[str, list[float]] = {}
    with bench(arguments) as running:

        def measured() -> Iterator[tuple[str, float]]:
            yield "a step", overhead_us(running, check=False)
            yield "the same, checked", overhead_us(running, check=True)
            yield "a start", start_us(arguments)

        for round_ in range(arguments.rounds + 1):
            for label, value in measured():
                if round_ > 0:  # the first warms up
                    times.setdefault(label, []).append(value)
    base = statistics.median(times["a step"])
    print(
        f"Python {platform.python_version()}, {platform.machine()}, {arguments.gpus} GPUs, ", end=""
    )
    print(f"n = {arguments.rounds}\n")
    print("| | median | 10 - 90 % | times a step |\n| --- | --- | --- | --- |")
    for label, values in times.items():
        print(told(label, values, base))


if __name__ == "__main__":
    main()
