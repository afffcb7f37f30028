# SPDX-License-Identifier: Apache-2.0
"""How many processes get a context on a GPU under MPS, by CUDA_DEVICE_MAX_CONNECTIONS.

python benchmarks/mps_clients.py [--connections unset,1,8,16,32] [--most 64]

Needs a GPU and NVIDIA's MPS (nvidia-cuda-mps-control). For each value a daemon of its own; eight
processes at a time ask for the primary context of GPU 0 and keep it, until CUDA refuses one. The
error is CUDA's number of the first refusal.
"""

import argparse
import contextlib
import os
import subprocess
import sys

import shared_gpu
from common import exit_on_term, machine, session, told

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
AT_A_TIME = 8
CLIENT = """
import ctypes, sys
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
print(cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), flush=True)
sys.stdin.read()
"""


def results(environment: dict[str, str], most: int) -> list[int]:
    """Return CUDA's result of each process, up to the first eight with a refusal."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < most and not any(found):
            clients = [
                stack.enter_context(session([sys.executable, "-c", CLIENT], environment, **pipes))
                for _ in range(AT_A_TIME)
            ]
            found += [int(client.stdout.readline()) for client in clients]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--connections", default="unset,1,8,16,32")
    parser.add_argument("--most", type=int, default=64, help="processes")
    args = parser.parse_args()
    exit_on_term()
    print(told(machine()), end="\n\n")
    print(f"| {VARIABLE} | processes | first refusal |\n| --- | --- | --- |")
    for connections in args.connections.split(","):
        base = {name: value for name, value in os.environ.items() if name != VARIABLE}
        asked = {} if connections == "unset" else {VARIABLE: connections}
        with shared_gpu.mps_daemon() as mps:
            found = results(base | asked | mps, args.most)
        refused = [str(result) for result in found if result]
        print(f"| {connections} | {found.count(0)} | {(refused or ['none'])[0]} |", flush=True)


if __name__ == "__main__":
    main()
