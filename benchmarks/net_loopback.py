# SPDX-License-Identifier: Apache-2.0
"""What measurements of the network plugin share: ranks that pass for nodes, and candidates.

Each rank is a node of its own (NCCL_HOSTID) on the loopback, so that all bytes cross TCP.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import common
import shared_gpu

NODES = {
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_SET_THREAD_NAME": "1",
}


@dataclass(frozen=True)
class Candidate:
    """What a user could choose. NCCL_NET is always named: without it NCCL takes what it finds."""

    name: str
    settings: dict[str, str] = field(hash=False)

    @property
    def network(self) -> str:
        return self.settings["NCCL_NET"]


DEFAULT = Candidate("built-in default", {"NCCL_NET": "Socket"})


def built_in(threads: int, sockets: int, channels: int | None = None) -> Candidate:
    """NCCL's own transport with so many threads, sockets for each, and channels at least."""
    settings = {"NCCL_SOCKET_NTHREADS": str(threads), "NCCL_NSOCKS_PERTHREAD": str(sockets)}
    name = f"built-in {threads} x {sockets}"
    if channels is not None:
        settings["NCCL_MIN_NCHANNELS"] = str(channels)
        name += f", {channels} channels"
    return Candidate(name, DEFAULT.settings | settings)


def fast_socket(path: str) -> Candidate:
    """Google's. Without placement of flows, which its kernel or NIC must know."""
    settings = {"NCCL_NET_PLUGIN": str(Path(path).resolve()), "NCCL_NET": "FastSocket"}
    return Candidate("Fast Socket", settings | {"NCCL_FLOW_PLACEMENT_ENABLE": "0"})


def nccltune(path: str, name: str = "nccltune", **settings: str) -> Candidate:
    """Ours: without a setting, or with some."""
    ours = {"NCCL_NET_PLUGIN": str(Path(path).resolve()), "NCCL_NET": "nccltune"}
    return Candidate(name, ours | settings)


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Add the options of all measurements over TCP, read them, and start what they ask for."""
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    shared_gpu.add_options(parser)
    parser.add_argument("--nccl", help="folder of the libnccl.so.2 to use")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    common.exit_on_term()
    shared_gpu.use_mps(args)
    return args


def numbers(text: str) -> list[int]:
    """2x1 -> [2, 1], 2x1x8 -> [2, 1, 8]."""
    return [int(word) for word in text.split("x")]


def environment(
    candidate: Candidate, log: Path, subsystems: str = "INIT", nccl: str | None = None
) -> dict[str, str]:
    """For the ranks of one run; NCCL's log goes into files of that folder. `nccl` is the folder of
    another libnccl.so.2."""
    logs = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": subsystems,
        "NCCL_DEBUG_FILE": str(log / "nccl.%p.log"),
    }
    env = os.environ | NODES | logs | candidate.settings
    if nccl:
        env["LD_LIBRARY_PATH"] = f"{nccl}:{env.get('LD_LIBRARY_PATH', '')}"
    return env


def mpirun(
    ranks: int, seconds: float, before: str, command: Sequence[str], ranks_per_gpu: int = 1
) -> list[str]:
    """Every rank a node, which does `before` (shell) and becomes the command."""
    gpu = shared_gpu.gpu_of_nccl_tests(ranks_per_gpu)
    shell = f'export NCCL_HOSTID=node$OMPI_COMM_WORLD_RANK; {gpu}{before}exec "$@"'
    return common.mpirun(ranks, seconds, ["bash", "-c", shell, "rank", *command])


def said_by_nccl(log: Path) -> dict[str, Any]:
    """From the logs of a run: NCCL's version, networks, the plugin's line at init, warnings."""
    text = "".join(path.read_text(errors="replace") for path in sorted(log.glob("nccl.*.log")))
    version = re.search(r"NCCL version (\S+)", text)
    line = re.search(r"nccltune \S+, interface v\d+;.*", text)
    return {
        "nccl": version[1] if version else None,
        "networks": sorted(set(re.findall(r"Using network (\S+)", text))),
        "plugin": line[0] if line else None,
        "warnings": re.findall(r"NCCL WARN (.*)", text),
        "turned_away": sum(
            int(n) for n in re.findall(r"(\d+) foreign connections were closed", text)
        ),
    }


def check_network(candidate: Candidate, said: dict[str, Any]) -> None:
    """An error where NCCL took another network than the one meant."""
    if said["networks"] not in ([], [candidate.network]):
        sys.exit(f"error: {candidate.name}: NCCL used {', '.join(said['networks'])}")
