# SPDX-License-Identifier: Apache-2.0
"""A scale: the number of nodes and ranks of a communicator."""

import msgspec


class Scale(msgspec.Struct, frozen=True, order=True):
    """Nodes and ranks of a communicator, 0 if unknown: then timings show only a curve."""

    nodes: int
    ranks: int

    def __str__(self) -> str:
        nodes = count(self.nodes, "node") if self.nodes else "? nodes"
        return f"{nodes}, {count(self.ranks, 'rank') if self.ranks else '? ranks'}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 node`, `4 nodes`, `2 processes`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}{'es' if noun.endswith('s') else 's'}"
