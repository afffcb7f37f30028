# SPDX-License-Identifier: Apache-2.0
"""What NCCL's cost model sees of a platform: ranks, CPUs, and the graphs of its search."""

import functools
from collections.abc import Mapping

import msgspec

from nccltune.model.errors import InputError
from nccltune.model.topology import Dialect, Topology
from nccltune.predict.constants import rules_of
from nccltune.topology.flows.domain import is_tray
from nccltune.topology.flows.expect import cached_routes, cached_search, check_peers
from nccltune.topology.flows.settings import READ, FlowSettings, flow_settings
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.hardware.fill_in import filled
from nccltune.topology.hardware.links import Link, LinkKind
from nccltune.topology.hardware.subset import first_gpus, only_nics
from nccltune.topology.nccl_model.routes import NodeRoutes
from nccltune.topology.nccl_model.search import (
    CollnetSearched,
    Searched,
    SearchResult,
    nvls_channels,
    search_collnet,
    search_nvls,
)

SETTINGS: tuple[str, ...] = (*READ, "NCCL_PROTO", "NCCL_COLLNET_ENABLE")
"""The settings that change a prediction here. No other setting is modelled."""
_KEPT = 32
"""Number of cached searches. A search takes a second, and is the same for all numbers of nodes."""


class Communicator(msgspec.Struct, frozen=True, kw_only=True):
    """A communicator of `nodes` equal nodes with `ppn` GPUs each.

    - `least_sm`, `most_sm`: the lowest and the highest compute capability times 10.
    - `arch`, `vendor`: of the first CPU, as in the topology.
    - `nvls`: None if NVLS is off; `no_nvls` is then the reason. `chain` and `direct`: those of
      CollNet, None if it is off.
    - `channels`: channels of all algorithms but NVLS ("coll channels").
    - `call_channels`: the most of them that a single call gets: in 2.20 and 2.21 not those that
      were added for NVLS.
    - `net_latencies_us`: the latency of each NIC, by index.
    - `least_net_gb_per_s`: the bandwidth of the slowest NIC; 0 without a NIC.
    """

    version: Version
    nodes: int
    ppn: int
    least_sm: int
    most_sm: int
    arch: str
    vendor: str
    nvswitch: bool
    ring: SearchResult
    tree: SearchResult
    nvls: SearchResult | None
    no_nvls: str
    chain: SearchResult | None
    direct: SearchResult | None
    channels: int
    call_channels: int
    nvls_channels: int
    net_latencies_us: tuple[float, ...]
    least_net_gb_per_s: float
    notes: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.nodes * self.ppn

    @property
    def amd(self) -> bool:
        """Return whether the CPU is of AMD."""
        return self.vendor == "AuthenticAMD"

    @property
    def collnet(self) -> bool:
        """Return whether CollNet is on."""
        return self.chain is not None

    def latency_us(self, graph: SearchResult) -> float:
        """Return the latency of the NIC that the search tried last (`latencyInter`)."""
        net = graph.rings[-1].net_in
        return 0.0 if net is None or graph.fell_back else self.net_latencies_us[net]

    def heads(self, graph: SearchResult | None) -> set[int]:
        """Return the GPUs that begin a channel of a graph."""
        return {ring.gpus[0] for ring in graph.rings} if graph is not None else set()


def communicator(
    topology: Topology,
    *,
    nodes: int,
    version: Version,
    ranks_per_node: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> Communicator:
    """Return the communicator of all GPUs of `nodes` nodes that equal `topology`.

    `settings` are `NCCL_*` variables; those in `SETTINGS` count. Without NCCL_NVLS_ENABLE, NVLS is
    on if the node has NVSwitches and enough GPUs of Hopper or later. With 1 it is on wherever the
    search finds channels for it. NVLink between nodes (MNNVL) is not modelled.

    Raises InputError for a single rank and for several nodes without a NIC.
    """
    chosen = flow_settings(settings or {})
    topology = filled(topology)
    if ranks_per_node is not None:
        topology = first_gpus(topology, ranks_per_node)
    topology = only_nics(topology, chosen.nics)
    case = _Case(topology, chosen, version, nodes > 1)
    node = _routes(case)
    gpus = len(node.gpus)
    _check(topology)
    check_peers(topology, node, nodes)
    sms = [gpu.sm for gpu in node.gpus]
    found = _search(case)
    no_nvls = _why_no_nvls(node, chosen, version)
    nvls = None if no_nvls else _nvls(case)
    collnet = CollnetSearched(None, None)
    if nodes > 1 and (settings or {}).get("NCCL_COLLNET_ENABLE", "0").strip() == "1":
        collnet = _collnet(case, found.ring.channels)
    limits = (nodes, min(sms), chosen.min_channels, chosen.max_channels)
    channels = found.connected_channels(*limits, nvls=nvls is not None)
    own = (2, 20) <= version < (2, 22)
    return Communicator(
        version=version,
        nodes=nodes,
        ppn=gpus,
        least_sm=min(sms),
        most_sm=max(sms),
        arch=topology.cpus[0].arch or "x86_64",
        vendor=topology.cpus[0].vendor or "",
        nvswitch=node.nvswitch,
        ring=found.ring,
        tree=found.tree,
        nvls=nvls,
        no_nvls=no_nvls or "the search finds no channels for NVLS",
        chain=collnet.chain,
        direct=collnet.direct if collnet.chain is not None else None,
        channels=channels,
        call_channels=found.connected_channels(*limits) if own else channels,
        nvls_channels=nvls_channels(version, min(sms), nodes) if nvls is not None else 0,
        net_latencies_us=tuple(net.latency_us for net in node.nets),
        least_net_gb_per_s=min((net.gb_per_s for net in node.nets), default=0.0),
        notes=_notes(topology, node, chosen, found, nodes),
    )


def _check(topology: Topology) -> None:
    """Raise InputError if the file lacks what decides: then NCCL sees another machine."""
    if topology.dialect is Dialect.RCCL:
        raise InputError("is a file of RCCL, whose model is another one", where=topology.source)
    if topology.dialect is Dialect.SMI:
        raise InputError(
            "shows no speeds of links, which NCCL's choice rests on",
            where=topology.source,
            hint="have NCCL write the machine: NCCL_TOPO_DUMP_FILE=topo.xml",
        )


def _notes(
    topology: Topology, node: NodeRoutes, chosen: FlowSettings, found: Searched, nodes: int
) -> tuple[str, ...]:
    """Return what is assumed, and what the search did not find."""
    notes = list(node.notes)
    if found.ring.fell_back:
        notes.append("NCCL finds no ring here and falls back to one channel of 0.1 GB/s")
    if nodes == 1:
        return tuple(notes)
    labels = {net.name: net.label for net in node.nets}
    slow = [labels[link.source] for link in node.links if _is_unknown_net(link, labels)]
    if slow:
        notes.append(f"assumed: {slow[0]} has no speed in the file: 10 Gbit/s, as NCCL takes it")
    if chosen.mnnvl and is_tray(topology):
        notes.append(
            "the nodes are trays of a rack with NVLink between nodes (MNNVL), which is not "
            "modelled: this is NCCL with NCCL_MNNVL_ENABLE=0"
        )
    return tuple(notes)


def _is_unknown_net(link: Link, labels: Mapping[str, str]) -> bool:
    return link.kind is LinkKind.NET and link.source in labels and link.wire_is_unknown


def _why_no_nvls(node: NodeRoutes, chosen: FlowSettings, version: Version) -> str:
    """Return why NVLS is off before the search; empty if it is on."""
    if chosen.nvls is False:
        return "NCCL_NVLS_ENABLE=0"
    if not node.nvswitch:
        return "needs NVSwitches"
    if min(gpu.sm for gpu in node.gpus) < 90:
        return "needs GPUs from Hopper on"
    least = 2 if chosen.nvls else rules_of(version).least_nvls_gpus
    return f"needs {least} GPUs a node" if len(node.gpus) < least else ""


class _Case(msgspec.Struct, frozen=True):
    topology: Topology
    settings: FlowSettings
    version: Version
    several: bool

    @property
    def nodes(self) -> int:
        return 2 if self.several else 1


def _routes(case: _Case) -> NodeRoutes:
    return cached_routes(case.topology, case.settings.path, case.version)


def _search(case: _Case) -> Searched:
    path, cross_nic = case.settings.path, case.settings.cross_nic
    return cached_search(case.topology, path, case.version, case.nodes > 1, cross_nic)


@functools.lru_cache(maxsize=_KEPT)
def _nvls(case: _Case) -> SearchResult | None:
    return search_nvls(_routes(case), nodes=case.nodes, version=case.version)


@functools.lru_cache(maxsize=_KEPT)
def _collnet(case: _Case, channels: int) -> CollnetSearched:
    return search_collnet(_routes(case), nodes=case.nodes, channels=channels, version=case.version)
