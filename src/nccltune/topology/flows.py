# SPDX-License-Identifier: Apache-2.0
"""The flows of a collective: what each channel sends over which links, in every kind of node.

Amounts are GB/s for each GB/s of bus bandwidth that a channel contributes, at large sizes, where
bandwidth is all that counts. All nodes are alike; those that send and receive the same are one
*role*, so that the work does not grow with their number.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from nccltune.formats.graph_xml import Pattern
from nccltune.model.choice import Algorithm
from nccltune.model.collective import Collective
from nccltune.topology.goal import Ring
from nccltune.topology.kinds import FlowKind
from nccltune.topology.links import LinkKind
from nccltune.topology.loads import Part
from nccltune.topology.reach import Leg, Reach, Way
from nccltune.topology.search import Found, Searched
from nccltune.topology.trees import Place, places


class Role(msgspec.Struct, frozen=True):
    """Nodes that carry the same: what they are, how many, and what their links carry."""

    words: str
    count: int
    parts: tuple[Part, ...]


class Flows(msgspec.Struct, frozen=True):
    """A collective by an algorithm: `channels` channels of equal shares, in each role's node."""

    algorithm: Algorithm
    channels: int
    roles: tuple[Role, ...]


def algorithms(
    collective: Collective, reach: Reach, nodes: int, *, nvls: bool | None
) -> list[Algorithm]:
    """Those that NCCL may take and the model knows: ring for each of the five, trees for
    all-reduce, NVLS for all-reduce within a node of Hopper or later with NVSwitches (2.17 on)."""
    found = [Algorithm.RING]
    if collective is Collective.ALLREDUCE:
        found.append(Algorithm.TREE)
        hopper = all(gpu.sm >= 90 for gpu in reach.gpus)
        if nodes == 1 and nvls is not False and reach.nvswitch and hopper and len(reach.gpus) > 2:
            found.append(Algorithm.NVLS)
    return found


def flows(
    reach: Reach,
    searched: Searched,
    *,
    collective: Collective,
    algorithm: Algorithm,
    nodes: int,
    channels: int,
) -> Flows:
    """The flows of `collective` on `nodes` nodes with `channels` connected channels.

    `algorithm` must be one of `algorithms`. Within a channel everything runs at one rate, and
    every channel has the same share of the bytes.
    """
    ranks = nodes * len(reach.gpus)
    if algorithm is Algorithm.NVLS:
        return _nvls(reach, ranks)
    if algorithm is Algorithm.TREE:
        return _tree(reach, searched.tree, nodes, channels, collective.bus_factor(ranks))
    return _ring(reach, searched.ring, nodes, channels)


def _ring(reach: Reach, found: Found, nodes: int, channels: int) -> Flows:
    """Each hop of a ring carries the bus bandwidth, whichever of the five collectives it is (of
    broadcast and reduce one hop carries nothing, which is no less where all others are full)."""
    rings = [found.rings[number % found.channels] for number in range(channels)]
    if nodes == 1:
        parts = [
            part
            for number, ring in enumerate(rings)
            for a, b in zip(ring.gpus, (*ring.gpus[1:], ring.gpus[0]), strict=True)
            for part in _parts(number, reach.gpu_gpu[a][b], 1.0)
        ]
        return Flows(Algorithm.RING, channels, (Role("node", 1, tuple(parts)),))
    swaps = found.cross_nic == 2 and channels % 2 == 0
    if not swaps:
        return Flows(Algorithm.RING, channels, (Role("node", nodes, _through(reach, rings)),))
    # With NICs crossed every other node swaps its channels in pairs (`connect.cc`).
    swapped = [rings[number ^ 1] for number in range(channels)]
    roles = [Role("even node", (nodes + 1) // 2, _through(reach, rings))]
    roles.append(Role("odd node", nodes // 2, _through(reach, swapped)))
    return Flows(Algorithm.RING, channels, tuple(roles))


def _through(reach: Reach, rings: Sequence[Ring]) -> tuple[Part, ...]:
    """From the NIC in, through all GPUs, to the NIC out."""
    parts: list[Part] = []
    for number, ring in enumerate(rings):
        assert ring.net_in is not None
        assert ring.net_out is not None
        parts += _parts(number, reach.net_gpu[ring.net_in][ring.gpus[0]], 1.0)
        for a, b in zip(ring.gpus, ring.gpus[1:], strict=False):
            parts += _parts(number, reach.gpu_gpu[a][b], 1.0)
        parts += _parts(number, reach.gpu_net[ring.gpus[-1]][ring.net_out], 1.0)
    return tuple(parts)


class _Ends(NamedTuple):
    """Places in a chain of the GPUs that talk to parent, first and second child."""

    parent: int
    first: int
    second: int


def _ends(pattern: Pattern) -> _Ends:
    """As `ncclTopoPreset` has it (`connect.cc`)."""
    first = 0 if pattern is Pattern.TREE else 1
    return _Ends(0, first, 1 if pattern is Pattern.SPLIT_TREE else 0)


def _tree(reach: Reach, found: Found, nodes: int, channels: int, factor: float) -> Flows:
    """Reduced up and broadcast down: every edge carries the buffer once each way.

    The first half of the channels is in one tree of nodes, the second in the other.
    """
    amount = 1.0 / factor
    rings = [found.rings[number % found.channels] for number in range(channels)]
    chain = [
        part
        for number, ring in enumerate(rings)
        for a, b in zip(ring.gpus, ring.gpus[1:], strict=False)
        for way in (reach.gpu_gpu[a][b], reach.gpu_gpu[b][a])
        for part in _parts(number, way, amount)
    ]
    if nodes == 1:
        return Flows(Algorithm.TREE, channels, (Role("node", 1, tuple(chain)),))
    ends = _ends(found.pattern)
    roles = []
    for (one, other), count in places(nodes).items():
        outside = [
            part
            for number, ring in enumerate(rings)
            for part in _edges(
                reach, number, ring, one if number < channels / 2 else other, ends, amount
            )
        ]
        words = f"node ({one.words} and {other.words})"
        roles.append(Role(words, count, (*chain, *outside)))
    return Flows(Algorithm.TREE, channels, tuple(roles))


def _edges(
    reach: Reach, number: int, ring: Ring, place: Place, ends: _Ends, amount: float
) -> list[Part]:
    """A node's edges to other nodes in one channel, both directions each. The first GPU of the
    chain uses the channel's first NIC, others the second (`ncclTopoGetNetDev`)."""
    parts: list[Part] = []
    for is_there, end in zip(place, ends, strict=True):
        if not is_there:
            continue
        gpu = ring.gpus[min(end, len(ring.gpus) - 1)]
        net = ring.net_in if end == 0 else ring.net_out
        assert net is not None
        parts += _parts(number, reach.gpu_net[gpu][net], amount)
        parts += _parts(number, reach.net_gpu[net][gpu], amount)
    return parts


def _nvls(reach: Reach, ranks: int) -> Flows:
    """The NVSwitches reduce and multicast: every GPU hands in its whole buffer and the part it
    owns once more reduced, and gets back its part and then the whole (`all_reduce.h`, NVLS)."""
    amount = (1.0 + 1.0 / ranks) / (2 * (ranks - 1) / ranks)
    parts = tuple(
        Part(0, Leg(FlowKind.NVLINK, (number,)), amount)
        for number, link in enumerate(reach.links)
        if link.kind is LinkKind.NVLINK
    )
    return Flows(Algorithm.NVLS, 1, (Role("node", 1, parts),))


def _parts(channel: int, way: Way, amount: float) -> list[Part]:
    return [Part(channel, leg, amount) for leg in way.legs if leg.links]
