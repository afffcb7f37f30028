# SPDX-License-Identifier: Apache-2.0
"""A job that starts within seconds: two ranks that only communicate, and print their steps/s.

    nccltune verify STUDY -- python tests/gpu/step_job.py --nccl libnccl.so.2 \
        allreduce:4M:100 allgather:8M:50 [--seconds 1] [--nodes]

Needs two GPUs and no framework. A step makes each call so many times; its size is what NCCL's
tuner sees. Each rank is a process with a GPU of its own; with --nodes also a node of its own.
"""

import argparse
import ctypes
import os
import re
import socket
import sys
import time
from collections.abc import Callable

FLOAT, SUM, RANKS, LINES = 7, 0, 2, 10
Call = tuple[str, int, int]


def call_of(text: str) -> Call:
    found = re.fullmatch(r"(allreduce|allgather|reducescatter):(\d+)([KM]?):(\d+)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is not NAME:BYTES:TIMES")
    units = {"": 1, "K": 1 << 10, "M": 1 << 20}
    return found[1], int(found[2]) * units[found[3]], int(found[4])


def good(result: int) -> None:
    if result:
        raise RuntimeError(f"result {result}")


class Rank:
    """A rank: the driver's functions and NCCL's, by ctypes."""

    def __init__(self, rank: int, other: socket.socket, args: argparse.Namespace) -> None:
        self.rank, self.other, self.args = rank, other, args
        cuda, self.nccl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(str(args.nccl))
        self.synchronize = cuda.cuStreamSynchronize
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.stream, memory = ctypes.c_void_p(), ctypes.c_uint64()
        good(cuda.cuInit(0))
        good(cuda.cuDeviceGet(ctypes.byref(device), rank))
        good(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        good(cuda.cuCtxSetCurrent(context))
        good(cuda.cuStreamCreate(ctypes.byref(self.stream), 1))
        most = max(size for _, size, _ in args.calls)
        good(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(2 * most)))
        self.send = ctypes.c_void_p(memory.value)
        self.receive = ctypes.c_void_p(memory.value + most)
        self.comm = ctypes.c_void_p()

    def open(self) -> None:
        """Make the communicator. Rank 0 passes on its id, which C passes by value."""
        id_type = type("UniqueId", (ctypes.Structure,), {"_fields_": [("b", ctypes.c_char * 128)]})
        unique = id_type()
        if self.rank == 0:
            good(self.nccl.ncclGetUniqueId(ctypes.byref(unique)))
            self.other.sendall(bytes(unique))
        else:
            unique = id_type.from_buffer_copy(self.other.recv(128, socket.MSG_WAITALL))
        self.nccl.ncclCommInitRank.argtypes = [
            ctypes.c_void_p, ctypes.c_int, id_type, ctypes.c_int
        ]  # fmt: skip
        good(self.nccl.ncclCommInitRank(ctypes.byref(self.comm), RANKS, unique, self.rank))

    def enqueue(self, name: str, size: int) -> Callable[[], int]:
        elements, end = size // 4, (self.comm, self.stream)
        function = {
            "allreduce": self.nccl.ncclAllReduce,
            "allgather": self.nccl.ncclAllGather,
            "reducescatter": self.nccl.ncclReduceScatter,
        }[name]
        operation = () if name == "allgather" else (SUM,)
        count = ctypes.c_size_t(elements if name == "allreduce" else elements // RANKS)
        return lambda: function(self.send, self.receive, count, FLOAT, *operation, *end)  # type: ignore[no-any-return]

    def run(self) -> None:
        calls = [(self.enqueue(name, size), times) for name, size, times in self.args.calls]

        def step() -> None:
            for call, times in calls:
                for _ in range(times):
                    good(call())
            good(self.synchronize(self.stream))

        began, steps = time.perf_counter(), 5
        for _ in range(steps):
            step()
        # As many steps a line in both ranks.
        mine = int(self.args.seconds / LINES * steps / (time.perf_counter() - began)) + 1
        if self.rank == 0:
            self.other.sendall(mine.to_bytes(4, "big"))
        else:
            mine = int.from_bytes(self.other.recv(4, socket.MSG_WAITALL), "big")
        for number in range(1, LINES + 1):
            began = time.perf_counter()
            for _ in range(mine):
                step()
            rate = mine / (time.perf_counter() - began)
            if self.rank == 0:
                print(f"step {number * mine}: {rate:.3f} steps/s", flush=True)
        good(self.nccl.ncclCommDestroy(self.comm))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nccl", default="libnccl.so.2")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--nodes", action="store_true", help="each rank is a node")
    parser.add_argument("calls", type=call_of, nargs="+", metavar="NAME:BYTES:TIMES")
    args = parser.parse_args()
    sockets = socket.socketpair()
    child = os.fork()  # before CUDA
    rank = int(child == 0)
    sockets[1 - rank].close()
    if args.nodes:
        os.environ |= {"NCCL_HOSTID": f"step-job-{rank}", "NCCL_SOCKET_IFNAME": "lo"}
    this = Rank(rank, sockets[rank], args)
    this.open()
    this.run()
    return 0 if rank else os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
