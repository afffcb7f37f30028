# SPDX-License-Identifier: Apache-2.0
"""The number of processes on each node, and the number of GPUs of each process."""

from collections.abc import Sequence
from typing import NamedTuple


class NodePlacement(NamedTuple):
    """The processes of one node. `host` is None if the launcher picks the node."""

    host: str | None
    processes: int


class Placement(NamedTuple):
    """The processes of a job on each node, in the order of their ranks. Empty nodes are omitted."""

    nodes: tuple[NodePlacement, ...]
    gpus_per_process: int

    @property
    def processes(self) -> int:
        """Return the number of processes on all nodes."""
        return sum(node.processes for node in self.nodes)

    @property
    def ranks(self) -> int:
        """Return the number of NCCL ranks, which equals the number of GPUs."""
        return self.processes * self.gpus_per_process

    @property
    def most(self) -> int:
        """Return the number of processes on the node with the most of them."""
        return max((node.processes for node in self.nodes), default=0)

    @property
    def most_gpus(self) -> int:
        """Return the number of GPUs needed on the node with the most processes."""
        return self.most * self.gpus_per_process


def block(nodes: int, per_node: int, gpus_per_process: int, hosts: Sequence[str] = ()) -> Placement:
    """Return a placement with `per_node` processes on each of `nodes` nodes.

    The ranks of a node are consecutive.

    >>> block(2, 8, 1).ranks
    16
    """
    names: list[str | None] = [*hosts[:nodes], *[None] * (nodes - len(hosts))]
    return Placement(tuple(NodePlacement(host, per_node) for host in names), gpus_per_process)
