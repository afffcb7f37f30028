# SPDX-License-Identifier: Apache-2.0
"""Several ranks on one GPU: their options and environment, and NVIDIA's MPS daemon.

Used by tests/gpu and by the net_* scripts. Each rank is a node of its own (NCCL_HOSTID) on the
loopback interface, unless a test asks for ranks of one node.
"""

import argparse
import atexit
import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import common

ONE_NODE = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
"""Lets ranks of one node share a GPU; NCCL 2.31 and newer."""
FIRST_ONE_NODE = (2, 31)
MPS_CONTROL = "nvidia-cuda-mps-control"
CTAS_OF_A_GPU = 8


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks-per-gpu", type=int, default=1, metavar="N",
                        help="let N ranks share each GPU, each as a node, under an MPS daemon"
                        " of their own")  # fmt: skip
    parser.add_argument("--no-mps", action="store_true", help="ranks take turns in time slices")


def node_variables(rank: int, ranks: int, nodes: int) -> dict[str, str]:
    """Return the variables with which NCCL takes `ranks` processes for `nodes` nodes."""
    return {"NCCL_HOSTID": f"node{rank * nodes // ranks}", "NCCL_SOCKET_IFNAME": "lo"}


def one_node_variables(ranks_per_gpu: int) -> dict[str, str]:
    """Return the variables with which ranks of one node share a GPU.

    Their kernels wait for each other, so all must fit on the GPU at once. A user's NCCL_MAX_CTAS
    is kept.
    """
    ctas = str(max(1, CTAS_OF_A_GPU // ranks_per_gpu))
    return ONE_NODE | {"NCCL_MAX_CTAS": os.environ.get("NCCL_MAX_CTAS", ctas)}


def connections() -> dict[str, str]:
    """Return the variable without which the send/recv library carries nothing under MPS.

    A user's is kept. With 16 connections each, 7 processes fit on an H100.
    """
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    return {name: os.environ.get(name, "16")}


def visible_gpu(rank: int, ranks_per_gpu: int) -> dict[str, str]:
    """Return the variable that shows a process only the GPU of its rank; empty: not shared."""
    if ranks_per_gpu == 1:
        return {}
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    number = rank // ranks_per_gpu
    return {"CUDA_VISIBLE_DEVICES": named.split(",")[number] if named else str(number)}


def gpu_of_nccl_tests(ranks_per_gpu: int) -> str:
    """Return shell words with which a rank of nccl-tests under Open MPI takes its GPU."""
    if ranks_per_gpu == 1:
        return ""
    return f"export NCCL_TESTS_DEVICE=$((OMPI_COMM_WORLD_RANK / {ranks_per_gpu})); "


def processes_on_gpus() -> list[str]:
    """Return a line for each process on a visible GPU; the server of an MPS daemon is none."""
    command = ["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory"]
    command.append("--format=csv,noheader")
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        command += ["-i", visible]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    lines = (line for line in done.stdout.splitlines() if line.strip())
    return [line for line in lines if "nvidia-cuda-mps" not in line]


@contextlib.contextmanager
def mps_daemon(seconds: float = 20) -> Iterator[dict[str, str]]:
    """Start an MPS daemon of our own and yield the environment of its clients.

    The daemon runs in the foreground of a session of its own, so that it ends with this process,
    also if the request to quit hangs. Raises TimeoutError if it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        places = {
            "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe",
            "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log",
        }
        for place in places.values():
            Path(place).mkdir()
        env = os.environ | places
        null = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        with common.session([MPS_CONTROL, "-f"], env, **null) as daemon:
            end = time.monotonic() + seconds
            while not (Path(folder) / "pipe/control").exists():
                if daemon.poll() is not None or time.monotonic() > end:
                    raise TimeoutError(f"{MPS_CONTROL}: exit status {daemon.poll()}")
                time.sleep(0.05)
            try:
                yield places
            finally:
                quit_mps(env)
                for log in sorted((Path(folder) / "log").glob("*.log")):
                    print(f"{log.name}: {log.read_text(errors='replace')[-300:]!r}", flush=True)


def quit_mps(env: dict[str, str]) -> None:
    """Ask the daemon to end its server; it hangs where a client does."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [MPS_CONTROL], input="quit -t 5\n", text=True, env=env, timeout=15, check=False
        )


class Mps(contextlib.AbstractContextManager["Mps"]):
    """An MPS daemon of our own, and another one after a client was killed.

    The server that lost a client refuses a context to those that come after it.
    """

    def __init__(self, *, used: bool = True) -> None:
        self.used = used
        self.daemon = contextlib.ExitStack()
        self.environment: dict[str, str] = {}
        """Of the clients; empty without MPS."""

    def __enter__(self) -> "Mps":
        if self.used:
            self.environment = self.daemon.enter_context(mps_daemon())
        return self

    def __exit__(self, *error: object) -> None:
        self.daemon.close()

    def renew(self) -> None:
        self.daemon.close()
        self.__enter__()


def use_mps(args: argparse.Namespace) -> None:
    """Let all processes that this one starts from now on share GPUs as `args` asks."""
    if args.ranks_per_gpu == 1 or args.no_mps:
        return
    mps = Mps()
    os.environ.update(mps.__enter__().environment)
    atexit.register(mps.__exit__)
