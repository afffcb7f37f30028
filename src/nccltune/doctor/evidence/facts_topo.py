# SPDX-License-Identifier: Apache-2.0
"""Facts of the topology and graphs that NCCL saw or is given."""

import re
from collections.abc import Iterator
from typing import Any

from nccltune.doctor.evidence.facts_pci import nodes_of
from nccltune.doctor.evidence.parsers.text import bus_id
from nccltune.doctor.evidence.raw import Evidence, Raw
from nccltune.doctor.facts import Facts
from nccltune.formats.graph_xml import Graphs, read_graphs
from nccltune.formats.topology_xml import read_topology
from nccltune.model.errors import InputError
from nccltune.model.topology import Cpu, Pci, Topology

_ORDER = {"LOC": 0, "NVL": 1, "C2C": 2, "PIX": 3, "PXB": 4, "P2C": 5, "PHB": 6, "NODE": 7, "SYS": 8}


def add_topology(evidence: Evidence, facts: Facts) -> None:
    """Put in `topo.*` and `graph.*`, once settings, GPUs and NICs are known."""
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
            "topo.given",
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
        facts.add("topo.missing_devices", missing, given.place())
    _graphs(evidence, facts, _read(evidence, dump) if dump is not None else topology)


def _setting(facts: Facts, name: str) -> str | None:
    for one in facts.value("settings") or []:
        if one["name"] == name and one["in_force"]:
            value: str = one["value"]
            return value
    return None


def _read(evidence: Evidence, raw: Raw) -> Topology | None:
    found = evidence.parse(raw, _topology)
    if isinstance(found, str):
        if f"{raw.source}: {found}" not in evidence.problems:
            evidence.refuse(raw.source, found)
        return None
    return found


def _topology(text: str) -> Topology | str:
    try:
        return read_topology(text.encode(), "topology")
    except InputError as error:
        return error.message


def _all(topology: Topology) -> Iterator[Pci]:
    for cpu in topology.cpus:
        for pci, _ in _below(cpu):
            yield pci


def _below(cpu: Cpu) -> Iterator[tuple[Pci, str]]:
    waiting = [(pci, "") for pci in reversed(cpu.devices)]
    while waiting:
        pci, above = waiting.pop()
        yield pci, above
        waiting += [(child, pci.bus_id) for child in reversed(pci.children)]


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
    """The bus id of a GPU or NIC."""
    return bus_id(pci.bus_id) if _kind(pci) in ("gpu", "nic") else None


def _put(facts: Facts, topology: Topology, raw: Raw) -> None:
    devices: list[dict[str, Any]] = []
    gpus: list[dict[str, Any]] = []
    for cpu in topology.cpus:
        for pci, above in _below(cpu):
            devices.append(
                {
                    "bus_id": bus_id(pci.bus_id) or pci.bus_id,
                    "kind": _kind(pci),
                    "vendor": pci.vendor,
                    "device": pci.device,
                    "speed": pci.speed,
                    "width": pci.width,
                    "above": bus_id(above) or above,
                    "numa": cpu.numa if cpu.numa is not None else -1,
                    "line": pci.line,
                }
            )
            if pci.gpu is not None:
                gpu = pci.gpu
                gpus.append(
                    {
                        "index": gpu.index,
                        "bus_id": bus_id(pci.bus_id) or pci.bus_id,
                        "sm": gpu.sm,
                        "nvlinks": sum(link.count for link in gpu.nvlinks),
                        "nvlink_to_itself": any(
                            link.target.lower() == pci.bus_id.lower() for link in gpu.nvlinks
                        ),
                        "gdr": gpu.gdr,
                        "c2c": bool(gpu.c2c),
                    }
                )
    facts.add("topo.devices", devices, raw.place())
    if gpus:
        facts.add("topo.gpus", gpus, raw.place())
    facts.add(
        "topo.cpus",
        [
            {
                "numa": cpu.numa,
                "arch": cpu.arch,
                "vendor": cpu.vendor.strip() if cpu.vendor else None,
                "family": cpu.family,
                "model": cpu.model,
            }
            for cpu in topology.cpus
        ],
        raw.place(),
    )


def _graphs(evidence: Evidence, facts: Facts, topology: Topology | None) -> None:
    given = evidence.get("given-graph")
    graphs = evidence.parse(given, _graph) if given is not None else None
    if given is not None and isinstance(graphs, Graphs):
        sizes = [len(channel.gpus) for graph in graphs.graphs for channel in graph.channels]
        if sizes:
            facts.add("graph.given_gpus", max(sizes), given.place())
        gpus = facts.value("gpus")
        if gpus is not None:
            there = {gpu["index"] for gpu in gpus}
            named = {
                gpu.index
                for graph in graphs.graphs
                for channel in graph.channels
                for gpu in channel.gpus
            }
            missing = [f"GPU {index}" for index in sorted(named - there)]
            facts.add("graph.missing_devices", missing, given.place())
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
    """GPU and NIC at both ends of each channel, and how near they are by the hardware."""
    nets = {
        net.index: net.name for pci in _all(topology) for net in pci.nets if net.index is not None
    }
    paths: dict[int, dict[str, str]] = {}
    for one in facts.value("gpu.nic_paths") or []:
        paths.setdefault(one["gpu"], {})[one["nic"]] = one["kind"]
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
                    {
                        "graph": graph.id,
                        "channel": number,
                        "gpu": gpu[0].index,
                        "nic": plain,
                        "kind": near[plain],
                        "best_nic": best,
                        "best_kind": near[best],
                    }
                )
    if found:
        facts.add("graph.ends", found, raw.place())
