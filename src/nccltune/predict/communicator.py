# SPDX-License-Identifier: Apache-2.0
"""What NCCL's cost model sees of a platform: ranks, CPUs, and the graphs of its search."""

import functools
from collections.abc import Mapping

import msgspec

from nccltune.model.errors import InputError
from nccltune.model.topology import Topology
from nccltune.predict.constants import rules_of
from nccltune.topology.flows.settings import FlowSettings, flow_settings
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.hardware.fill_in import filled
from nccltune.topology.hardware.subset import first_gpus, only_nics
from nccltune.topology.nccl_model.routes import NodeRoutes, node_routes
from nccltune.topology.nccl_model.search import (
    CollnetSearched,
    Searched,
    SearchResult,
    nvls_channels,
    search,
    search_collnet,
    search_nvls,
)

_KEPT = 32
"""Number of cached searches. A search takes a second, and is the same for all numbers of nodes."""


class Communicator(msgspec.Struct, frozen=True, kw_only=True):
    """A communicator of `nodes` equal nodes with `ppn` GPUs each.

    - `least_sm`, `most_sm`: the lowest and the highest compute capability times 10.
    - `arch`, `vendor`: of the first CPU, as in the topology.
    - `nvls`: None if NVLS is off. `chain` and `direct`: the same for CollNet.
    - `channels`: channels of all algorithms but NVLS ("coll channels").
    - `call_channels`: the most of them that a single call gets: in 2.20 and 2.21 not those that
      were added for NVLS.
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
    chain: SearchResult | None
    direct: SearchResult | None
    channels: int
    call_channels: int
    nvls_channels: int
    latency_us: float
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

    `settings` are `NCCL_*` variables: those of paths and NICs, NCCL_NVLS_ENABLE,
    NCCL_COLLNET_ENABLE, NCCL_CROSS_NIC, and the limits of channels. Without NCCL_NVLS_ENABLE, NVLS
    is on if the node has NVSwitches and enough GPUs of Hopper or later. With 1 it is on wherever
    the search finds channels for it.

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
    if nodes * gpus < 2:
        raise InputError(
            "one rank has no peer to communicate with", hint="add --nodes 2, or more GPUs a node"
        )
    if nodes > 1 and not node.nets:
        raise InputError(
            "names no NIC, so several nodes cannot be joined",
            where=topology.source,
            hint="have NCCL write the file on a run of several nodes, or ask for --nodes 1",
        )
    sms = [gpu.sm for gpu in node.gpus]
    found = _search(case)
    enough = gpus >= rules_of(version).least_nvls_gpus or chosen.nvls is True
    with_nvls = chosen.nvls is not False and gpus > 1 and enough
    nvls = _nvls(case) if with_nvls else None
    collnet = CollnetSearched(None, None)
    if nodes > 1 and (settings or {}).get("NCCL_COLLNET_ENABLE", "0").strip() == "1":
        collnet = _collnet(case, found.ring.channels)
    limits = (nodes, min(sms), chosen.min_channels, chosen.max_channels)
    channels = found.connected_channels(*limits, nvls=nvls is not None)
    own = (2, 20) <= version < (2, 22)
    last = found.ring.rings[-1].net_in
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
        chain=collnet.chain,
        direct=collnet.direct if collnet.chain is not None else None,
        channels=channels,
        call_channels=found.connected_channels(*limits) if own else channels,
        nvls_channels=nvls_channels(version, min(sms), nodes) if nvls is not None else 0,
        latency_us=0.0 if last is None else node.nets[last].latency_us,
        least_net_gb_per_s=min((net.gb_per_s for net in node.nets), default=0.0),
        notes=node.notes,
    )


class _Case(msgspec.Struct, frozen=True):
    topology: Topology
    settings: FlowSettings
    version: Version
    several: bool

    @property
    def nodes(self) -> int:
        return 2 if self.several else 1


@functools.lru_cache(maxsize=_KEPT)
def _routes(case: _Case) -> NodeRoutes:
    return node_routes(case.topology, case.settings.path, version=case.version)


@functools.lru_cache(maxsize=_KEPT)
def _search(case: _Case) -> Searched:
    cross_nic = case.settings.cross_nic
    return search(_routes(case), nodes=case.nodes, cross_nic=cross_nic, version=case.version)


@functools.lru_cache(maxsize=_KEPT)
def _nvls(case: _Case) -> SearchResult | None:
    return search_nvls(_routes(case), nodes=case.nodes, version=case.version)


@functools.lru_cache(maxsize=_KEPT)
def _collnet(case: _Case, channels: int) -> CollnetSearched:
    return search_collnet(_routes(case), nodes=case.nodes, channels=channels, version=case.version)
