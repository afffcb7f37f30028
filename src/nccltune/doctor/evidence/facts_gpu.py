# SPDX-License-Identifier: Apache-2.0
"""Facts of GPUs: state, links, peer access, paths, the driver, IMEX."""

import re

import msgspec

from nccltune.doctor.evidence.facts_pci import nodes_of
from nccltune.doctor.evidence.parsers.copies import Copies, copy_ranges, parse_copies
from nccltune.doctor.evidence.parsers.gpu_query import parse_gpu_query
from nccltune.doctor.evidence.parsers.imex import imex_channels, parse_imex
from nccltune.doctor.evidence.parsers.nvlink import parse_nvlink_status
from nccltune.doctor.evidence.parsers.p2p_matrix import KINDS, parse_p2p_matrix
from nccltune.doctor.evidence.parsers.topo_matrix import Cell, gpu_number, parse_topo_matrix
from nccltune.doctor.evidence.pci_tree import path_kind
from nccltune.doctor.evidence.raw import NodeEvidence, Raw
from nccltune.doctor.facts import Facts
from nccltune.doctor.facts.gpu import (
    GPU_COPIES,
    GPU_COPY_RANGES,
    GPU_DMABUF,
    GPU_DRIVER,
    GPU_NIC_PATHS,
    GPU_NVLINK_GROUPS,
    GPU_OPEN_DRIVER,
    GPU_P2P,
    GPU_P2P_TEST,
    GPU_PATHS,
    GPUS,
    IMEX_CHANNELS,
    IMEX_NODES,
    GpuPath,
    NicPath,
    NodeGpu,
)
from nccltune.doctor.facts.network import HCAS, NICS
from nccltune.doctor.facts.node import KERNEL_RELEASE, NODE_FABRIC

_DEVICES = "/sys/bus/pci/devices"
_VERSION = re.compile(r"(?:Kernel Module(?: for \S+)?)\s+(?P<version>\d{3}\.\d{1,3}(?:\.\d{1,3})?)")
_NVL72 = re.compile(r"\bGB[23]00\b")
_QUERIES = ("nvidia-smi-q", "nvidia-smi", "nvidia-smi-sm", "nvidia-smi-fabric")
_NEW_ENOUGH = (5, 12)


def add_gpus(evidence: NodeEvidence, facts: Facts) -> None:
    """Add `gpus`, `gpu.*`, `imex.*` and `node.fabric`.

    Two facts are added elsewhere: `gpu.nic_paths` by add_nic_paths, `gpu.peer_memory` by add_node.
    """
    states, driver, source = _states(evidence)
    nodes = nodes_of(evidence)
    places = sorted(place for place, node in nodes.items() if node.kind == "gpu")
    sysfs = evidence.tree("pci")
    links = evidence.parsed("nvlink", parse_nvlink_status)
    if states is None and sysfs is None and links is not None and links[0].gpus:
        states = [NodeGpu(index=one, name=link.name) for one, link in links[0].gpus.items()]
        source = links[1].place()
    copies = _copies(evidence)
    if states is None and sysfs is None and copies and copies[0][0].names:
        states = [NodeGpu(index=one, name=name) for one, name in copies[0][0].names.items()]
        source = copies[0][1].place()
    if states is not None or sysfs is not None:
        if states is None:
            states = [NodeGpu(index=index, bus_id=place) for index, place in enumerate(places)]
            source = evidence.where(sysfs[1], _DEVICES) if sysfs is not None else ""
        facts.add(GPUS, _records(evidence, states), source)
    _driver(evidence, facts, driver, source)
    _peers(evidence, facts)
    _imex(evidence, facts)
    _fabric(evidence, facts, states)


def _states(evidence: NodeEvidence) -> tuple[list[NodeGpu] | None, str | None, str]:
    """Return the GPUs that nvidia-smi lists, the driver's version, and the source of the GPUs.

    The outputs of all queries in _QUERIES are merged by GPU index. If no output lists a GPU, the
    first result is None and the source is "". The version is None if no output has the version.
    """
    found: dict[int | None, NodeGpu] = {}
    driver, source = None, ""
    raws = [raw for name in _QUERIES for raw in evidence.all(name)]
    for raw in raws:
        query = evidence.parse(raw, parse_gpu_query)
        # On the running node `gather` has already reported that nvidia-smi failed, with the exit
        # code. Do not report the failure again.
        if query.problem is not None and not evidence.live:
            evidence.problems.append(f"{raw.source}: {query.problem}")
        driver = query.driver or driver
        for gpu in query.gpus:
            source = source or raw.place()
            found[gpu.index] = gpu.filled(found.get(gpu.index, gpu))
    if len(found) == 2 and (lone := found.pop(None, None)) is not None:
        # A section beside the output of one GPU is of that GPU.
        ((index, gpu),) = found.items()
        found[index] = msgspec.structs.replace(lone, index=index).filled(gpu)
    return (list(found.values()) if found else None), driver, source


def _copies(evidence: NodeEvidence) -> list[tuple[Copies, Raw]]:
    found = (evidence.parsed(name, parse_copies) for name in ("nvbandwidth", "p2p-test"))
    return [one for one in found if one is not None]


def _records(evidence: NodeEvidence, states: list[NodeGpu]) -> list[NodeGpu]:
    nodes = nodes_of(evidence)
    links = evidence.parsed("nvlink", parse_nvlink_status)
    copies = next((one for one, _ in _copies(evidence)), None)
    topo = evidence.parsed("topo", parse_topo_matrix)
    affinity = topo[0].cpus if topo is not None else {}
    found = []
    for state in states:
        place, index = state.bus_id or "", -1 if state.index is None else state.index
        node = nodes.get(place)
        link = links[0].gpus.get(index) if links is not None else None
        gpu = msgspec.structs.replace(
            state,
            numa=node.numa if node is not None else None,
            cpus=affinity.get(index, node.cpus if node is not None else None),
            nvlinks_active=link.active if link is not None else None,
            nvlinks=link.links if link is not None else None,
            nvlinks_down=list(link.down) if link is not None else None,
            h2d_gb_per_s=copies.of_host("h2d").get(index) if copies is not None else None,
            d2h_gb_per_s=copies.of_host("d2h").get(index) if copies is not None else None,
        )
        found.append(gpu)
    return found


def _driver(evidence: NodeEvidence, facts: Facts, version: str | None, source: str) -> None:
    loaded = evidence.text("nvidia-version")
    if loaded is not None:
        text, raw = loaded
        match = _VERSION.search(text)
        if match is not None:
            facts.add(GPU_DRIVER, match["version"], raw.place(1))
        facts.add(GPU_OPEN_DRIVER, "Open Kernel Module" in text, raw.place(1))
    elif version is not None:
        facts.add(GPU_DRIVER, version, source)
    release = facts.value(KERNEL_RELEASE) or ""
    kernel = re.match(r"(\d{1,3})\.(\d{1,3})", release)
    is_open = facts.value(GPU_OPEN_DRIVER)
    if is_open is not None and kernel is not None:
        # NVIDIA's open kernel modules export dma-buf since Linux 5.12, the closed modules never.
        fit = (int(kernel[1]), int(kernel[2])) >= _NEW_ENOUGH
        facts.add(GPU_DMABUF, bool(is_open) and fit, "kind of driver and kernel release")


def _peers(evidence: NodeEvidence, facts: Facts) -> None:
    p2p, source, known = [], "", False
    for letter, kind in KINDS.items():
        matrix = evidence.parsed(f"p2p-{letter}", parse_p2p_matrix)
        if matrix is None:
            continue
        known = True
        source = source or matrix[1].place()
        p2p += [msgspec.structs.replace(pair, kind=pair.kind or kind) for pair in matrix[0].records]
    for copies, raw in _copies(evidence):
        if copies.refused and not known:
            known, p2p, source = True, copies.refused, raw.place()
    if known:
        facts.add(GPU_P2P, p2p, source)
    topo = evidence.parsed("topo", parse_topo_matrix)
    ends = (
        (gpu_number(cell.a), gpu_number(cell.b), cell) for cell in (topo[0].cells if topo else ())
    )
    pairs = {(a, b): cell for a, b, cell in ends if a is not None and b is not None and a < b}
    if topo and pairs:
        paths = [GpuPath(a=a, b=b, kind=x.kind, links=x.links) for (a, b), x in pairs.items()]
        facts.add(GPU_PATHS, paths, topo[1].place())
        if not topo[0].unread:
            facts.add(GPU_NVLINK_GROUPS, _nvlink_groups(pairs), topo[1].place())
    links = {pair: cell.links for pair, cell in pairs.items() if cell.links is not None}
    names = {gpu.index: gpu.name for gpu in facts.value(GPUS) or [] if gpu.name is not None}
    for copies, raw in _copies(evidence):
        place = raw.place(copies.peers_line or None)
        if copies.peers and GPU_COPIES.name not in facts:
            facts.add(GPU_COPIES, copies.peers, place)
        if copies.tests:
            facts.add(GPU_P2P_TEST, copies.tests, place)
        ranges = list(copy_ranges(copies, {i: n for i, n in names.items() if i is not None}, links))
        if ranges and GPU_COPY_RANGES.name not in facts:
            facts.add(GPU_COPY_RANGES, ranges, raw.place())


def _nvlink_groups(pairs: dict[tuple[int, int], Cell]) -> list[str]:
    group = {gpu: gpu for pair in pairs for gpu in pair}
    for (a, b), cell in pairs.items():
        if cell.kind in ("NVL", "C2C", "XGMI"):
            group = {gpu: group[a] if of == group[b] else of for gpu, of in group.items()}
    return [
        " ".join(str(gpu) for gpu in sorted(group) if group[gpu] == one)
        for one in dict.fromkeys(group[gpu] for gpu in sorted(group))
    ]


def add_nic_paths(evidence: NodeEvidence, facts: Facts) -> None:
    """Add `gpu.nic_paths`, from nvidia-smi or else from sysfs. Call this after GPUs and NICs are
    known."""
    topo = evidence.parsed("topo", parse_topo_matrix)
    if topo is not None:
        paths = []
        for cell in topo[0].cells:
            gpu = gpu_number(cell.a)
            if gpu is not None and gpu_number(cell.b) is None:
                paths.append(NicPath(gpu=gpu, nic=cell.b, kind=cell.kind))
        if paths:
            facts.add(GPU_NIC_PATHS, paths, topo[1].place())
            return
    nodes = nodes_of(evidence)
    sysfs = evidence.tree("pci")
    gpus = facts.value(GPUS)
    nics = _nic_places(facts)
    if not nodes or gpus is None:
        return
    facts.add(
        GPU_NIC_PATHS,
        [
            NicPath(gpu=gpu.index, nic=name, kind=path_kind(nodes[gpu.bus_id], nodes[place]))
            for gpu in gpus
            if gpu.bus_id is not None and gpu.bus_id in nodes
            for name, place in nics.items()
            if place in nodes
        ],
        evidence.where(sysfs[1], _DEVICES) if sysfs is not None else _DEVICES,
    )


def _nic_places(facts: Facts) -> dict[str, str]:
    """Return bus ids by name: of RDMA devices, and of PCI interfaces without an RDMA device."""
    found = {hca.name: hca.bus_id for hca in facts.value(HCAS) or [] if hca.name}
    taken = set(found.values())
    for nic in facts.value(NICS) or []:
        if nic.name and nic.bus_id and nic.bus_id not in taken and not nic.rdma:
            found[nic.name] = nic.bus_id
    return {name: place for name, place in found.items() if place}


def _imex(evidence: NodeEvidence, facts: Facts) -> None:
    devices = evidence.tree("devices")
    if devices is not None:
        start = "/dev/nvidia-caps-imex-channels/"
        tree = devices[0]
        channels = sorted(
            p[len(start) :] for p in (*tree.values, *tree.links) if p.startswith(start)
        )
        facts.add(IMEX_CHANNELS, channels, evidence.where(devices[1], start.rstrip("/")))
    listed = evidence.parsed("imex", imex_channels)
    if listed is not None and listed[0] is not None and IMEX_CHANNELS.name not in facts:
        facts.add(IMEX_CHANNELS, listed[0], listed[1].place())
    imex = evidence.parsed("imex", parse_imex)
    if imex is not None and imex[0].records:
        facts.add(IMEX_NODES, imex[0].records, imex[1].place())


def _fabric(evidence: NodeEvidence, facts: Facts, states: list[NodeGpu] | None) -> None:
    devices = evidence.tree("devices")
    names = [state.name for state in states or [] if state.name]
    off = any(state.fabric_state in ("not_supported", "not_started") for state in states or [])
    if any(_NVL72.search(name) for name in names) and not off:
        facts.add(NODE_FABRIC, "mnnvl", "GPU names")
    elif devices is not None and any("nvidia-nvswitch" in path for path in devices[0].values):
        facts.add(NODE_FABRIC, "nvswitch", evidence.where(devices[1], "/dev/nvidia-nvswitch*"))
    elif any(state.fabric_state in ("completed", "in_progress") for state in states or []):
        # A VM or container can have the GPUs of an NVSwitch node but not see its NVSwitches.
        facts.add(NODE_FABRIC, "nvswitch", "nvidia-smi (fabric.state)")
    elif devices is not None and states is not None:
        facts.add(NODE_FABRIC, "none", evidence.where(devices[1], "/dev/nvidia-nvswitch*"))
