# SPDX-License-Identifier: Apache-2.0
from collections import Counter

import pytest

from nccltune.topology.flows.flows import Place, places


def parent_of(nodes: int, node: int) -> int | None:
    """Return the parent as drawn in NCCL's graph/trees.cc: the node without its lowest set bit."""
    if node == 0:
        return None
    bit = node & -node
    up = (node ^ bit) | (bit << 1)
    return up if up < nodes else node ^ bit


def drawn(nodes: int) -> list[Place]:
    """Return the places of a tree from its parents: lower children are first, higher ones
    second."""
    parents = [parent_of(nodes, node) for node in range(nodes)]
    return [
        Place(
            parents[node] is not None,
            any(parent == node and child < node for child, parent in enumerate(parents)),
            any(parent == node and child > node for child, parent in enumerate(parents)),
        )
        for node in range(nodes)
    ]


@pytest.mark.parametrize("nodes", [*range(2, 34), 100, 127, 128, 1000])
def test_every_node_has_the_place_that_the_drawing_gives_it(nodes: int):
    one = drawn(nodes)
    other = (
        [one[(node - 1) % nodes] for node in range(nodes)]
        if nodes % 2
        else [one[nodes - 1 - node] for node in range(nodes)]
    )
    assert places(nodes) == dict(Counter(zip(one, other, strict=True)))


@pytest.mark.parametrize("nodes", [2, 3, 4, 7, 16, 1024])
def test_the_trees_are_connected(nodes: int):
    """Each tree has one root, and one edge down for each node with a parent."""
    found = places(nodes)
    assert sum(found.values()) == nodes
    for tree in (0, 1):
        edges = sum((both[tree].first + both[tree].second) * n for both, n in found.items())
        parents = sum(both[tree].parent * n for both, n in found.items())
        assert edges == parents == nodes - 1


def test_1024_nodes_are_a_few_different_ones():
    assert len(places(1024)) <= 8


def test_the_trees_that_nccl_logged_for_four_nodes():
    """`Tree 0 : 0 -> 2 -> 1/3/-1` and so on: NCCL 2.28.9, four nodes of one GPU."""
    root, leaf, inner = (
        Place(False, False, True),
        Place(True, False, False),
        Place(True, True, True),
    )
    assert places(4) == {(root, leaf): 1, (leaf, inner): 1, (inner, leaf): 1, (leaf, root): 1}
