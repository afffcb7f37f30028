#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peak memory of `workload show` for a large trace of the PyTorch profiler, which this makes.

    python benchmarks/workload_memory.py trace.json --gigabytes 2

Of each 50 events 20 are kernels, one of them NCCL's, and 30 are operators on the CPU. An existing
file is read as it is.
"""

import argparse
import json
import resource
import time
from pathlib import Path

from nccltune.cli import run

ATEN = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>"
)
LAUNCH = {"queued": 0, "device": 0, "context": 1, "stream": 7, "grid": [512, 1, 1]}
CALL = {"Collective name": "allreduce", "Out msg nelems": 4096, "Group size": 8, "dtype": "Float"}
GROUP = {"Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"}


def event(number: int) -> dict[str, object]:
    """Return an event of the trace: of each 50,000 the first is a step."""
    common = {"ph": "X", "pid": 7, "tid": 7, "ts": 1e9 + 12.0 * number, "dur": 8.25}
    args: dict[str, object] = {"External id": number, "correlation": number}
    if number % 50_000 == 0:
        name = f"ProfilerStep#{number // 50_000}"
        return {**common, "cat": "user_annotation", "name": name, "dur": 6e5, "args": args}
    if number % 50 == 7:
        args |= LAUNCH | CALL | GROUP | {"In msg nelems": 4096 << number // 50 % 8}
        return {**common, "cat": "kernel", "name": "ncclDevKernel_AllReduce_RING_LL", "args": args}
    if number % 5 < 2:
        return {**common, "cat": "kernel", "name": ATEN, "args": args | LAUNCH}
    return {**common, "cat": "cpu_op", "name": "aten::add_", "args": args}


def write_trace(path: Path, size: int) -> None:
    """Write a trace of at least `size` bytes."""
    written = number = 0
    with path.open("w") as file:
        file.write('{"distributedInfo": {"rank": 0}, "traceEvents": [\n')
        while written < size:
            written += file.write(json.dumps(event(number)) + ",\n")
            number += 1
        file.write('{"ph": "i", "name": "end", "ts": 0}]}\n')


def main() -> int:
    """Make the trace if it is missing, read it, and print the peak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    given = parser.parse_args()
    if not given.trace.exists():
        write_trace(given.trace, int(given.gigabytes * 2**30))
    began = time.monotonic()
    code = run(["workload", "show", str(given.trace)])
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f"peak {used.ru_maxrss / 1024:.0f} MiB, {time.monotonic() - began:.0f} s")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
