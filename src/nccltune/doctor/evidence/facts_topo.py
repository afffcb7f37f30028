# SPDX-License-Identifier: Apache-2.0
"""Facts of the topology and graphs that NCCL detected, or that the user gave to NCCL."""

import re
from collections.abc import Iterator

from nccltune.doctor.evidence.facts_pci import nodes_of
from nccltune.doctor.evidence.parsers.text import bus_id
from nccltune.doctor.evidence.raw import NodeEvidence, Raw
from nccltune.doctor.facts import Facts
from nccltune.doctor.facts.gpu import GPU_NIC_PATHS, GPUS
from nccltune.doctor.facts.node import CPU_VENDOR
from nccltune.doctor.facts.settings import SETTINGS
from nccltune.doctor.facts.topo import (
    GRAPH_ENDS,
    GRAPH_GIVEN_GPUS,
    GRAPH_MISSING_DEVICES,
    TOPO_DEVICES,
    TOPO_GIVEN,
    TOPO_GPUS,
    TOPO_MISSING_DEVICES,
    ChannelEnd,
    TopologyDevice,
    TopologyGpu,
)
from nccltune.formats.topology.graph_xml import Graphs, read_graphs
from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.formats.topology.xml_tree import cut_out
from nccltune.model.errors import InputError
from nccltune.model.topology import Cpu, Dialect, Pci, Topology
from nccltune.topology.hardware.classify import model_of

_ORDER = {"LOC": 0, "NVL": 1, "C2C": 2, "PIX": 3, "PXB": 4, "P2C": 5, "PHB": 6, "NODE": 7, "SYS": 8}


def add_topology(evidence: NodeEvidence, facts: Facts) -> None:
    """Add `topo.*` and `graph.*`. Call this after settings, GPUs and NICs were added."""
    given = next(
        (
            raw
            for name in ("given-topology", "virtual-topology")
            if (raw := evidence.get(name)) is not None
        ),
        None,
    )
    named = _setting(facts, "NCCL_TOPO_FILE")
    if facts.get("settings") is not None or given is not None:
        facts.add(
            TOPO_GIVEN,
            bool(named) or given is not None,
            "NCCL_TOPO_FILE" if named else given.source if given else "settings",
        )
    dump = evidence.get("topology")
    for raw in filter(None, (dump, given)):
        topology = _read(evidence, raw)
        if topology is not None and "topo.devices" not in facts:
            _put(facts, topology, raw)
    topology = _read(evidence, given) if given is not None else None
    nodes = nodes_of(evidence)
    if topology is not None and given is not None and nodes:
        named_places = [place for pci in _all(topology) if (place := _end(pci)) is not None]
        missing = [place for place in named_places if place not in nodes]
        facts.add(TOPO_MISSING_DEVICES, missing, given.place())
    _graphs(evidence, facts, _read(evidence, dump) if dump is not None else topology)


def _setting(facts: Facts, name: str) -> str | None:
    for one in facts.value(SETTINGS) or []:
        if one.name == name and one.in_force:
            return one.value
    return None


def _read(evidence: NodeEvidence, raw: Raw) -> Topology | None:
    found = evidence.parse(raw, _topology)
    if isinstance(found, str):
        if f"{raw.source}: {found}" not in evidence.problems:
            evidence.refuse(raw.source, found)
        return None
    return found


def _topology(text: str) -> Topology | str:
    try:
        return read_topology(cut_out(text.encode()), "topology")
    except InputError as error:
        return error.message


def _all(topology: Topology) -> Iterator[Pci]:
    for cpu in topology.cpus:
        yield from _below(cpu)


def _below(cpu: Cpu) -> Iterator[Pci]:
    waiting = list(reversed(cpu.devices))
    while waiting:
        pci = waiting.pop()
        yield pci
        waiting += reversed(pci.children)


def _kind(pci: Pci) -> str:
    code = (pci.class_code or "").lower()
    if code.startswith("0x0680"):
        return "nvswitch"
    if pci.gpu is not None or code.startswith("0x03"):
        return "gpu"
    if pci.nets or code.startswith("0x02"):
        return "nic"
    return "bridge" if code.startswith("0x0604") or pci.children else "other"


def _end(pci: Pci) -> str | None:
    """Return the bus id of a GPU or NIC, None for other devices."""
    return bus_id(pci.bus_id) if _kind(pci) in ("gpu", "nic") else None


def _nvlinks(pci: Pci, dialect: Dialect) -> int | None:
    """Return the number of a GPU's NVLinks; None where whole boards have GPUs that differ.

    GPUs of a MI250X have 6 or 7 xGMI links. NVLink bridges need not join all cards.
    """
    if pci.gpu is None or dialect is Dialect.RCCL:
        return None
    model = model_of(pci)
    count = sum(link.count for link in pci.gpu.nvlinks)
    return count or (None if model is not None and model.nvlink == "bridge" else 0)


def _put(facts: Facts, topology: Topology, raw: Raw) -> None:
    devices: list[TopologyDevice] = []
    gpus: list[TopologyGpu] = []
    makers = {cpu.vendor for cpu in topology.cpus if cpu.vendor}
    if CPU_VENDOR.name not in facts and len(makers) == 1:
        facts.add(CPU_VENDOR, makers.pop(), raw.place())
    for cpu in topology.cpus:
        for pci in _below(cpu):
            devices.append(
                TopologyDevice(
                    bus_id=bus_id(pci.bus_id) or pci.bus_id,
                    kind=_kind(pci),
                    vendor=pci.vendor,
                    device=pci.device,
                    speed=pci.speed,
                    width=pci.width,
                    numa=cpu.numa if cpu.numa is not None else -1,
                )
            )
            if pci.gpu is not None:
                gpu = pci.gpu
                gpus.append(
                    TopologyGpu(
                        index=gpu.index,
                        bus_id=bus_id(pci.bus_id) or pci.bus_id,
                        sm=gpu.sm,
                        nvlinks=_nvlinks(pci, topology.dialect),
                        nvlink_to_itself=any(
                            link.target.lower() == pci.bus_id.lower() for link in gpu.nvlinks
                        ),
                    )
                )
    facts.add(TOPO_DEVICES, devices, raw.place())
    if gpus:
        facts.add(TOPO_GPUS, gpus, raw.place())


def _graphs(evidence: NodeEvidence, facts: Facts, topology: Topology | None) -> None:
    given = evidence.get("given-graph")
    graphs = evidence.parse(given, _graph) if given is not None else None
    if given is not None and isinstance(graphs, Graphs):
        sizes = [len(channel.gpus) for graph in graphs.graphs for channel in graph.channels]
        if sizes:
            facts.add(GRAPH_GIVEN_GPUS, max(sizes), given.place())
        gpus = facts.value(GPUS)
        if gpus is not None:
            there = {gpu.index for gpu in gpus}
            named = {
                gpu.index
                for graph in graphs.graphs
                for channel in graph.channels
                for gpu in channel.gpus
            }
            missing = [f"GPU {index}" for index in sorted(named - there)]
            facts.add(GRAPH_MISSING_DEVICES, missing, given.place())
    dump = evidence.get("graph")
    graphs = evidence.parse(dump, _graph) if dump is not None else None
    if dump is not None and isinstance(graphs, Graphs) and topology is not None:
        _ends(facts, graphs, topology, dump)


def _graph(text: str) -> Graphs | str:
    try:
        return read_graphs(text.encode(), "graph")
    except InputError as error:
        return error.message


def _ends(facts: Facts, graphs: Graphs, topology: Topology, raw: Raw) -> None:
    """Add two pairs of GPU and NIC for each channel: where data arrives, and where data leaves.

    Each pair also has the kind of path between GPU and NIC, and the NIC that is nearest to the GPU.
    A pair is left out if the NIC or its path to the GPU is unknown.
    """
    nets = {
        net.index: net.name for pci in _all(topology) for net in pci.nets if net.index is not None
    }
    paths: dict[int, dict[str, str]] = {}
    for one in facts.value(GPU_NIC_PATHS) or []:
        if one.gpu is not None and one.nic is not None and one.kind is not None:
            paths.setdefault(one.gpu, {})[one.nic] = one.kind
    found = []
    for graph in graphs.graphs:
        for number, channel in enumerate(graph.channels):
            for net, gpu in (
                (channel.net_in, channel.gpus[:1]),
                (channel.net_out, channel.gpus[-1:]),
            ):
                name = nets.get(net) if net is not None else None
                near = paths.get(gpu[0].index) if gpu else None
                plain = re.sub(r":\d+$", "", name) if name else None
                if plain is None or near is None or plain not in near:
                    continue
                best = min(near, key=lambda nic: (_ORDER.get(near[nic], 9), nic))
                found.append(
                    ChannelEnd(
                        channel=number,
                        gpu=gpu[0].index,
                        nic=plain,
                        kind=near[plain],
                        best_nic=best,
                        best_kind=near[best],
                    )
                )
    if found:
        facts.add(GRAPH_ENDS, found, raw.place())
