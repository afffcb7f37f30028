# SPDX-License-Identifier: Apache-2.0
"""Tests of pairs: groups of nodes that are fast among themselves and slow with other groups."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from nccltune.compare.scan import LEAST_SCATTER, Floats, Members

FEWEST_PAIRS = 6
_GAPS = 3
"""Number of the largest gaps between the sorted values that are tried as the border."""
_APART = 4
"""The least gap, in spreads of the fast and of the slow pairs."""
_STRAY = 0.1
"""Share of the pairs inside the groups that may be slow for another reason."""


class NodeGroups(NamedTuple):
    """Groups of nodes, the largest first, and the pairs `between` two of them, which are slow."""

    groups: list[list[str]]
    between: Members


def node_groups(
    values: Floats, pairs: Sequence[tuple[str, ...]], least: float
) -> NodeGroups | None:
    """Return the groups of the nodes, from log times of pairs and the least gap, or None.

    A single node that is slow with all is a group only beside others: the path may be slow.
    """
    if len(pairs) < FEWEST_PAIRS or any(len(pair) != 2 for pair in pairs):
        return None
    ordered = np.sort(values)
    gaps = np.diff(ordered)
    for place in np.argsort(-gaps)[:_GAPS].tolist():
        parts = ordered[: place + 1], ordered[place + 1 :]
        spread = max(
            LEAST_SCATTER, *(1.4826 * float(np.median(np.abs(x - np.median(x)))) for x in parts)
        )
        if gaps[place] > max(least, _APART * spread):
            fast = values <= ordered[place]
            found = _groups(pairs, fast)
            inside = np.array([any({*pair} <= {*group} for group in found) for pair in pairs])
            stray = int((inside & ~fast).sum())
            several = len(found) > 1 and len(found[1]) > 1
            if several and stray <= _STRAY * inside.sum() and _all_tested(found, pairs):
                return NodeGroups(found, ~inside)
    return None


def _all_tested(groups: list[list[str]], pairs: Sequence[tuple[str, ...]]) -> bool:
    place = {name: i for i, names in enumerate(groups) for name in names}
    tested = {frozenset(place[name] for name in pair) for pair in pairs}
    return all(frozenset(item) in tested for item in combinations(range(len(groups)), 2))


def _groups(pairs: Sequence[tuple[str, ...]], fast: Members) -> list[list[str]]:
    """Return the nodes that fast pairs connect, the largest group first."""
    group = {name: {name} for pair in pairs for name in pair}
    for pair, connected in zip(pairs, fast, strict=True):
        if connected and group[pair[0]] is not group[pair[1]]:
            joined = group[pair[0]] | group[pair[1]]
            group.update(dict.fromkeys(joined, joined))
    unique = {id(names): sorted(names) for names in group.values()}
    return sorted(unique.values(), key=lambda names: (-len(names), names))
