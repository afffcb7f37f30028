# SPDX-License-Identifier: Apache-2.0
"""The places of nodes in NCCL's two trees of nodes (`graph/trees.cc`, 2.19 to 2.30).

Each tree carries half of the channels. Node 0 is the root of the first tree. The traffic of a node
depends only on its place in both trees, so even 1,024 nodes have only a few different cases.
"""

from collections import Counter
from typing import NamedTuple


class Place(NamedTuple):
    """The place of a node in one tree: whether it has a parent, a first and a second child."""

    parent: bool
    first: bool
    second: bool

    @property
    def words(self) -> str:
        """Return the kind of place: "root", "inner" or "leaf"."""
        if not self.parent:
            return "root"
        return "inner" if self.first or self.second else "leaf"


def places(nodes: int) -> dict[tuple[Place, Place], int]:
    """Return how many nodes have each pair of places in the first and the second tree."""
    return dict(Counter((_place(nodes, node), _mirror(nodes, node)) for node in range(nodes)))


def _place(nodes: int, node: int) -> Place:
    bit = 1
    while bit < nodes and not bit & node:
        bit <<= 1
    if node == 0:
        # The child of the root has a higher number, so it counts as the second child.
        return Place(False, False, nodes > 1)
    low = bit >> 1
    return Place(True, low > 0, low > 0 and _second_child(nodes, node, low))


def _second_child(nodes: int, node: int, low: int) -> bool:
    while low > 0:
        if node + low < nodes:
            return True
        low >>= 1
    return False


def _mirror(nodes: int, node: int) -> Place:
    """Return the place in the second tree: mirrored if nodes are even, else shifted by one."""
    return _place(nodes, (node - 1) % nodes if nodes % 2 else nodes - 1 - node)
