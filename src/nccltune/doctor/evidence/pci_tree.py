# SPDX-License-Identifier: Apache-2.0
"""PCI devices of a node from sysfs.

Each device has the list of bridges above it. `path_kind` compares the lists of two devices.
"""

from collections.abc import Iterable
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import bus_id, real, whole
from nccltune.doctor.evidence.parsers.tree import Tree
from nccltune.formats.topology.cpu_list import cpus_of

ROOT = "/sys/bus/pci/devices/"
NVIDIA = "0x10de"
# Vendor and device ids of NICs that always support RDMA: Mellanox, EFA. Whether a NIC of irdma,
# bnxt_re and others supports RDMA is known only from its driver.
_RDMA_VENDORS = frozenset({"0x15b3"})
_EFA = ("0x1d0f", "0xefa")


class PciNode(NamedTuple):
    """A PCI device. None and "" mark fields that sysfs does not have.

    `kind` is gpu (NVIDIA only), nic, bridge or other. `above` are the bus ids of the bridges above
    the device, outermost first. `root` is the root bus (`pci0000:3a`). Speeds are in GT/s per lane.
    """

    bus_id: str
    kind: str
    vendor: str
    device: str
    numa: int | None
    speed: float | None
    speed_max: float | None
    width: int | None
    width_max: int | None
    iommu_group: str | None
    cpus: list[int] | None
    root: str
    above: tuple[str, ...]

    @property
    def does_rdma(self) -> bool:
        """Whether the device is known to support RDMA, from its vendor and device ids."""
        is_efa = self.vendor == _EFA[0] and self.device.startswith(_EFA[1])
        return (self.kind == "nic" and self.vendor in _RDMA_VENDORS) or is_efa


def pci_nodes(tree: Tree) -> dict[str, PciNode]:
    """Return all devices of a tree of `/sys/bus/pci/devices`, by bus id."""
    found = {}
    for name, values in tree.children(ROOT).items():
        place = bus_id(name)
        if place is None or "class" not in values:
            continue
        link = tree.links.get(ROOT + name)
        root, above = _chain(link.text if link else "", name)
        cpus = values.get("local_cpulist")
        code, vendor = values["class"].lower(), values.get("vendor", "").lower()
        found[place] = PciNode(
            bus_id=place,
            kind=_kind(code, vendor),
            vendor=vendor,
            device=values.get("device", "").lower(),
            numa=whole(values.get("numa_node")),
            speed=real(values.get("current_link_speed")),
            speed_max=real(values.get("max_link_speed")),
            width=_lanes(values.get("current_link_width")),
            width_max=_lanes(values.get("max_link_width")),
            iommu_group=tree.link(f"{ROOT}{name}/iommu_group"),
            cpus=cpus_of(cpus) if cpus is not None else None,
            root=root,
            above=above,
        )
    return found


def _kind(code: str, vendor: str) -> str:
    if code.startswith("0x0604"):
        return "bridge"
    if code.startswith("0x02"):
        return "nic"
    return "gpu" if code.startswith("0x03") and vendor == NVIDIA else "other"


def _lanes(text: str | None) -> int | None:
    lanes = whole(text)
    # sysfs reports 255 for a device whose link is down.
    return lanes if lanes and lanes < 255 else None


def _chain(target: str, name: str) -> tuple[str, tuple[str, ...]]:
    parts = target.split("/")
    root = next((part for part in parts if part.startswith("pci") and ":" in part), "")
    above = [found for part in parts if part != name and (found := bus_id(part)) is not None]
    return root, tuple(above)


def slot_speed(node: PciNode, nodes: dict[str, PciNode]) -> float | None:
    """Return the highest speed that both ends of the device's link support, in GT/s per lane.

    If the speed of the bridge is unknown, return the highest speed of the device. If the speed of
    the device is unknown, return None.
    """
    port = nodes.get(node.above[-1]) if node.above else None
    known = [
        speed
        for speed in (node.speed_max, port.speed_max if port is not None else None)
        if speed is not None
    ]
    return min(known) if node.speed_max is not None and known else None


def with_above(kept: Iterable[PciNode], nodes: dict[str, PciNode]) -> list[PciNode]:
    """Return the devices and all bridges above them, sorted by bus id."""
    wanted = {node.bus_id for node in kept}
    for place in list(wanted):
        wanted.update(nodes[place].above)
    return [nodes[place] for place in sorted(wanted) if place in nodes]


def path_kind(a: PciNode, b: PciNode) -> str:
    """Return the path between two devices, in the terms of `nvidia-smi topo -m`.

    If the devices have different root buses and the NUMA node of one is unknown, return PHB.
    """
    shared = 0
    for one, other in zip(a.above, b.above, strict=False):
        if one != other:
            break
        shared += 1
    if shared and a.root == b.root:
        # Below one switch, each device has its own downstream port. So two devices of one switch
        # differ in one bridge.
        hops = max(len(a.above), len(b.above)) - shared
        return "PIX" if hops <= 1 else "PXB"
    if a.root and a.root == b.root:
        return "PHB"
    if a.numa is not None and a.numa == b.numa and a.numa >= 0:
        return "NODE"
    return "SYS" if a.numa is not None and b.numa is not None and a.numa >= 0 else "PHB"
