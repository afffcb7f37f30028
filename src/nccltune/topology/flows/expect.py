# SPDX-License-Identifier: Apache-2.0
"""Compute the bandwidth that the hardware of a platform allows a collective, and what limits it."""

import functools
from collections.abc import Mapping
from importlib import resources

import msgspec

from nccltune.model.choice import Algorithm
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.model.topology import Dialect, Topology
from nccltune.topology.flows.calibration import Calibration, defaults, figure_of
from nccltune.topology.flows.ceiling import Ceiling, FullLink, ceiling
from nccltune.topology.flows.domain import joined, note
from nccltune.topology.flows.flows import algorithms, domain_flows, flows, may_use_nvls, mesh_rings
from nccltune.topology.flows.settings import FlowSettings, flow_settings
from nccltune.topology.hardware.bandwidth import Version, architecture, nvlink_generation
from nccltune.topology.hardware.change import devices_of
from nccltune.topology.hardware.fill_in import filled, leaves_nvlink_out
from nccltune.topology.hardware.links import Link, LinkKind
from nccltune.topology.hardware.subset import first_gpus, only_nics
from nccltune.topology.nccl_model.routes import FlowKind, NodeRoutes, node_routes
from nccltune.topology.nccl_model.search import NEWEST, Searched, SearchResult, search, search_nvls
from nccltune.topology.nccl_model.settings import PathSettings

UNMEASURED = (
    "assumed: the model holds here, too. No published measurement is known of a ceiling of this "
    "kind (algorithm, limiting link, generation of the GPUs, number of nodes)"
)
NEAR = 1.3
"""A measurement confirms a ceiling that is at most this many times the measured bandwidth."""
_OF_GPU = ("nvlink", "xgmi", "nvls", "nvls_blackwell")
"""Figures of links that differ by the generation of the GPU."""


def kind_of(algorithm: Algorithm, figure: str, gpu: str, *, nodes: int, joined: bool) -> str:
    """Return the kind of a ceiling by its limiting link's figure, such as `nvls nvls sm90 node`.

    `gpu` is the generation of the GPUs: sm90, or gfx94 of AMD.
    """
    reach = "domain" if joined else {1: "node", 2: "two"}.get(nodes, "more")
    # A ring over NICs or PCIe is alike on all GPUs. What NCCL gets out of the others is not.
    is_alike = algorithm is Algorithm.RING and figure not in _OF_GPU
    generation = [] if is_alike else [gpu]
    return " ".join([algorithm.value, figure, *generation, reach])


@functools.cache
def _measured_kinds() -> frozenset[str]:
    data = resources.files("nccltune.topology.flows").joinpath("measured_kinds.json").read_bytes()
    return frozenset(msgspec.json.decode(data, type=list[str]))


def is_measured(kind: str) -> bool:
    """Return whether a published measurement confirms a ceiling of this kind."""
    return kind in _measured_kinds()


_SHOWN = 0.02
"""A kind of flow with a smaller share of a link's bandwidth is not shown."""
_NEAR = 0.05
"""Difference in load (1 is full) from the bottleneck, up to which a link may be the real limit."""
_LOADED = 0.1
"""Load (1 is full) above which a link with only an upper bound makes the ceiling unsure."""
_LOADED_MEMORY = 0.4
"""The same for host memory, half of whose modules may be missing."""
MOST_NODES = 1 << 20
_WRITE_DUMP = "have NCCL write the whole machine: NCCL_TOPO_DUMP_FILE=topo.xml"
_KEPT = 128
"""Number of cached searches. A search takes a second; what-if, doctor and reports repeat it."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """The ceiling at large sizes: the bandwidth that the wires allow if nothing else limits it.

    - `algorithm`: that with the highest ceiling of those possible here; NCCL may choose another.
    - `load_by_kind`: load of the bottleneck in GB/s by kind of flow; `used` is its share of
      capacity.
    - `nccl_busbw_gb_per_s`: what NCCL's search books for a ring; None for other algorithms.
    - `flows_gb_per_s`: the largest load of each kind of flow on any link of the node.
    - `host_memory_gb_per_s`: the traffic through host memory, written and read.
    - `calibrated_by`: the calibration figure of the largest load on the bottleneck.
    - `kind`: by which a measurement confirms the ceiling (`measured_kinds.json`).
    - `sure`: False if a bandwidth that matters was assumed, nothing of its kind was measured, or
      there are other `notes`.
    - `at_most`: the ceiling cannot be higher: only other links than the bottleneck are assumed.
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
    kind: str
    sure: bool
    at_most: bool
    notes: tuple[str, ...]

    def flow_words(self, kind: FlowKind) -> str:
        """Return text such as `GPU to GPU over NVLink`, or over xGMI."""
        return kind.prose.replace("NVLink", "xGMI") if " xgmi " in self.kind else kind.prose


def expect(
    topology: Topology,
    *,
    collective: Collective = Collective.ALLREDUCE,
    nodes: int = 1,
    ranks_per_node: int | None = None,
    settings: Mapping[str, str] | None = None,
    calibration: Calibration | None = None,
    nccl_version: Version | None = None,
    nvlink_domains: int | None = None,
) -> Expected:
    """Return the ceiling of `collective` on `nodes` nodes that all equal `topology`.

    - `ranks_per_node`: use the first GPUs of the node; None is all.
    - `settings`: `NCCL_*` variables.
    - `calibration`: the efficiencies; None is the defaults.
    - `nccl_version`: the version whose rules apply to paths and search; None is the newest known.
    - `nvlink_domains`: into how many domains NVLink joins the nodes, 0 if into none, as NCCL's log
      shows it; None is unknown, and nodes that are trays of a rack are assumed to be one domain.

    The network beyond the NICs is assumed to be wide enough. GPUs and NVLinks that the file leaves
    to detection are assumed from device ids and the shape of the node.

    Raises InputError if the model has no answer: no GPU, GPUs of unknown model, no NIC for several
    nodes, fewer than two ranks, a link without bandwidth, an invalid setting, or a collective that
    NCCL builds from send and receive, except send/recv of two GPUs with NVLinks from one to the
    other: each sends all its bytes over them, as in a ring of all-gather.

    >>> from nccltune.examples import example
    >>> from nccltune.topology.files.load import load_topology
    >>> found = expect(load_topology(example("h200x4-1-node")))
    >>> f"{found.algorithm} {found.busbw_gb_per_s:.0f} GB/s, limited by {found.bottleneck}"
    'ring 394 GB/s, limited by GPU0 -> NVS'
    """
    _check(collective, nodes)
    chosen = flow_settings(settings or {})
    by_peers = collective not in TUNED
    if by_peers:
        chosen = msgspec.structs.replace(chosen, algorithm=None)
    topology = filled(topology)
    if ranks_per_node is not None:
        topology = first_gpus(topology, ranks_per_node)
    topology = only_nics(topology, chosen.nics)
    node = cached_routes(topology, chosen.path, nccl_version)
    check_peers(topology, node, nodes)
    gpus = len(node.gpus)
    if by_peers and (gpus > 2 or node.nvswitch):
        raise _of_peers(collective)
    in_domain = joined(topology, nodes, gpus, chosen, nccl_version, nvlink_domains)
    if nodes > 1 and not in_domain:
        _check_nics(topology, node)
    several = nodes > 1 and not in_domain
    found = cached_search(topology, chosen.path, nccl_version, several, chosen.cross_nic)
    sm = min(gpu.sm for gpu in node.gpus)
    groups = 1 if in_domain else nodes
    channels = found.connected_channels(
        nodes, sm, chosen.min_channels, chosen.max_channels,
        nvls=chosen.nvls is not False and may_use_nvls(node),
    )  # fmt: skip
    available = algorithms(collective, node, groups, nvls=chosen.nvls, version=nccl_version)
    if several and not _has_nvls_tree(node, nccl_version):
        available = [one for one in available if one is not Algorithm.NVLS_TREE]
    ceilings: dict[Algorithm, Ceiling] = {}
    for algorithm in available:
        if in_domain:
            flow = domain_flows(node, algorithm, nodes * gpus)
        else:
            flow = flows(
                node, found, collective=collective, algorithm=algorithm, nodes=nodes,
                channels=channels,
            )  # fmt: skip
        ceilings[algorithm] = ceiling(node, flow, calibration or defaults())
    best = _best(ceilings, chosen, groups)
    if by_peers and ceilings[best].bottleneck.link.kind is not LinkKind.NVLINK:
        raise _of_peers(collective)
    _check_bandwidth(topology, ceilings[best])
    _check_known(topology, ceilings[best])
    notes = [*node.notes, *_notes(found.ring, chosen, ceilings)]
    if in_domain and nvlink_domains is None:
        notes.append(note(nodes))
    notes += _slower_than_its_ports(node, ceilings[best].bottleneck.link)
    figure = _figure(ceilings[best].bottleneck)
    is_xgmi = figure == "nvlink" and topology.dialect is Dialect.RCCL
    amd = [name for one in devices_of(topology) if one.gpu and (name := architecture(one.gpu))]
    generation = min(amd)[:5] if amd else f"sm{nvlink_generation(sm)}"
    kind = kind_of(best, "xgmi" if is_xgmi else figure, generation, nodes=nodes, joined=in_domain)
    of_user = calibration is not None and calibration.values[figure] != defaults().values[figure]
    if not is_measured(kind) and not of_user:
        notes.append(UNMEASURED)
    booked = found.ring.channels * (
        found.ring.intra_gb_per_s if nodes <= 2 else found.ring.inter_gb_per_s
    )
    return _expected(
        ceilings,
        best,
        tuple(notes),
        collective,
        kind,
        nvlink_noted=bool(topology.assumed),
        nccl_busbw_gb_per_s=booked if best is Algorithm.RING and not in_domain else None,
        channels=channels,
        ranks_per_node=gpus,
    )


@functools.lru_cache(maxsize=_KEPT)
def cached_routes(
    topology: Topology, settings: PathSettings, version: Version | None
) -> NodeRoutes:
    """Return the cached routes of a node."""
    return node_routes(topology, settings, version=version)


@functools.lru_cache(maxsize=_KEPT)
def cached_search(
    topology: Topology,
    settings: PathSettings,
    version: Version | None,
    several: bool,
    cross_nic: int,
) -> Searched:
    """Return the cached search result, which is the same for all numbers of nodes above one."""
    node = cached_routes(topology, settings, version)
    found = search(node, nodes=2 if several else 1, cross_nic=cross_nic, version=version)
    rings = mesh_rings(node, several=several) if topology.dialect is Dialect.RCCL else ()
    ring = msgspec.structs.replace(found.ring, rings=rings or found.ring.rings)
    return msgspec.structs.replace(found, ring=ring)


def check_peers(topology: Topology, node: NodeRoutes, nodes: int) -> None:
    """Raise InputError for a single rank, nodes that cannot be joined, or unknown NVLinks."""
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
    check_nvlink(topology, len(node.gpus))


def _has_nvls_tree(node: NodeRoutes, version: Version | None) -> bool:
    """Return whether NVLS finds the channels for NVLSTree: one, from NCCL 2.28 on two."""
    heads = search_nvls(node, nodes=2, version=version)
    return heads is not None and heads.channels >= 1 + ((version or NEWEST) >= (2, 28))


def _of_peers(collective: Collective) -> InputError:
    return InputError(
        f"no ceiling for {collective.prose}: it consists of send and receive, whose paths differ "
        "for every peer",
        where="--collective",
        hint=f"{' '.join(TUNED)}; sendrecv of two GPUs with NVLinks between them",
    )


def _check(collective: Collective, nodes: int) -> None:
    if collective not in TUNED and (collective is not Collective.SENDRECV or nodes > 1):
        raise _of_peers(collective)
    if not 1 <= nodes <= MOST_NODES:
        raise InputError(f"{nodes} is not between 1 and {MOST_NODES}", where="--nodes")


def check_nvlink(topology: Topology, gpus: int) -> None:
    """Raise InputError if the NVLinks between GPUs are unknown: a guess may err tenfold."""
    if gpus > 1 and leaves_nvlink_out(topology):
        raise InputError(
            "leaves NVLink to detection, and the GPU model is unknown: whether NVLink joins the "
            "GPUs is not known",
            where=topology.source,
            hint='add vendor="0x10de" device="0x2330" to each GPU\'s <pci> as lspci -nn shows it, '
            f"or {_WRITE_DUMP}",
        )


def _check_bandwidth(topology: Topology, found: Ceiling) -> None:
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


def _check_nics(topology: Topology, node: NodeRoutes) -> None:
    ports = {net.name: net.label for net in node.nets}
    unknown = [
        ports[one.source]
        for one in node.links
        if one.kind is LinkKind.NET and one.source in ports and one.wire_is_unknown
    ]
    if unknown:
        more = f" (and {len(unknown) - 1} more)" if unknown[1:] else ""
        raise InputError(
            f"does not name the speed of NIC {unknown[0]}{more}, so there is no figure for several "
            "nodes",
            where=topology.source,
            hint=_WRITE_DUMP,
        )


def _check_known(topology: Topology, found: Ceiling) -> None:
    link = found.bottleneck.link
    if not link.wire_is_unknown:
        return
    hint = _WRITE_DUMP
    if topology.dialect is not Dialect.SMI:
        why = f"does not show what {link.name} carries ({link.how})"
    elif link.kind is LinkKind.NVLINK:
        why = (
            "names no single GPU model that is known here: an NVLink carries another rate in each "
            "generation (of Blackwell twice that of Hopper), and nvidia-smi topo -m shows all alike"
        )
        hint = f"add what nvidia-smi -L prints to the end of the file, or {hint}"
    else:
        why = f"shows no PCIe speeds, as of {link.name}, and no figure can rest on them"
    raise InputError(why, where=topology.source, hint=hint)


def _best(ceilings: Mapping[Algorithm, Ceiling], chosen: FlowSettings, nodes: int) -> Algorithm:
    """Return NCCL_ALGO's algorithm if available, else what allows most; in a node no trees."""
    if chosen.algorithm is not None and chosen.algorithm in ceilings:
        return chosen.algorithm
    rated = [one for one in ceilings if nodes > 1 or one is not Algorithm.TREE]
    return max(rated, key=lambda one: (ceilings[one].busbw_gb_per_s, one is Algorithm.RING))


def _notes(
    ring: SearchResult, chosen: FlowSettings, ceilings: Mapping[Algorithm, Ceiling]
) -> list[str]:
    notes = []
    if ring.fell_back:
        notes.append(
            "NCCL finds no ring here and falls back to one channel of 0.1 GB/s (see nccltune lint)"
        )
    if chosen.algorithm is not None and chosen.algorithm not in ceilings:
        notes.append(f"NCCL_ALGO={chosen.algorithm} is not available here: this is without it")
    return notes


def _slower_than_its_ports(node: NodeRoutes, link: Link) -> list[str]:
    """Return a note if a NIC's PCIe link limits it, as only virtual machines show."""
    ends = {link.source, link.target}
    ports = sum(
        one.wire_gb_per_s for one in node.links if one.kind is LinkKind.NET and one.target in ends
    )
    if link.kind is not LinkKind.PCI or ports <= link.wire_gb_per_s:
        return []
    return [
        f"assumed: {link.name} carries no more than the file says ({link.how}), although the ports "
        f"of this NIC carry {ports:.3g} GB/s; a virtual machine may show a slower link than it has"
    ]


def _expected(
    ceilings: Mapping[Algorithm, Ceiling],
    taken: Algorithm,
    notes: tuple[str, ...],
    collective: Collective,
    kind: str,
    *,
    nvlink_noted: bool,
    nccl_busbw_gb_per_s: float | None,
    channels: int,
    ranks_per_node: int,
) -> Expected:
    best = ceilings[taken]
    full = best.bottleneck
    unsure = [one for one in best.links if _is_in_doubt(one, full)]
    assumed = tuple(
        dict.fromkeys(
            f"assumed: {one.link.wire_how}"
            for one in unsure
            if not (nvlink_noted and one.link.kind is LinkKind.NVLINK)
        )
    )
    return Expected(
        busbw_gb_per_s=best.busbw_gb_per_s,
        bottleneck=full.link.name,
        load_by_kind=full.by_kind,
        sentence=sentence(collective, best),
        capacity_gb_per_s=full.link.wire_gb_per_s,
        used=full.used,
        role=full.role,
        algorithm=taken,
        channels=channels,
        ranks_per_node=ranks_per_node,
        nccl_busbw_gb_per_s=nccl_busbw_gb_per_s,
        alternatives={
            one: found.busbw_gb_per_s for one, found in ceilings.items() if one is not taken
        },
        flows_gb_per_s=_flows(best),
        host_memory_gb_per_s=_host_memory(best),
        calibrated_by=_figure(full),
        kind=kind,
        sure=not unsure and not notes,
        at_most=not notes and all(one.bottleneck.link.wire_is_sure for one in ceilings.values()),
        notes=(*notes, *assumed),
    )


def _figure(full: FullLink) -> str:
    return figure_of(max(full.by_kind, key=lambda kind: full.by_kind[kind]), full.link)


def _is_in_doubt(one: FullLink, full: FullLink) -> bool:
    """Return whether the ceiling could change if the assumed bandwidth of a link is wrong."""
    if one.link.wire_is_sure:
        return False
    if one.link.wire_is_unknown:
        load = one.used * one.link.wire_gb_per_s
        return load > _LOADED * min(one.link.gb_per_s, full.link.wire_gb_per_s)
    loaded = _LOADED_MEMORY if one.link.kind is LinkKind.MEMORY else _LOADED
    return one.used > full.used - _NEAR or (one.link.upper_bound and one.used > loaded)


def _flows(found: Ceiling) -> dict[FlowKind, float]:
    most: dict[FlowKind, float] = {}
    for full in found.links:
        for kind, load in full.by_kind.items():
            most[kind] = max(most.get(kind, 0.0), load)
    return {kind: most[kind] for kind in FlowKind if kind in most}


def _host_memory(found: Ceiling) -> float:
    """Return the traffic through host memory in GB/s, in the node with the most."""
    by_role: dict[str, float] = {}
    for full in found.links:
        if full.link.kind is LinkKind.MEMORY:
            load = full.used * full.link.wire_gb_per_s
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
        f"{full.link.name} ({full.link.wire_gb_per_s:.3g} GB/s) is {state}: {load_words(full)}"
    )


def load_words(full: FullLink) -> str:
    """Return the load of a link as text, such as `GPU writes GPU 21.5, read requests 2.47`."""
    kinds = sorted(full.by_kind.items(), key=lambda item: -item[1])
    shown = [item for item in kinds if item[1] >= _SHOWN * full.link.wire_gb_per_s] or kinds[:1]
    words = ", ".join(f"{kind.prose} {load:.3g}" for kind, load in shown)
    return words.replace("NVLink", "xGMI") if " for gfx" in full.link.how else words
