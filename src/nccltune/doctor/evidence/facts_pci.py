# SPDX-License-Identifier: Apache-2.0
"""Facts of PCI devices, their links and IOMMU groups."""

from typing import Any

from nccltune.doctor.evidence.parsers.kernel import parse_iommu_types
from nccltune.doctor.evidence.parsers.lspci import PciDevice, parse_lspci
from nccltune.doctor.evidence.parsers.pasted import link_line, parse_pci_lines
from nccltune.doctor.evidence.pci_tree import PciNode, pci_nodes, slot_speed, with_above
from nccltune.doctor.evidence.raw import NodeEvidence
from nccltune.doctor.facts import Facts
from nccltune.doctor.facts.gpu import GPUS
from nccltune.doctor.facts.network import HCAS, NICS, RDMA_DEVICES_SEEN
from nccltune.doctor.facts.node import KERNEL_IOMMU_GROUPS, NODE_SYSFS_PCI, IommuGroup
from nccltune.doctor.facts.pci import (
    PCI_ACS_LINES,
    PCI_BRIDGES,
    PCI_LINK_LINES,
    PCI_LINKS,
    VM_HOST_BRIDGES,
    HostBridge,
    PciBridge,
    PciLink,
)

_AMD = "0x1002"
_DEVICES = "/sys/bus/pci/devices"


def nodes_of(evidence: NodeEvidence) -> dict[str, PciNode]:
    """Return PCI devices by bus id, or an empty dict if sysfs was not read."""
    item = evidence.parsed("pci", _nodes)
    return item[0] if item is not None else {}


def _nodes(text: str) -> dict[str, PciNode]:
    from nccltune.doctor.evidence.parsers.tree import parse_tree

    return pci_nodes(parse_tree(text))


def add_pci(evidence: NodeEvidence, facts: Facts) -> None:
    """Add `node.sysfs_pci`, `pci.*`, `vm_host.bridges`, `kernel.iommu_groups` and
    `rdma.devices_seen`."""
    _vm_host(evidence, facts)
    pasted = evidence.parsed("acs", parse_pci_lines)
    if pasted is not None and not pasted[0].devices:
        if pasted[0].acs:
            facts.add(PCI_ACS_LINES, pasted[0].acs, pasted[1].place())
        if pasted[0].links:
            facts.add(PCI_LINK_LINES, pasted[0].links, pasted[1].place())
    nodes = nodes_of(evidence)
    sysfs = evidence.tree("pci")
    lspci = _lspci(evidence)
    devices = {one.bus_id: one for one in lspci[0]} if lspci is not None else {}
    source = _DEVICES if sysfs is None else evidence.where(sysfs[1], _DEVICES)
    source = lspci[1] if lspci is not None else source
    if sysfs is not None:
        tree = sysfs[0]
        there = bool(tree.values or tree.links)
        facts.add(NODE_SYSFS_PCI, there, evidence.where(sysfs[1], _DEVICES))
    _iommu(evidence, facts, nodes)
    if lspci is None and not nodes:
        return
    bridges = _bridges(devices, nodes)
    facts.add(PCI_BRIDGES, bridges, source)
    facts.add(PCI_LINKS, _links(facts, devices, nodes), source)
    lines = [
        link_line(one.status, None, device=f"{one.bus_id}: ")
        for one in devices.values()
        if one.status is not None and one.kind in ("gpu", "nic")
    ]
    if lines:
        facts.add(PCI_LINK_LINES, lines, source)
    seen = any(node.does_rdma for node in nodes.values()) or any(
        one.kind == "nic" and (one.vendor == "15b3" or "Mellanox" in one.title)
        for one in devices.values()
    )
    facts.add(RDMA_DEVICES_SEEN, seen or _is_efa(devices), source)
    if any(one.denied for one in devices.values()):
        evidence.problems.append(
            f"{source}: without root rights it shows no ACS, ATS and read requests"
        )


def _is_efa(devices: dict[str, PciDevice]) -> bool:
    return any("Elastic Fabric Adapter" in one.title for one in devices.values())


def _lspci(evidence: NodeEvidence) -> tuple[list[PciDevice], str] | None:
    """Return the PCI devices from lspci or from PCI configuration space, and the source.

    An output that was read with root rights is preferred, then the output of lspci. Return None if
    there is neither.
    """
    found = []
    for name in ("lspci", "pci-config"):
        one = evidence.parsed(name, parse_lspci)
        if one is not None and one[0].records:
            found.append((one[0].records, one[1].place()))
    rightful = [one for one in found if not any(device.denied for device in one[0])]
    return next(iter([*rightful, *found]), None)


def _bridges(devices: dict[str, PciDevice], nodes: dict[str, PciNode]) -> list[PciBridge]:
    found = []
    for place in sorted({*devices, *nodes}):
        device, node = devices.get(place), nodes.get(place)
        kind = node.kind if node is not None else device.kind if device is not None else ""
        if kind != "bridge":
            continue
        found.append(
            PciBridge(
                bus_id=place,
                **_acs(device),
                vendor=_hex(node.vendor if node else None, device.vendor if device else None),
                device=_hex(node.device if node else None, device.device if device else None),
                leads_on=_leads_on(place, devices, nodes),
            )
        )
    return found


def _leads_on(place: str, devices: dict[str, PciDevice], nodes: dict[str, PciNode]) -> bool | None:
    """Return whether a GPU or NIC is below a bridge; None if the outputs do not show it."""
    if any(node.above for node in nodes.values()):
        ends_of = (one for one in nodes.values() if one.kind != "other" or one.vendor == _AMD)
        return any(place in one.above for one in ends_of if one.kind != "bridge")
    ends = [
        one.bus_id
        for one in devices.values()
        if one.kind in ("gpu", "nic") or (one.class_code or "").startswith(("03", "12"))
    ]
    buses = devices[place].buses if place in devices else None
    if buses is None or not ends:
        return None
    domain = place[:-7]
    return any(end[:-7] == domain and buses[0] <= int(end[-7:-5], 16) <= buses[1] for end in ends)


def _hex(sysfs: str | None, lspci: str | None) -> str | None:
    return sysfs or (f"0x{lspci}" if lspci else None)


def _acs(device: PciDevice | None) -> dict[str, Any]:
    """Return the fields of ACS (PCI Access Control Services).

    The result is empty (unknown) if lspci did not list the device, or if lspci was run without root
    rights or without -vvv. For a device without the ACS capability, the flags are false.
    """
    if device is None or device.denied or (device.acs is None and not device.verbose):
        return {}
    words = device.acs or ""
    return {
        "acs_source_validation": "SrcValid+" in words,
        "acs_request_redirect": "ReqRedir+" in words or "CmpltRedir+" in words,
        "acs_control": words,
    }


def _links(facts: Facts, devices: dict[str, PciDevice], nodes: dict[str, PciNode]) -> list[PciLink]:
    names = device_names(facts)
    if nodes:
        ends = [node for node in nodes.values() if node.kind in ("gpu", "nic")]
        shown = [(node.bus_id, node.kind) for node in with_above(ends, nodes)]
    else:
        shown = [(one.bus_id, one.kind) for one in devices.values() if one.kind != "other"]
    found = []
    for place, kind in shown:
        node, device = nodes.get(place), devices.get(place)
        speed = node.speed if node and node.speed is not None else device and device.speed
        most = slot_speed(node, nodes) if node is not None else None
        most = most if most is not None else device and device.speed_max
        width = node.width if node and node.width is not None else device and device.width
        lanes = (
            node.width_max if node and node.width_max is not None else (device and device.width_max)
        )
        found.append(
            PciLink(
                bus_id=place,
                kind=kind,
                name=names.get(place),
                speed_gt_per_s=speed,
                speed_gt_per_s_max=most,
                width=width,
                width_max=lanes,
                max_read_request=device and device.max_read_request,
                ats=device and device.ats,
            )
        )
    return found


def device_names(facts: Facts) -> dict[str, str]:
    """Return the usual names of devices by bus id: GPU 0, mlx5_0, eth0."""
    found: dict[str, str] = {}
    for nic in facts.value(NICS) or []:
        if nic.bus_id and nic.name:
            found[nic.bus_id] = nic.name
    for hca in facts.value(HCAS) or []:
        if hca.bus_id and hca.name:
            found[hca.bus_id] = hca.name
    for gpu in facts.value(GPUS) or []:
        if gpu.bus_id and gpu.index is not None:
            found[gpu.bus_id] = f"GPU {gpu.index}"
    return found


def _iommu(evidence: NodeEvidence, facts: Facts, nodes: dict[str, PciNode]) -> None:
    item, told = evidence.tree("iommu"), evidence.parsed("iommu", parse_iommu_types)
    if item is None or told is None:
        return
    tree, raw = item
    if not nodes:
        kinds, number = told[0]
        # Of groups of two types, the one of a GPU or NIC is not known.
        if len(kinds) == 1:
            every = IommuGroup(group="*", type=kinds[0], devices=[f"all {number} groups"])
            facts.add(KERNEL_IOMMU_GROUPS, [every], raw.place())
        return
    members: dict[str, list[str]] = {}
    for node in nodes.values():
        if node.kind in ("gpu", "nic") and node.iommu_group is not None:
            members.setdefault(node.iommu_group, []).append(node.bus_id)
    groups = [
        IommuGroup(
            group=group,
            type=tree.get(f"/sys/kernel/iommu_groups/{group}/type"),
            devices=sorted(places),
        )
        for group, places in sorted(members.items())
    ]
    source = evidence.where(raw, "/sys/kernel/iommu_groups")
    facts.add(KERNEL_IOMMU_GROUPS, groups, source)


def _vm_host(evidence: NodeEvidence, facts: Facts) -> None:
    found = evidence.parsed("vm-host-lspci", parse_lspci)
    if found is None:
        return
    facts.add(
        VM_HOST_BRIDGES,
        [
            HostBridge(bus_id=one.bus_id, **_acs(one))
            for one in found[0].records
            if one.kind == "bridge"
        ],
        found[1].place(),
    )
