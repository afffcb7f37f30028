# SPDX-License-Identifier: Apache-2.0
"""How long the ceiling of a collective takes by number of nodes, and with nodes not folded.

python benchmarks/what_if.py [ROUNDS]

Each figure starts without anything remembered. "folded" is what nccltune does: nodes that carry
the same are one; "unfolded" gives every node its own links in the same solver, the plain way.
"""

import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
from common import seconds_of

from nccltune.model.choice import Algorithm
from nccltune.model.collective import Collective
from nccltune.topology.files.load import load_topology
from nccltune.topology.flows import expect as expecting
from nccltune.topology.flows.calibration import defaults
from nccltune.topology.flows.ceiling import ceiling
from nccltune.topology.flows.expect import expect
from nccltune.topology.flows.flows import Flows, flows
from nccltune.topology.nccl_model.routes import NodeRoutes, node_routes
from nccltune.topology.nccl_model.search import search

FILES = Path(__file__).parents[1] / "tests" / "data" / "topologies"
DGX = FILES / "dgx.xml"
L40S = Path(__file__).parents[1] / "examples" / "l40s-one-switch" / "topo.xml"
UNFOLDED_NODES = (16, 64, 1024)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"Python {platform.python_version()}, {platform.machine()}, n = {rounds}")
    for name, file in (("8 GPUs, NVSwitch, 8 NICs", DGX), ("4 GPUs, 2 NICs, one switch", L40S)):
        for nodes in (1, 2, 32, 1024):
            report(f"{name}, {nodes:,} nodes, ceiling", rounds, lambda f=file, n=nodes: cold(f, n))
    command = [sys.executable, "-m", "nccltune", "topo", "what-if", str(DGX)]
    asked = [*command, "--nodes", "1024", "--gdr-read", "off", "--algorithm", "tree", "--json"]
    report("whole command, 1,024 nodes, 3 answers", rounds, lambda: run(asked))
    node = node_routes(load_topology(DGX))
    searched = search(node, nodes=2)
    for nodes in UNFOLDED_NODES:
        folded = flows(
            node,
            searched,
            collective=Collective.ALLREDUCE,
            algorithm=Algorithm.TREE,
            nodes=nodes,
            channels=16,
        )
        spread = unfold(folded)
        assert nodes > 100 or same(folded, spread, node)
        for words, one in (("folded", folded), ("unfolded", spread)):
            report(
                f"trees of {nodes} nodes of 8, {words}",
                rounds if nodes < 1000 else 1,
                lambda f=one: ceiling(node, f, defaults()),
            )


def cold(file: Path, nodes: int) -> None:
    expecting.cached_routes.cache_clear()
    expecting.cached_search.cache_clear()
    expect(load_topology(file), nodes=nodes)


def run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def unfold(folded: Flows) -> Flows:
    replace = msgspec.structs.replace
    roles = [
        replace(role, words=f"{role.words} {number}", count=1)
        for role in folded.roles
        for number in range(role.count)
    ]
    return replace(folded, roles=tuple(roles))


def same(one: Flows, other: Flows, node: NodeRoutes) -> bool:
    """Whether both ways give the same ceiling."""
    first, second = (ceiling(node, f, defaults()) for f in (one, other))
    return abs(first.busbw_gb_per_s / second.busbw_gb_per_s - 1) < 1e-6


def report(name: str, rounds: int, work: Callable[[], object]) -> None:
    times = seconds_of(work, rounds)
    middle = statistics.median(times)
    print(f"{name:<58} {middle:7.3f} s  ({min(times):.3f} - {max(times):.3f})")


if __name__ == "__main__":
    main()
