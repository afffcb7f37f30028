# SPDX-License-Identifier: Apache-2.0
"""Predict the bandwidth that a collective should reach on a platform, and the limiting link."""

import functools
from collections.abc import Mapping

import msgspec

from nccltune.formats.topology.graph_xml import Pattern
from nccltune.model.choice import Algorithm
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.model.topology import Topology
from nccltune.topology.flows.calibration import Calibration, defaults, figure_of
from nccltune.topology.flows.ceiling import Ceiling, FullLink, ceiling
from nccltune.topology.flows.flows import algorithms, flows
from nccltune.topology.flows.settings import FlowSettings, flow_settings
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.hardware.fill_in import filled, leaves_nvlink_out
from nccltune.topology.hardware.links import LinkKind
from nccltune.topology.hardware.rebuild import devices_of
from nccltune.topology.hardware.subset import first_gpus, only_nics
from nccltune.topology.nccl_model.booked import algbw_gb_per_s
from nccltune.topology.nccl_model.flow_kind import FlowKind
from nccltune.topology.nccl_model.routes import NodeRoutes, node_routes
from nccltune.topology.nccl_model.search import Searched, SearchResult, search
from nccltune.topology.nccl_model.settings import PathSettings

_SHOWN = 0.02
"""A kind of flow with a smaller share of a link's bandwidth is not shown."""
_NEAR = 0.05
"""Difference in load (1 is full) from the bottleneck, up to which a link may be the real limit."""
_LOADED = 0.1
"""Load (1 is full) above which a link with only an upper bound makes the ceiling unsure."""
MOST_NODES = 1 << 20
_KEPT = 32
"""Number of cached searches. A search takes a second; what-if, doctor and reports repeat it."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """The ceiling at large sizes: the bandwidth that the links allow if nothing else limits it.

    - `load_by_kind`: load of the bottleneck link in GB/s by kind of flow.
    - `used`: the sum of these loads divided by the link's bandwidth `capacity_gb_per_s`; 1 is full.
    - `nccl_busbw_gb_per_s`: the bandwidth in NCCL's own cost model. That model has no kinds of
      flows and no host memory.
    - `alternatives`: the ceilings of the algorithms that NCCL does not choose.
    - `flows_gb_per_s`: the largest load of each kind of flow on any link of the node.
    - `host_memory_gb_per_s`: the traffic through host memory, written and read.
    - `calibrated_by`: the name of the calibration figure (a number of the model, such as an
      efficiency) for the largest load on the bottleneck.
    - `plain_tree`: whether the ceiling of trees is lowered by the calibration figure `plain_tree`.
    - `sure`: False if a bandwidth that matters was assumed, or if there are other `notes`.
    """

    busbw_gb_per_s: float
    bottleneck: str
    load_by_kind: dict[FlowKind, float]
    sentence: str
    capacity_gb_per_s: float
    used: float
    role: str
    algorithm: Algorithm
    channels: int
    ranks_per_node: int
    nccl_busbw_gb_per_s: float | None
    alternatives: dict[Algorithm, float]
    flows_gb_per_s: dict[FlowKind, float]
    host_memory_gb_per_s: float
    calibrated_by: str
    plain_tree: bool
    sure: bool
    notes: tuple[str, ...]


def expect(
    topology: Topology,
    *,
    collective: Collective = Collective.ALLREDUCE,
    nodes: int = 1,
    ranks_per_node: int | None = None,
    settings: Mapping[str, str] | None = None,
    calibration: Calibration | None = None,
    nccl_version: Version | None = None,
) -> Expected:
    """Return the ceiling of `collective` on `nodes` nodes that all equal `topology`.

    - `ranks_per_node`: use the first GPUs of the node; None is all.
    - `settings`: `NCCL_*` variables.
    - `calibration`: the efficiencies; None is the defaults.
    - `nccl_version`: the version whose rules apply to paths and search; None is the newest known.

    The network beyond the NICs is assumed to be wide enough. GPUs and NVLinks that the file leaves
    to detection are assumed from device ids and the shape of the node.

    Raises InputError if the model has no answer: no GPU, GPUs of unknown model, no NIC for several
    nodes, fewer than two ranks, a link without bandwidth, an invalid setting, or a collective that
    NCCL builds from send and receive.

    >>> from nccltune.examples import example
    >>> from nccltune.topology.files.load import load_topology
    >>> found = expect(load_topology(example("h200x4-1-node")))
    >>> f"{found.algorithm} {found.busbw_gb_per_s:.0f} GB/s, limited by {found.bottleneck}"
    'nvls 378 GB/s, limited by GPU0 -> NVS'
    """
    _check(collective, nodes)
    chosen = flow_settings(settings or {})
    topology = filled(topology)
    if ranks_per_node is not None:
        topology = first_gpus(topology, ranks_per_node)
    topology = only_nics(topology, chosen.nics)
    node = _node_routes(topology, chosen.path, nccl_version)
    if nodes * len(node.gpus) < 2:
        raise InputError(
            "one rank has no peer to communicate with", hint="add --nodes 2, or more GPUs a node"
        )
    if nodes > 1 and not node.nets:
        raise InputError(
            "names no NIC, so several nodes cannot be joined",
            where=topology.source,
            hint="have NCCL write the file on a run of several nodes, or ask for --nodes 1",
        )
    _check_nvlink(topology, len(node.gpus))
    found = _search(topology, chosen.path, nccl_version, nodes > 1, chosen.cross_nic)
    sm = min(gpu.sm for gpu in node.gpus)
    channels = found.connected_channels(nodes, sm, chosen.min_channels, chosen.max_channels)
    ceilings: dict[Algorithm, Ceiling] = {}
    for algorithm in algorithms(collective, node, nodes, nvls=chosen.nvls):
        flow = flows(
            node, found, collective=collective, algorithm=algorithm, nodes=nodes, channels=channels
        )
        pattern = found.tree.pattern
        ceilings[algorithm] = ceiling(node, flow, calibration or defaults(), pattern=pattern)
    ranks = nodes * len(node.gpus)
    booked = {
        one: algbw_gb_per_s(graph, one, collective, nodes, ranks)
        for one, graph in ((Algorithm.RING, found.ring), (Algorithm.TREE, found.tree))
        if one in ceilings
    }
    taken = _taken(ceilings, booked, chosen)
    own = booked.get(taken)
    _check_bandwidth(topology, ceilings[taken])
    factor = collective.bus_factor(ranks)
    notes = [*node.notes, *_notes(found.ring, chosen, ceilings)]
    return _expected(
        ceilings,
        taken,
        None if own is None else own * factor,
        tuple(notes),
        collective,
        nvlink_noted=bool(topology.assumed),
        plain_tree=found.tree.pattern is Pattern.TREE,
        ranks_per_node=len(node.gpus),
    )


@functools.lru_cache(maxsize=_KEPT)
def _node_routes(topology: Topology, settings: PathSettings, version: Version | None) -> NodeRoutes:
    return node_routes(topology, settings, version=version)


@functools.lru_cache(maxsize=_KEPT)
def _search(
    topology: Topology,
    settings: PathSettings,
    version: Version | None,
    several: bool,
    cross_nic: int,
) -> Searched:
    """Return the cached search result, which is the same for all numbers of nodes above one.

    `several` is True for more than one node.
    """
    node = _node_routes(topology, settings, version)
    return search(node, nodes=2 if several else 1, cross_nic=cross_nic, version=version)


def _check(collective: Collective, nodes: int) -> None:
    if collective not in TUNED:
        raise InputError(
            f"{collective.prose} consists of send and receive, whose paths differ for every peer",
            where="--collective",
            hint=" ".join(TUNED),
        )
    if not 1 <= nodes <= MOST_NODES:
        raise InputError(f"{nodes} is not between 1 and {MOST_NODES}", where="--nodes")


def _check_nvlink(topology: Topology, gpus: int) -> None:
    """Raise InputError if there are several GPUs and the NVLinks between them are unknown.

    A guess would be wrong by up to a factor of ten, the ratio of NVLink to PCIe.
    """
    if gpus > 1 and leaves_nvlink_out(topology):
        raise InputError(
            "leaves NVLink to detection, and the GPU model is unknown: whether NVLink joins the "
            "GPUs is not known",
            where=topology.source,
            hint='add vendor="0x10de" device="0x2330" to each GPU\'s <pci> as lspci -nn shows it, '
            "or have NCCL write the whole machine: NCCL_TOPO_DUMP_FILE=topo.xml",
        )


def _check_bandwidth(topology: Topology, found: Ceiling) -> None:
    """Raise InputError if a link with a load has bandwidth 0: its real bandwidth is unknown."""
    for one in found.links:
        if one.link.gb_per_s > 0:
            continue
        line = next(
            (
                device.line
                for device in devices_of(topology)
                if device.width is not None and device.width < 0 and device.line is not None
            ),
            None,
        )
        raise InputError(
            f"{one.link.name} has no bandwidth ({one.link.how})",
            where=topology.source if line is None else f"{topology.source}:{line}",
            hint="the file does not have the real bandwidth of the link: "
            + (
                'write its width, such as link_width="16" (lspci -vv: LnkSta)'
                if line is not None
                else "look for a count or a bandwidth of 0"
            ),
        )


def _taken(
    ceilings: Mapping[Algorithm, Ceiling],
    booked: Mapping[Algorithm, float],
    chosen: FlowSettings,
) -> Algorithm:
    """Return the algorithm that NCCL uses for large sizes.

    It is the algorithm in NCCL_ALGO, if that is available. Otherwise it is ring or tree, whichever
    has the higher bandwidth in NCCL's cost model (`booked`). NVLS replaces that algorithm if the
    ceiling of NVLS is higher.
    """
    if chosen.algorithm is not None and chosen.algorithm in ceilings:
        return chosen.algorithm
    by_model = max(booked, key=lambda one: (booked[one], one is Algorithm.RING))
    nvls = ceilings.get(Algorithm.NVLS)
    if nvls is not None and nvls.busbw_gb_per_s > ceilings[by_model].busbw_gb_per_s:
        return Algorithm.NVLS
    return by_model


def _notes(
    ring: SearchResult, chosen: FlowSettings, ceilings: Mapping[Algorithm, Ceiling]
) -> list[str]:
    notes = []
    if ring.fell_back:
        notes.append(
            "NCCL finds no ring here and falls back to one channel of 0.1 GB/s (see nccltune lint)"
        )
    if chosen.algorithm is not None and chosen.algorithm not in ceilings:
        notes.append(f"NCCL_ALGO={chosen.algorithm.value} is not available here and is ignored")
    return notes


def _expected(
    ceilings: Mapping[Algorithm, Ceiling],
    taken: Algorithm,
    own: float | None,
    notes: tuple[str, ...],
    collective: Collective,
    *,
    nvlink_noted: bool,
    plain_tree: bool,
    ranks_per_node: int,
) -> Expected:
    best = ceilings[taken]
    full = best.bottleneck
    unsure = [one for one in best.links if _is_in_doubt(one, full)]
    assumed = tuple(
        dict.fromkeys(
            f"assumed: {one.link.how}"
            for one in unsure
            if not (nvlink_noted and one.link.kind is LinkKind.NVLINK)
        )
    )
    return Expected(
        busbw_gb_per_s=best.busbw_gb_per_s,
        bottleneck=full.link.name,
        load_by_kind=full.by_kind,
        sentence=sentence(collective, best),
        capacity_gb_per_s=full.link.gb_per_s,
        used=full.used,
        role=full.role,
        algorithm=taken,
        channels=best.channels,
        ranks_per_node=ranks_per_node,
        nccl_busbw_gb_per_s=own,
        alternatives={
            one: found.busbw_gb_per_s for one, found in ceilings.items() if one is not taken
        },
        flows_gb_per_s=_flows(best),
        host_memory_gb_per_s=_host_memory(best),
        calibrated_by=figure_of(max(full.by_kind, key=lambda kind: full.by_kind[kind]), full.link),
        plain_tree=plain_tree,
        sure=not unsure and not notes,
        notes=(*notes, *assumed),
    )


def _is_in_doubt(one: FullLink, full: FullLink) -> bool:
    """Return whether the ceiling could change if the assumed bandwidth of a link is wrong."""
    if one.link.sure:
        return False
    return one.used > full.used - _NEAR or (one.link.upper_bound and one.used > _LOADED)


def _flows(found: Ceiling) -> dict[FlowKind, float]:
    most: dict[FlowKind, float] = {}
    for full in found.links:
        for kind, load in full.by_kind.items():
            most[kind] = max(most.get(kind, 0.0), load)
    return {kind: most[kind] for kind in FlowKind if kind in most}


def _host_memory(found: Ceiling) -> float:
    """Return the traffic through host memory in GB/s, in the node with the most such traffic.

    All nodes of a role have the same traffic, so the sum over a role's memory links is that of one
    node.
    """
    by_role: dict[str, float] = {}
    for full in found.links:
        if full.link.kind is LinkKind.MEMORY:
            load = full.used * full.link.gb_per_s
            by_role[full.role] = by_role.get(full.role, 0.0) + load
    return max(by_role.values(), default=0.0)


def sentence(collective: Collective, found: Ceiling) -> str:
    """Return a sentence with the ceiling and the link that limits it."""
    full = found.bottleneck
    state = (
        "full" if full.used > 0.995 else f"{full.used:.0%} full, all that {found.algorithm} gets"
    )
    return (
        f"{collective.prose} ({found.algorithm.value}) can reach {found.busbw_gb_per_s:.3g} GB/s: "
        f"{full.link.name} ({full.link.gb_per_s:.3g} GB/s) is {state}: {load_words(full)}"
    )


def load_words(full: FullLink) -> str:
    """Return the load of a link in GB/s by kind of flow, largest first, as text.

    For example `GPU writes GPU 21.5, read requests 2.47`.
    """
    kinds = sorted(full.by_kind.items(), key=lambda item: -item[1])
    shown = [item for item in kinds if item[1] >= _SHOWN * full.link.gb_per_s] or kinds[:1]
    return ", ".join(f"{kind.prose} {load:.3g}" for kind, load in shown)
