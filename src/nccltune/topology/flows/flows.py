# SPDX-License-Identifier: Apache-2.0
"""The flows of a collective: how much each channel sends over each link of a node.

Amounts are GB/s for each GB/s of bus bandwidth that a channel contributes. They hold for large
sizes, where only bandwidth counts. All nodes have the same hardware. Nodes with the same traffic
form one *role*, so the work does not grow with the number of nodes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from nccltune.formats.topology.graph_xml import Pattern
from nccltune.model.choice import Algorithm
from nccltune.model.collective import Collective
from nccltune.topology.flows.calibration import Calibration
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.hardware.links import Link, LinkKind
from nccltune.topology.nccl_model.routes import FlowKind, Leg, NodeRoutes, Route, twins
from nccltune.topology.nccl_model.search import Searched, SearchResult
from nccltune.topology.nccl_model.search_order import best_route_indexes
from nccltune.topology.nccl_model.search_rules import Ring

# All 56 directed links of a mesh of eight GPUs, each in one ring.
_MESH = ("01746532", "02437516", "03614257", "04127635", "05264713", "06723154", "07345621")


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


class FlowLoad(NamedTuple):
    """A leg (section of a route) of a channel, with GB/s for each GB/s of the channel's rate."""

    channel: int
    leg: Leg
    amount: float


Loads = list[dict[str, dict[FlowKind, float]]]
"""For each channel: load by link name and kind of flow, in GB/s for each GB/s of channel rate."""

_PEER_WRITES = (FlowKind.P2P_WRITE, FlowKind.INTER_SOCKET)


def loads_of(
    parts: Iterable[FlowLoad], channels: int, links: Sequence[Link], calibration: Calibration
) -> Loads:
    """Return the loads of `parts` on the links, if all `channels` channels run at the same rate."""
    parts = list(parts)
    twin = twins(links)
    found: list[dict[int, dict[FlowKind, float]]] = [
        defaultdict(lambda: defaultdict(float)) for _ in range(channels)
    ]
    requests: list[dict[int, float]] = [defaultdict(float) for _ in range(channels)]
    gdr_reads: dict[int, float] = defaultdict(float)
    peer_writes: dict[int, float] = defaultdict(float)
    for part in parts:
        for place in part.leg.links:
            link = links[place]
            cost = calibration.cost(part.leg.kind, link.kind, through_intel=part.leg.through_intel)
            found[part.channel][place][part.leg.kind] += part.amount * cost
            if link.kind is not LinkKind.PCI:
                continue
            if part.leg.kind.is_read:
                requests[part.channel][twin[place]] += part.amount * calibration["read_request"]
            if part.leg.kind is FlowKind.GDR_READ:
                gdr_reads[twin[place]] += part.amount
            if part.leg.kind in _PEER_WRITES:
                peer_writes[place] += part.amount
    _add_waiting_requests(parts, links, twin, requests, gdr_reads, peer_writes, calibration)
    for channel, waiting in enumerate(requests):
        for place, amount in waiting.items():
            found[channel][place][FlowKind.READ_REQUEST] += amount
    return [
        {links[place].name: dict(kinds) for place, kinds in channel.items()} for channel in found
    ]


def _add_waiting_requests(
    parts: Sequence[FlowLoad],
    links: Sequence[Link],
    twin: Sequence[int],
    requests: Sequence[dict[int, float]],
    gdr_reads: dict[int, float],
    peer_writes: dict[int, float],
    calibration: Calibration,
) -> None:
    """Raise the cost of a NIC's read requests that wait behind writes of peer GPUs.

    It is lower in proportion if peers write fewer bytes than NICs read.
    """
    extra = calibration["read_beside_peer_writes"] - calibration["read_request"]
    for part in parts:
        if part.leg.kind is not FlowKind.GDR_READ:
            continue
        for place in part.leg.links:
            if links[place].kind is not LinkKind.PCI:
                continue
            back = twin[place]
            mixed = min(1.0, peer_writes[back] / gdr_reads[back]) if gdr_reads[back] else 0.0
            requests[part.channel][back] += part.amount * mixed * max(0.0, extra)


class Role(msgspec.Struct, frozen=True):
    """Nodes with the same traffic: their description, their number, and the flows in each node."""

    words: str
    count: int
    parts: tuple[FlowLoad, ...]


class Flows(msgspec.Struct, frozen=True):
    """The flows of a collective by role of nodes; its channels have equal shares of the bytes."""

    algorithm: Algorithm
    channels: int
    roles: tuple[Role, ...]


def algorithms(
    collective: Collective,
    node: NodeRoutes,
    nodes: int,
    *,
    nvls: bool | None,
    version: Version | None = None,
) -> list[Algorithm]:
    """Return the algorithms that NCCL may use and this model knows.

    Ring is for all, tree for all-reduce, NVLS for all-reduce in a node with NVSwitches and over two
    GPUs of Hopper or later, unless `nvls` is False; NVLSTree for several such nodes.
    """
    found = [Algorithm.RING]
    if collective is Collective.ALLREDUCE:
        found.append(Algorithm.TREE)
        in_switches = Algorithm.NVLS if nodes == 1 else Algorithm.NVLS_TREE
        exists = version is None or version >= _SINCE[in_switches]
        if nvls is not False and exists and may_use_nvls(node):
            found.append(in_switches)
    return found


def may_use_nvls(node: NodeRoutes) -> bool:
    """Return whether a node has the hardware of NVLS (`ncclNvlsInit`)."""
    return node.nvswitch and len(node.gpus) > 2 and all(gpu.sm >= 90 for gpu in node.gpus)


_SINCE = {Algorithm.NVLS: (2, 17, 0), Algorithm.NVLS_TREE: (2, 18, 0)}


def flows(
    node: NodeRoutes,
    searched: Searched,
    *,
    collective: Collective,
    algorithm: Algorithm,
    nodes: int,
    channels: int,
) -> Flows:
    """Return the flows on `nodes` nodes with `channels` channels; `algorithms` has the
    algorithm."""
    ranks = nodes * len(node.gpus)
    if algorithm is Algorithm.NVLS:
        return _in_switches(node, ranks)
    if algorithm is Algorithm.NVLS_TREE:
        return _nvls_tree(node, nodes, collective.bus_factor(ranks))
    if algorithm is Algorithm.TREE:
        return _tree(node, searched.tree, nodes, channels, collective.bus_factor(ranks))
    return _ring(node, searched.ring, nodes, channels)


def mesh_rings(node: NodeRoutes, *, several: bool) -> tuple[Ring, ...]:
    """Return RCCL's rings of eight GPUs joined each to each, else none. The search finds fewer.

    On several nodes each is a path from the NIC of one GPU to that of another.
    """
    if [sum(len(way.links) == 1 for way in ways) for ways in node.gpu_gpu] != [7] * 8:
        return ()
    if not several:
        return tuple(Ring(tuple(map(int, ring))) for ring in _MESH)
    near = [min((way[gpu].kind, n) for n, way in enumerate(node.net_gpu))[1] for gpu in range(8)]
    return tuple(
        Ring(tuple((gpu + n) % 8 for n in (0, 1, -1, 2, -2, 3, -3, 4)), near[gpu], near[gpu - 4])
        for gpu in range(8)
    )


def _ring(node: NodeRoutes, found: SearchResult, nodes: int, channels: int) -> Flows:
    """Return the flows of a ring, of which each hop carries the bus bandwidth.

    In broadcast and reduce one hop carries nothing, which does not change the largest load.
    """
    rings = [found.rings[number % found.channels] for number in range(channels)]
    if nodes == 1:
        parts = [
            part
            for number, ring in enumerate(rings)
            for a, b in zip(ring.gpus, (*ring.gpus[1:], ring.gpus[0]), strict=True)
            for part in _parts(number, node.gpu_gpu[a][b], 1.0)
        ]
        return Flows(Algorithm.RING, channels, (Role("node", 1, tuple(parts)),))
    swaps = found.cross_nic == 2 and channels % 2 == 0
    if not swaps:
        return Flows(Algorithm.RING, channels, (Role("node", nodes, _through(node, rings)),))
    # If channels use different NICs in and out, every second node swaps its channels in pairs
    # (`connect.cc`).
    swapped = [rings[number ^ 1] for number in range(channels)]
    roles = [Role("even node", (nodes + 1) // 2, _through(node, rings))]
    roles.append(Role("odd node", nodes // 2, _through(node, swapped)))
    return Flows(Algorithm.RING, channels, tuple(roles))


def _through(node: NodeRoutes, rings: Sequence[Ring]) -> tuple[FlowLoad, ...]:
    """Return the flows of rings from the first NIC, through all GPUs, to the last NIC."""
    parts: list[FlowLoad] = []
    for number, ring in enumerate(rings):
        assert ring.net_in is not None
        assert ring.net_out is not None
        parts += _parts(number, node.net_gpu[ring.net_in][ring.gpus[0]], 1.0)
        for a, b in zip(ring.gpus, ring.gpus[1:], strict=False):
            parts += _parts(number, node.gpu_gpu[a][b], 1.0)
        parts += _parts(number, node.gpu_net[ring.gpus[-1]][ring.net_out], 1.0)
    return tuple(parts)


class _Ends(NamedTuple):
    """The positions in the chain of a node's GPUs that connect to parent and children."""

    parent: int
    first: int
    second: int


def _ends(pattern: Pattern) -> _Ends:
    """Return the positions of `_Ends` for a pattern, as in `ncclTopoPreset` (`connect.cc`)."""
    first = 0 if pattern is Pattern.TREE else 1
    return _Ends(0, first, 1 if pattern is Pattern.SPLIT_TREE else 0)


def _tree(node: NodeRoutes, found: SearchResult, nodes: int, channels: int, factor: float) -> Flows:
    """Return the flows of a tree, which reduces upwards and broadcasts downwards.

    Each edge carries the buffer once each way. NCCL joins the nodes in two trees, of half the
    channels each.
    """
    amount = 1.0 / factor
    rings = [found.rings[number % found.channels] for number in range(channels)]
    chain = [
        part
        for number, ring in enumerate(rings)
        for a, b in zip(ring.gpus, ring.gpus[1:], strict=False)
        for route in (node.gpu_gpu[a][b], node.gpu_gpu[b][a])
        for part in _parts(number, route, amount)
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
                node, number, ring, one if number < channels / 2 else other, ends, amount
            )
        ]
        words = f"node ({one.words} and {other.words})"
        roles.append(Role(words, count, (*chain, *outside)))
    return Flows(Algorithm.TREE, channels, tuple(roles))


def _edges(
    node: NodeRoutes, number: int, ring: Ring, place: Place, ends: _Ends, amount: float
) -> list[FlowLoad]:
    """Return a node's flows to other nodes in one channel, both ways.

    The first GPU uses the channel's first NIC, others the second (`ncclTopoGetNetDev`).
    """
    parts: list[FlowLoad] = []
    for is_there, end in zip(place, ends, strict=True):
        if not is_there:
            continue
        gpu = ring.gpus[min(end, len(ring.gpus) - 1)]
        net = ring.net_in if end == 0 else ring.net_out
        assert net is not None
        parts += _parts(number, node.gpu_net[gpu][net], amount)
        parts += _parts(number, node.net_gpu[net][gpu], amount)
    return parts


def domain_flows(node: NodeRoutes, algorithm: Algorithm, ranks: int) -> Flows:
    """Return the flows of a node whose NVSwitches join all `ranks` GPUs, equally."""
    if algorithm is Algorithm.NVLS:
        return _in_switches(node, ranks)
    # An inner GPU of a tree sends to two neighbours in its chain.
    amount = 1.0 if algorithm is Algorithm.RING else ranks / (ranks - 1)
    parts = _on_nvlinks(node, 0, amount, FlowKind.NVLINK)
    return Flows(algorithm, 1, (Role("node", 1, parts),))


def _in_switches(node: NodeRoutes, ranks: int) -> Flows:
    """Return the flows of NVLS: every GPU sends its buffer and its reduced part, and back."""
    amount = (1.0 + 1.0 / ranks) / (2 * (ranks - 1) / ranks)
    parts = _on_nvlinks(node, 0, amount, _nvls_kind(node))
    return Flows(Algorithm.NVLS, 1, (Role("node", 1, parts),))


def _nvls_tree(node: NodeRoutes, nodes: int, factor: float) -> Flows:
    """Return the flows of NVLSTree: NVLS in each node, trees between nodes.

    Each GPU exchanges its part over its nearest NICs, half in either tree.
    """
    gpus = len(node.gpus)
    inside = tuple(
        part
        for channel in range(2)
        for part in _on_nvlinks(node, channel, (1.0 + 1.0 / gpus) / factor, _nvls_kind(node))
    )
    edge = tuple(
        part
        for gpu, routes in enumerate(node.gpu_net)
        for nets in [best_route_indexes(routes)]
        for net in nets
        for route in (routes[net], node.net_gpu[net][gpu])
        for part in _parts(0, route, 1.0 / (gpus * len(nets) * factor))
    )
    roles = []
    for both, count in places(nodes).items():
        outside = tuple(
            part._replace(channel=channel, amount=part.amount * sum(place))
            for channel, place in enumerate(both)
            for part in edge
        )
        words = " and ".join(place.words for place in both)
        roles.append(Role(f"node ({words})", count, (*inside, *outside)))
    return Flows(Algorithm.NVLS_TREE, 2, tuple(roles))


def _nvls_kind(node: NodeRoutes) -> FlowKind:
    blackwell = min(gpu.sm for gpu in node.gpus) >= 100
    return FlowKind.NVLS_BLACKWELL if blackwell else FlowKind.NVLS


def _on_nvlinks(
    node: NodeRoutes, channel: int, amount: float, kind: FlowKind
) -> tuple[FlowLoad, ...]:
    """Return flows of `amount` on every NVLink, in both directions."""
    return tuple(
        FlowLoad(channel, Leg(kind, (number,)), amount)
        for number, link in enumerate(node.links)
        if link.kind is LinkKind.NVLINK
    )


def _parts(channel: int, route: Route, amount: float) -> list[FlowLoad]:
    return [FlowLoad(channel, leg, amount) for leg in route.legs if leg.links]
