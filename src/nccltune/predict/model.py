# SPDX-License-Identifier: Apache-2.0
"""Latency and bandwidth of each algorithm and protocol, as NCCL's cost model computes them.

The sources are `ncclTopoTuneModel` in `graph/tuning.cc` of NCCL 2.19 to 2.30 and `src/tuning/` of
2.31. NCCL computes in single precision, which decides between equally fast choices. So each value
that NCCL stores is rounded here, too.
"""

import struct
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from nccltune.model.choice import ALGORITHMS, PROTOCOLS, Algorithm, Choice, Protocol
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.forced import Forced
from nccltune.model.numbers import counted
from nccltune.predict.communicator import Communicator
from nccltune.predict.constants import (
    Constants,
    Generation,
    Link,
    ModelRules,
    Row,
    constants_of,
    rules_of,
)
from nccltune.topology.nccl_model.search import SearchResult
from nccltune.topology.nccl_model.settings import PathKind

_SCATTERED = (Collective.ALLGATHER, Collective.REDUCESCATTER)
_NVLS = (Algorithm.NVLS, Algorithm.NVLS_TREE)
_COLLNET = (Algorithm.COLLNET_DIRECT, Algorithm.COLLNET_CHAIN)
_DIRECT_ARITY = 7
_PLAIN_TREE = 3
"""`NCCL_TOPO_PATTERN_TREE`."""


class LimitKind(StrEnum):
    """The term of the model that determines the bandwidth of an algorithm and protocol."""

    GRAPH = "graph"
    """Channels times speed of the graph, times the share that algorithm and protocol get."""
    NODE_CAP = "node cap"
    """The cap of LL on a node."""
    CHANNEL_CAP = "channel cap"
    """The cap on a channel by GPU generation."""
    INTER = "inter"
    """NVLS: the speed that the graph has between nodes, `bwInter`."""
    INTRA = "intra"
    """NVLS: the speed that the graph has inside the node, `bwIntra`, times the efficiency."""


class Limit(msgspec.Struct, frozen=True):
    """What limits a bandwidth. `words` completes the sentence "limited by ..."."""

    kind: LimitKind
    words: str

    def scaled(self, share: float) -> "Limit":
        """Return the limit of a bandwidth that gets only a share of the limited one."""
        return Limit(self.kind, f"{self.words} x {share:.3g}")


class Modelled(msgspec.Struct, frozen=True, kw_only=True):
    """Latency in us and algorithm bandwidth in GB/s of an algorithm and protocol.

    `net_us` is the part of the latency that is spent between nodes. `by_hand` marks a choice that
    NCCL only takes if a tuner or a setting asks for it.
    """

    latency_us: float
    net_us: float = 0.0
    gb_per_s: float
    limit: Limit
    by_hand: bool = False


def single(value: float) -> float:
    """Return a value rounded to single precision."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def cost_model(
    comm: Communicator, collective: Collective, limits: Forced
) -> tuple[dict[Choice, Modelled], dict[Choice, str]]:
    """Return the figures of each choice for a collective, and why the other choices are missing.

    Both are in the order of NCCL's ids. `limits` are those of NCCL_ALGO and NCCL_PROTO. LL128 that
    NCCL_PROTO allows by name or by `^` is legal everywhere.

    Raises InputError if NCCL fails because no choice is left, as it does from 2.24 on.
    """
    model = _Model(comm, forced_ll128=Protocol.LL128 in (limits.protocols or ()))
    modelled: dict[Choice, Modelled] = {}
    excluded: dict[Choice, str] = {}
    for algorithm in ALGORITHMS:
        for protocol in PROTOCOLS:
            if not _has(collective, algorithm, protocol):
                continue
            found = model.entry(collective, algorithm, protocol)
            if isinstance(found, Modelled):
                modelled[Choice(algorithm, protocol)] = found
            else:
                excluded[Choice(algorithm, protocol)] = found
    ruled_out = {choice: why for choice in modelled if (why := limits.excludes(choice))}
    if len(ruled_out) == len(modelled):
        if comm.version >= (2, 24):
            raise InputError(
                f"NCCL_ALGO and NCCL_PROTO leave no choice for {collective.prose}, so NCCL fails"
            )
        instead = limits._replace(algorithms=_instead(comm, limits))
        ruled_out = {choice: why for choice in modelled if (why := instead.excludes(choice))}
    excluded |= ruled_out
    return {one: found for one, found in modelled.items() if one not in ruled_out}, excluded


def _instead(comm: Communicator, limits: Forced) -> frozenset[Algorithm]:
    """Return what NCCL takes up to 2.23 if NCCL_ALGO allows nothing that it has."""
    nvls = Algorithm.NVLS if comm.nodes == 1 else Algorithm.NVLS_TREE
    known = {Algorithm.RING, Algorithm.TREE, nvls} & (limits.algorithms or set())
    unknown = not known and not comm.collnet
    return frozenset({Algorithm.RING, Algorithm.TREE} if unknown else {Algorithm.RING})


def _has(collective: Collective, algorithm: Algorithm, protocol: Protocol) -> bool:
    """Return whether NCCL has a kernel of an algorithm and protocol for a collective."""
    if algorithm not in (Algorithm.TREE, Algorithm.RING) and protocol is not Protocol.SIMPLE:
        return False
    if collective is Collective.ALLREDUCE:
        return algorithm is not Algorithm.PAT
    if collective in _SCATTERED:
        return algorithm not in (Algorithm.TREE, Algorithm.COLLNET_CHAIN, Algorithm.NVLS_TREE)
    return algorithm is Algorithm.RING


class _Model:
    def __init__(self, comm: Communicator, *, forced_ll128: bool) -> None:
        self.comm = comm
        self.forced_ll128 = forced_ll128
        self.constants = _on_power(constants_of(comm.version), comm)
        self.rules: ModelRules = rules_of(comm.version)
        self.generation = self.constants.generation(comm.least_sm)
        self.scale = min(comm.nodes, 3) - 1

    def entry(
        self, collective: Collective, algorithm: Algorithm, protocol: Protocol
    ) -> Modelled | str:
        """Return the figures of a choice, or the reason why NCCL does not have it."""
        graph = self._graph(algorithm)
        why = self._why_not(collective, algorithm)
        if why is not None:
            return why
        if graph is None:
            return "the search found no channels for it"
        if protocol is Protocol.LL128 and not self.forced_ll128:
            why = self._why_not_ll128(graph)
            if why is not None:
                return why
        gb_per_s, limit = self._bus(collective, algorithm, protocol, graph)
        gb_per_s = self._algorithm_bandwidth(collective, algorithm, gb_per_s)
        if gb_per_s <= 0:
            return "the model gives it no bandwidth"
        inter = self._inter_us(algorithm, protocol, graph)
        latency, local = (
            self._latency(collective, algorithm, protocol, graph, step) for step in (inter, 0.0)
        )
        return Modelled(
            latency_us=latency,
            net_us=latency - local,
            gb_per_s=gb_per_s,
            limit=limit,
            by_hand=algorithm is Algorithm.PAT and self.comm.ppn > 1,
        )

    def _graph(self, algorithm: Algorithm) -> SearchResult | None:
        comm = self.comm
        return {
            Algorithm.RING: comm.ring,
            Algorithm.COLLNET_DIRECT: comm.direct,
            Algorithm.COLLNET_CHAIN: comm.chain,
            Algorithm.NVLS: comm.nvls,
            Algorithm.NVLS_TREE: comm.nvls,
        }.get(algorithm, comm.tree)

    def _why_not(self, collective: Collective, algorithm: Algorithm) -> str | None:
        """Return the reason why an algorithm is not available; None if it is."""
        if algorithm is Algorithm.PAT:
            return self._why_not_pat()
        if algorithm in _COLLNET:
            return self._why_not_collnet(collective, algorithm)
        if algorithm in _NVLS:
            return self._why_not_nvls(collective, algorithm)
        return None

    def _why_not_pat(self) -> str | None:
        comm = self.comm
        if self.rules.pat_share is None:
            return "exists since 2.23"
        if comm.least_sm < 60 and comm.version >= (2, 26):
            return "needs compute capability 6.0"
        if comm.ppn == 1:
            return None
        if not self.rules.multi_rank_pat:
            return "needs one GPU a node"
        if comm.nodes == 1 or len(comm.heads(comm.nvls)) != comm.ppn:
            return "needs several nodes, and NVLS with all GPUs"
        return None

    def _why_not_collnet(self, collective: Collective, algorithm: Algorithm) -> str | None:
        comm = self.comm
        if comm.nodes == 1:
            return "needs several nodes"
        if not comm.collnet:
            return "CollNet is off or the network does not reduce"
        if algorithm is Algorithm.COLLNET_DIRECT and not comm.nvswitch:
            return "needs NVSwitches"
        since = (2, 23) if algorithm is Algorithm.COLLNET_DIRECT else (2, 28)
        if comm.ppn > _DIRECT_ARITY + 1 and comm.version >= since:
            return "has at most 8 GPUs a node"
        if collective in _SCATTERED and not self.rules.collnet_scatter:
            return "exists since 2.20"
        chain = algorithm is Algorithm.COLLNET_CHAIN and comm.version >= (2, 30, 7)
        if chain and not comm.heads(comm.chain) <= self._collnet_heads():
            return "its heads are not those of NVLS or CollNet direct"
        counts = collective in _SCATTERED or comm.version >= (2, 31)
        few = len(self._collnet_heads()) < comm.ppn
        return "needs a NIC for each GPU" if counts and few else None

    def _collnet_heads(self) -> set[int]:
        comm = self.comm
        return comm.heads(comm.nvls if comm.nvls and comm.version >= (2, 28) else comm.direct)

    def _why_not_nvls(self, collective: Collective, algorithm: Algorithm) -> str | None:
        comm, rules = self.comm, self.rules
        if comm.nvls is None:
            return comm.no_nvls
        if algorithm is Algorithm.NVLS_TREE:
            if comm.nodes == 1:
                return "needs several nodes"
        elif comm.nodes > 1:
            if not comm.collnet:
                return "needs CollNet on several nodes"
            if collective in _SCATTERED:
                if comm.version < (2, 27):
                    return "works on one node only"
                if len(self._collnet_heads()) < comm.ppn:
                    return "needs a NIC for each GPU"
        if comm.version >= (2, 28) and comm.nvls.channels < 2:
            return "needs two channels"
        arity = rules.nvls_arity
        if collective in _SCATTERED and arity is not None and comm.ppn > arity:
            return f"has at most {arity} GPUs a node"
        return None

    def _why_not_ll128(self, graph: SearchResult) -> str | None:
        comm = self.comm
        farthest = PathKind.PXN if comm.least_sm >= 90 else PathKind.PXB
        if graph.inter_type > farthest:
            return f"LL128 needs paths to NICs up to {farthest.name}, here {graph.inter_type.name}"
        if graph.intra_type > PathKind.NVB:
            return f"LL128 needs NVLink between all GPUs, here {graph.intra_type.name}"
        mixed = self.rules.mixed_ll128 and comm.least_sm >= 90
        if comm.least_sm != comm.most_sm and not mixed:
            return "LL128 needs GPUs of one compute capability"
        known = self.rules.ll128_capabilities
        if comm.least_sm < 70 or (known is not None and comm.least_sm not in known):
            return f"LL128 is off for compute capability {comm.least_sm / 10:.1f}"
        return None

    def _cap(self, rows: Mapping[Generation, Row]) -> float:
        return rows.get(self.generation, (0.0, 0.0, 0.0))[self.scale]

    def _bus(
        self, collective: Collective, algorithm: Algorithm, protocol: Protocol, graph: SearchResult
    ) -> tuple[float, Limit]:
        """Return the bandwidth on the bus, and what limits it."""
        if algorithm in _NVLS:
            return self._nvls_bus(collective, algorithm, graph)
        if algorithm is Algorithm.RING:
            return self._ring_bus(collective, protocol, graph)
        if algorithm is Algorithm.TREE:
            return self._tree_bus(protocol, graph)
        if algorithm is Algorithm.PAT:
            speed = self._speed(graph)
            if self.rules.multi_rank_pat:
                speed = min(graph.inter_gb_per_s, graph.intra_gb_per_s)
            share = self.rules.pat_share or 0.0
            return single(single(graph.channels * speed) * share), _graph_limit(graph, speed, share)
        return self._collnet_bus(collective, algorithm, graph)

    def _speed(self, graph: SearchResult) -> float:
        """Return the speed of a channel: inside the node up to two nodes, then between nodes."""
        return graph.intra_gb_per_s if self.comm.nodes <= 2 else graph.inter_gb_per_s

    def _ring_bus(
        self, collective: Collective, protocol: Protocol, graph: SearchResult
    ) -> tuple[float, Limit]:
        comm = self.comm
        speed = self._speed(graph)
        if self.rules.inter_of_blackwell and comm.least_sm >= 100 and comm.nodes == 2:
            speed = graph.inter_gb_per_s
        bus = single(graph.channels * speed)
        if protocol is Protocol.LL:
            reduces = collective in (Collective.ALLREDUCE, Collective.REDUCE)
            share = self.rules.ring_ll_shares[not (comm.nodes > 1 or reduces)]
            return self._capped_ll(single(bus * share), _graph_limit(graph, speed, share))
        if protocol is Protocol.LL128:
            share = self.rules.lonely_ring_ll128 if comm.ppn == 1 else 0.92
            return self._capped_channel(
                single(bus * share),
                _graph_limit(graph, speed, share),
                graph,
                self._cap(self.constants.ring_ll128),
                "LL128",
            )
        return bus, _graph_limit(graph, speed, 1.0)

    def _tree_bus(self, protocol: Protocol, graph: SearchResult) -> tuple[float, Limit]:
        comm = self.comm
        speed = self._speed(graph)
        if self.rules.inter_of_blackwell and comm.least_sm >= 100:
            speed = min(graph.inter_gb_per_s, graph.intra_gb_per_s)
        share = 0.92
        bus, limit = self._capped_channel(
            single(single(graph.channels * speed) * share),
            _graph_limit(graph, speed, share),
            graph,
            self._cap(self.constants.tree),
            "tree",
        )
        if protocol is Protocol.LL:
            bus, limit = self._capped_ll(single(bus / 3.8), limit.scaled(1 / 3.8))
        elif protocol is Protocol.LL128:
            share = 7.0 / 9.0 if comm.nodes == 1 else 120.0 / 128.0
            bus, limit = self._capped_channel(
                single(bus * share),
                limit.scaled(share),
                graph,
                self._cap(self.constants.tree_ll128),
                "LL128",
            )
        if graph.pattern == _PLAIN_TREE:
            bus, limit = single(bus * 0.85), limit.scaled(0.85)
        return bus, limit

    def _capped_ll(self, bus: float, limit: Limit) -> tuple[float, Limit]:
        """Return the bandwidth with LL's cap: by GPU on one node, by CPU vendor on several."""
        rows = self.constants.ll_max
        if self.comm.nodes == 1:
            cap = self._cap(rows)
            words = f"LL's cap for {self.generation.value.title()} GPUs, {cap:g} GB/s"
        else:
            names = list(rows)
            cap = rows[names[1 if self.comm.amd else 0]][self.scale]
            cpu = "AMD" if self.comm.amd else "Intel and other"
            words = f"LL's cap for {cpu} CPUs, {cap:g} GB/s"
        if cap < bus:
            return single(cap), Limit(LimitKind.NODE_CAP, words)
        return bus, limit

    def _capped_channel(
        self, bus: float, limit: Limit, graph: SearchResult, cap: float, name: str
    ) -> tuple[float, Limit]:
        if graph.channels * cap < bus:
            words = (
                f"the cap of {name} for {self.generation.value.title()} GPUs, "
                f"{counted(graph.channels, 'channel')} x {cap:g} GB/s"
            )
            return single(graph.channels * cap), Limit(LimitKind.CHANNEL_CAP, words)
        return bus, limit

    def _nvls_bus(
        self, collective: Collective, algorithm: Algorithm, graph: SearchResult
    ) -> tuple[float, Limit]:
        comm, count = self.comm, graph.channels
        scattered = collective in _SCATTERED
        intra, inter, cap = graph.intra_gb_per_s, graph.inter_gb_per_s, float("inf")
        if comm.version >= (2, 28):
            efficiency = self._cap(self.constants.nvls_efficiency)
            intra = single(intra * single(efficiency) * (count - 1) / count)
            intra = single(intra * ((comm.ppn - 1) / comm.ppn if scattered else 2.0))
            if algorithm is Algorithm.NVLS_TREE:
                inter *= 2 if comm.nodes <= 2 else 1
                cap = single(self._cap(self.constants.nvls_tree))
        elif algorithm is Algorithm.NVLS_TREE:
            inter /= 1 if comm.nodes <= 2 else 2
        elif scattered and self.rules.nvls_scatter_share is not None:
            intra = single(intra * (comm.ppn - 1) / comm.ppn)
            inter = single(inter * single(self.rules.nvls_scatter_share))
        speed = min(intra, inter, cap)
        bus = single(count * speed)
        if speed == cap:
            words = (
                f"the cap of NVLSTree for {self.generation.value.title()} GPUs, "
                f"{counted(count, 'channel')} x {cap:g} GB/s"
            )
            return bus, Limit(LimitKind.CHANNEL_CAP, words)
        if speed == inter:
            words = f"the NVLS graph's bwInter, {counted(count, 'channel')} x {inter:.4g} GB/s"
            return bus, Limit(LimitKind.INTER, words)
        words = f"the NVLS graph's bwIntra, {counted(count, 'channel')} x {intra:.4g} GB/s"
        return bus, Limit(LimitKind.INTRA, words)

    def _collnet_bus(
        self, collective: Collective, algorithm: Algorithm, graph: SearchResult
    ) -> tuple[float, Limit]:
        comm, count = self.comm, graph.channels
        speed = graph.intra_gb_per_s
        if collective in _SCATTERED:
            if comm.version >= (2, 27):
                speed = min(speed, single(graph.inter_gb_per_s * single(0.9)))
                return single(comm.ppn * speed), _graph_limit(graph, speed, 1.0)
            weight = (comm.ppn - 1) / 7
            share = weight * 0.85 + (1 - weight) * 0.95
            return single(comm.ppn * speed * share), _graph_limit(graph, speed, share)
        share = 1.0
        if algorithm is Algorithm.COLLNET_DIRECT:
            gpus_a_nic = comm.ppn / count
            share = 1 / (gpus_a_nic - (gpus_a_nic - 1) / 2) * (0.85 if comm.least_sm >= 90 else 1.0)
        return single(count * speed * share), _graph_limit(graph, speed, share)

    def _algorithm_bandwidth(
        self, collective: Collective, algorithm: Algorithm, bus: float
    ) -> float:
        """Return the algorithm bandwidth for a bandwidth on the bus."""
        ranks = self.comm.ranks
        scattered = collective in _SCATTERED
        if algorithm is Algorithm.RING:
            return single(bus * single(ranks / ring_steps(collective, ranks)))
        direct = algorithm is Algorithm.COLLNET_DIRECT and self.rules.collnet_scatter
        if scattered and (direct or not self.rules.halved_scatter):
            return bus
        if algorithm in _NVLS:
            if self.comm.version < (2, 28):
                return single(bus * single(5.0 / 6.0))
            return single(bus * single(ranks / ring_steps(collective, ranks)))
        return single(bus * 0.5)

    def _latency(
        self,
        collective: Collective,
        algorithm: Algorithm,
        protocol: Protocol,
        graph: SearchResult,
        inter: float,
    ) -> float:
        comm, constants = self.comm, self.constants
        base = constants.base_us(algorithm, protocol)
        near = Link.NVLINK if graph.intra_type is PathKind.NVL else Link.PCI
        intra = constants.step_us(near, algorithm, protocol)
        local, depth = comm.ppn - 1, comm.nodes.bit_length() - 1
        if algorithm is Algorithm.RING:
            return self._ring_latency(collective, protocol, base, near, inter)
        if algorithm is Algorithm.TREE:
            found = base + 2 * (local * intra + depth * inter)
        elif algorithm is Algorithm.COLLNET_DIRECT:
            found = base + 2 * (min(1, local) * intra + local * 0.4) + inter
        elif algorithm is Algorithm.COLLNET_CHAIN:
            found = base + 2 * local * intra + inter
        elif algorithm is Algorithm.NVLS:
            found = intra + (inter if comm.nodes > 1 else 0.0)
        elif algorithm is Algorithm.NVLS_TREE:
            found = base + intra + 2 * depth * inter
        else:
            found = base + depth * (inter / 3.5) + comm.ranks * 2.8
        return single(found)

    def _inter_us(self, algorithm: Algorithm, protocol: Protocol, graph: SearchResult) -> float:
        """Return the latency of a step between nodes."""
        comm, rules = self.comm, self.rules
        named = algorithm
        if (
            comm.ppn == 1
            and rules.lonely_as_tree
            and (algorithm is Algorithm.RING or comm.version < (2, 31))
        ):
            named = Algorithm.TREE
        latency = comm.latency_us(graph)
        inter = self.constants.step_us(Link.NET, named, protocol) + latency
        twice = protocol is Protocol.SIMPLE and not (
            algorithm is Algorithm.PAT and rules.multi_rank_pat
        )
        return inter + latency if twice else inter

    def _ring_latency(
        self, collective: Collective, protocol: Protocol, base: float, near: Link, inter: float
    ) -> float:
        comm, constants = self.comm, self.constants
        steps = ring_steps(collective, comm.ranks)
        if collective in (Collective.BROADCAST, Collective.REDUCE):
            link = near if comm.nodes == 1 else Link.NET
            step = constants.step_us(link, Algorithm.RING, protocol)
            if comm.ring.same_channels:
                return single(base + step)
            if protocol is Protocol.SIMPLE:
                step = constants.step_us(link, Algorithm.TREE, protocol)
            return single(base + steps * step)
        intra = constants.step_us(near, Algorithm.RING, protocol)
        crossing = 0
        if comm.nodes > 1:
            amd = comm.amd and comm.arch == "x86_64"
            overhead = (2.0 if amd else 1.0) * (3 if protocol is Protocol.SIMPLE else 1)
            intra = max(intra, overhead)
            crossing = comm.nodes - 1
            if collective is Collective.ALLREDUCE:
                crossing = 2 * (comm.nodes if self.rules.all_inter_steps else crossing)
        return single(base + (steps - crossing) * intra + crossing * inter)


def _on_power(constants: Constants, comm: Communicator) -> Constants:
    """Return the constants on POWER: up to 2.30 a tree's step over PCIe counts as a ring's."""
    if comm.arch != "ppc64" or comm.version >= (2, 31):
        return constants
    simple = constants.pci[Algorithm.RING][2]
    tree = (*constants.pci[Algorithm.TREE][:2], simple)
    pci = {**constants.pci, Algorithm.TREE: tree}
    return msgspec.structs.replace(constants, pci=pci)


def ring_steps(collective: Collective, ranks: int) -> int:
    """Return the steps of a ring."""
    if collective is Collective.ALLREDUCE:
        return 2 * (ranks - 1)
    return ranks - 1 if collective in _SCATTERED else ranks


def _graph_limit(graph: SearchResult, speed: float, share: float) -> Limit:
    words = f"the graph, {counted(graph.channels, 'channel')} x {speed:.4g} GB/s"
    limit = Limit(LimitKind.GRAPH, words)
    return limit if share == 1.0 else limit.scaled(share)
