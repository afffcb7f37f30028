# SPDX-License-Identifier: Apache-2.0
"""Facts of PCI devices, their links and IOMMU groups."""

from typing import Any

from nccltune.doctor.evidence.parsers.lspci import Lspci, PciDevice, parse_lspci
from nccltune.doctor.evidence.pci_tree import PciNode, pci_nodes, slot_speed, with_above
from nccltune.doctor.evidence.raw import Evidence
from nccltune.doctor.facts import Facts

_DEVICES = "/sys/bus/pci/devices"


def nodes_of(evidence: Evidence) -> dict[str, PciNode]:
    """PCI devices by bus id; empty where sysfs was not read."""
    item = evidence.parsed("pci", _nodes)
    return item[0] if item is not None else {}


def _nodes(text: str) -> dict[str, PciNode]:
    from nccltune.doctor.evidence.parsers.tree import parse_tree

    return pci_nodes(parse_tree(text))


def add_pci(evidence: Evidence, facts: Facts) -> None:
    """Put in `node.sysfs_pci`, `pci.*`, `vm_host.bridges`, `kernel.iommu_groups` and
    `rdma.devices_seen`."""
    _vm_host(evidence, facts)
    nodes = nodes_of(evidence)
    sysfs = evidence.tree("pci")
    lspci = _lspci(evidence)
    devices = {one.bus_id: one for one in lspci[0].devices} if lspci is not None else {}
    source = _DEVICES if sysfs is None else evidence.where(sysfs[1], _DEVICES)
    source = lspci[1] if lspci is not None else source
    if sysfs is not None:
        tree = sysfs[0]
        there = bool(tree.values or tree.links)
        facts.add("node.sysfs_pci", there, evidence.where(sysfs[1], _DEVICES))
    if lspci is None and not nodes:
        return
    bridges = _bridges(devices, nodes)
    facts.add("pci.bridges", bridges, source)
    facts.add("pci.links", _links(facts, devices, nodes), source)
    seen = any(node.does_rdma for node in nodes.values()) or any(
        one.kind == "nic" and (one.vendor == "15b3" or "Mellanox" in one.title)
        for one in devices.values()
    )
    facts.add("rdma.devices_seen", seen or _is_efa(devices), source)
    if any(one.denied for one in devices.values()):
        evidence.problems.append(
            f"{source}: without root rights it tells nothing of ACS, ATS and read requests"
        )
    _iommu(evidence, facts, nodes)


def _is_efa(devices: dict[str, PciDevice]) -> bool:
    return any("Elastic Fabric Adapter" in one.title for one in devices.values())


def _lspci(evidence: Evidence) -> tuple[Lspci, str] | None:
    """What lspci printed or the configuration space says: the first that was read with the rights
    for it, else the first at all."""
    found = []
    for name in ("lspci", "pci-config"):
        one = evidence.parsed(name, parse_lspci)
        if one is not None and one[0].devices:
            found.append((one[0], one[1].place()))
    rightful = [one for one in found if not any(device.denied for device in one[0].devices)]
    return next(iter([*rightful, *found]), None)


def _bridges(devices: dict[str, PciDevice], nodes: dict[str, PciNode]) -> list[dict[str, Any]]:
    found = []
    for place in sorted({*devices, *nodes}):
        device, node = devices.get(place), nodes.get(place)
        kind = node.kind if node is not None else device.kind if device is not None else ""
        if kind != "bridge":
            continue
        found.append(
            {
                "bus_id": place,
                **_acs(device),
                "vendor": _hex(node.vendor if node else None, device.vendor if device else None),
                "device": _hex(node.device if node else None, device.device if device else None),
            }
        )
    return found


def _hex(sysfs: str | None, lspci: str | None) -> str | None:
    return sysfs or (f"0x{lspci}" if lspci else None)


def _acs(device: PciDevice | None) -> dict[str, Any]:
    """Fields of ACS: unknown where the output does not go so deep, false without ACS."""
    if device is None or device.denied or (device.acs is None and not device.verbose):
        return {}
    words = device.acs or ""
    return {
        "acs_source_validation": "SrcValid+" in words,
        "acs_request_redirect": "ReqRedir+" in words,
        "acs_control": words,
    }


def _links(
    facts: Facts, devices: dict[str, PciDevice], nodes: dict[str, PciNode]
) -> list[dict[str, Any]]:
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
            {
                "bus_id": place,
                "kind": kind,
                "name": names.get(place),
                "speed_gt_per_s": speed,
                "speed_gt_per_s_max": most,
                "width": width,
                "width_max": lanes,
                "max_read_request": device and device.max_read_request,
                "ats": device and device.ats,
                "relaxed_ordering": device and device.relaxed_ordering,
            }
        )
    return found


def device_names(facts: Facts) -> dict[str, str]:
    """What people call a device, by bus id: GPU 0, mlx5_0, eth0."""
    found: dict[str, str] = {}
    for nic in facts.value("nics") or []:
        if nic.get("bus_id"):
            found[nic["bus_id"]] = nic["name"]
    for hca in facts.value("hcas") or []:
        if hca.get("bus_id"):
            found[hca["bus_id"]] = hca["name"]
    for gpu in facts.value("gpus") or []:
        if gpu.get("bus_id") and gpu.get("index") is not None:
            found[gpu["bus_id"]] = f"GPU {gpu['index']}"
    return found


def _iommu(evidence: Evidence, facts: Facts, nodes: dict[str, PciNode]) -> None:
    item = evidence.tree("iommu")
    if item is None or not nodes:
        return
    tree, raw = item
    members: dict[str, list[str]] = {}
    for node in nodes.values():
        if node.kind in ("gpu", "nic") and node.iommu_group is not None:
            members.setdefault(node.iommu_group, []).append(node.bus_id)
    groups = [
        {
            "group": group,
            "type": tree.get(f"/sys/kernel/iommu_groups/{group}/type"),
            "devices": sorted(places),
        }
        for group, places in sorted(members.items())
    ]
    source = evidence.where(raw, "/sys/kernel/iommu_groups")
    facts.add("kernel.iommu_groups", groups, source)


def _vm_host(evidence: Evidence, facts: Facts) -> None:
    found = evidence.parsed("vm-host-lspci", parse_lspci)
    if found is None:
        return
    facts.add(
        "vm_host.bridges",
        [{"bus_id": one.bus_id, **_acs(one)} for one in found[0].devices if one.kind == "bridge"],
        found[1].place(),
    )
