# SPDX-License-Identifier: Apache-2.0
"""A scale: the number of nodes and ranks of a communicator."""

import msgspec


class Scale(msgspec.Struct, frozen=True, order=True):
    """The number of nodes and ranks of a communicator. One rank drives one GPU.

    `nodes` or `ranks` is 0 if it is unknown. Then timings show a curve, but no rule can be made of
    them.
    """

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
