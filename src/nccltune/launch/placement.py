# SPDX-License-Identifier: Apache-2.0
"""Which node gets how many processes, of how many GPUs each."""

from collections.abc import Sequence
from typing import NamedTuple


class NodePlacement(NamedTuple):
    """The processes of one node; `host` is None where the launcher picks the node."""

    host: str | None
    processes: int


class Placement(NamedTuple):
    """All processes of a job, in the order of their ranks; nodes without any are left out."""

    nodes: tuple[NodePlacement, ...]
    gpus_per_process: int

    @property
    def processes(self) -> int:
        """All of them."""
        return sum(node.processes for node in self.nodes)

    @property
    def ranks(self) -> int:
        """NCCL's ranks: GPUs that take part."""
        return self.processes * self.gpus_per_process

    @property
    def most_gpus(self) -> int:
        """The GPUs that the fullest node needs."""
        return max((node.processes for node in self.nodes), default=0) * self.gpus_per_process


def block(nodes: int, per_node: int, gpus_per_process: int, hosts: Sequence[str] = ()) -> Placement:
    """`per_node` processes on each of `nodes` nodes, node after node."""
    names: list[str | None] = [*hosts[:nodes], *[None] * (nodes - len(hosts))]
    return Placement(tuple(NodePlacement(host, per_node) for host in names), gpus_per_process)
