# SPDX-License-Identifier: Apache-2.0
"""What a step of nccltune-bench costs beside the calls it times.

python benchmarks/bench_overhead.py [--rounds N] [--gpus N [--nccl PATH]]

On the recording a step takes no time of its own, so that all of it is the conversation: processes
requested, agreed, collected, answered. With --gpus the calls, warm-up included, are taken off.
Beside it: a process for every timing, which is what forcing a choice by environment takes.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from nccltune.measure.bench.conversation import Measure
from nccltune.measure.bench.process import Bench, Launch
from nccltune.model.choice import DEFAULT, AnyChoice, parse_choice
from nccltune.model.collective import Collective
from nccltune.native import bench_path

RECORDING = Path(__file__).parents[1] / "examples" / "h200x4-as-4-nodes"
SIZES = [1024, 65536, 1 << 20]
CHOICES: list[AnyChoice] = [DEFAULT, parse_choice("tree/ll"), parse_choice("ring/simple")]
WARMUP, ITERATIONS = 2, 20
ROUNDS_OF_REQUEST = 100


def bench(arguments: argparse.Namespace, processes: int) -> Bench:
    if arguments.gpus:
        return Bench(Launch(gpus=arguments.gpus, nccl=arguments.nccl))
    program = [str(bench_path()), f"--replay={RECORDING}"]
    return Bench(Launch(gpus=processes), program=program)


def overhead_us(running: Bench, *, calls_count: bool, check: bool) -> float:
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
    if calls_count:
        spent -= sum((WARMUP + ITERATIONS) * (point.time_us or 0) for point in points)
    return spent / len(points)


def start_us(arguments: argparse.Namespace, processes: int) -> float:
    """Of a process for each timing."""
    started = time.perf_counter()
    with bench(arguments, processes):
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
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--nccl", type=Path)
    arguments = parser.parse_args()
    sizes = [arguments.gpus] if arguments.gpus else [1, 2, 4]
    times: dict[str, list[float]] = {}
    with ExitStack() as stack:
        running = {size: stack.enter_context(bench(arguments, size)) for size in sizes}

        def measured() -> Iterator[tuple[str, float]]:
            on_gpus = bool(arguments.gpus)
            for size, one in running.items():
                unchecked = overhead_us(one, calls_count=on_gpus, check=False)
                yield f"a step, {size} processes" if size > 1 else "a step, 1 process", unchecked
                if on_gpus:
                    checked = overhead_us(one, calls_count=True, check=True)
                    yield f"the same, checked, {size} processes", checked
            yield f"a start, {sizes[-1]} processes", start_us(arguments, sizes[-1])

        for round_ in range(arguments.rounds + 1):
            for label, value in measured():
                if round_ > 0:  # the first warms up
                    times.setdefault(label, []).append(value)
    base = statistics.median(times[f"a step, {sizes[-1]} processes"])
    print(f"Python {platform.python_version()}, {platform.machine()}, n = {arguments.rounds}\n")
    print(f"| | median | 10 - 90 % | times a step of {sizes[-1]} |\n| --- | --- | --- | --- |")
    for label, values in times.items():
        print(told(label, values, base))


if __name__ == "__main__":
    main()
