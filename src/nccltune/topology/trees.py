# SPDX-License-Identifier: Apache-2.0
"""A node's place in NCCL's two trees (`graph/trees.cc`, 2.19 to 2.30), and how many have the same.

The trees join nodes; each carries half of the channels. Node 0 is the root of the first. What a
node sends and receives depends only on its place, so that 1,024 nodes are a few different ones.
"""

from collections import Counter
from typing import NamedTuple


class Place(NamedTuple):
    """A node in one tree: whether it has a parent, a first and a second child."""

    parent: bool
    first: bool
    second: bool

    @property
    def words(self) -> str:
        """In words."""
        if not self.parent:
            return "root"
        return "inner" if self.first or self.second else "leaf"


def places(nodes: int) -> dict[tuple[Place, Place], int]:
    """The places that nodes have in both trees, with how many have each."""
    return dict(Counter((_place(nodes, node), _mirror(nodes, node)) for node in range(nodes)))


def _place(nodes: int, node: int) -> Place:
    bit = 1
    while bit < nodes and not bit & node:
        bit <<= 1
    if node == 0:
        # Whatever is below the root has a higher number and so is its second child.
        return Place(False, False, nodes > 1)
    low = bit >> 1
    return Place(True, low > 0, low > 0 and _second_child(nodes, node, low))


def _second_child(nodes: int, node: int, low: int) -> bool:
    """Whether some node above `node` in its subtree is within bounds."""
    while low > 0:
        if node + low < nodes:
            return True
        low >>= 1
    return False


def _mirror(nodes: int, node: int) -> Place:
    """The second tree: mirrored for an even number of nodes, shifted by one for an odd one."""
    return _place(nodes, (node - 1) % nodes if nodes % 2 else nodes - 1 - node)
