# SPDX-License-Identifier: Apache-2.0
"""Build one graph of directed links from topologies, as NCCL sees the hardware (`graph/topo.cc`).

The vertices are those of NCCL, with two differences:

- A GPU is one vertex. NCCL 2.30 and later has two, DEV and GPU, joined by a link without cost.
- Each CPU has a memory vertex. NCCL's search ignores host memory, but transfers through the host
  load it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice

from nccltune.model.errors import InputError
from nccltune.model.topology import Cpu, Dialect, Gpu, Net, NvLink, Pci, Topology
from nccltune.topology.hardware import bandwidth
from nccltune.topology.hardware.bandwidth import UNKNOWN, Bandwidth, Version
from nccltune.topology.hardware.classify import (
    PciKind,
    broadcom_generation,
    kind_of_target,
    pci_kind,
)
from nccltune.topology.hardware.links import Link, LinkGraph, LinkKind, NodeKind, Vertex

MAX_DEVICES = 256
"""The most GPUs and NIC ports of a file, and a third of its PCI devices.

That is over three times the largest NVLink domain. NCCL has room for 640 of each (2.30).
"""
MAX_CPUS = 128


def link_graph(topologies: Sequence[Topology], *, nccl_version: Version | None = None) -> LinkGraph:
    """Return the links of one or several nodes, in both directions.

    If there are several hosts, names begin with `node0/`, `node1/` and so on, in the given order. A
    file may have several hosts (MNNVL), which differ in `host_hash`. `nccl_version` selects the
    rules that differ between versions; None is the newest known. Raises InputError for a file with
    too many devices.

    >>> from nccltune.examples import example
    >>> from nccltune.topology.files.load import load_topology
    >>> graph = link_graph([load_topology(example("h200x4-1-node"))])
    >>> graph.links[0].name
    'CPU -> MEM'
    """
    for topology in topologies:
        _check_size(topology)
    hosts = [list(dict.fromkeys(cpu.host_hash for cpu in one.cpus)) for one in topologies]
    several = sum(len(found) for found in hosts) > 1
    build = _Build(nccl_version, several)
    first = 0
    for topology, found in zip(topologies, hosts, strict=True):
        _Host(build, topology, {host: first + place for place, host in enumerate(found)}).add()
        first += len(found)
    return LinkGraph(vertices=tuple(build.vertices.values()), links=tuple(build.links.values()))


def _check_size(topology: Topology) -> None:
    counts: Counter[str] = Counter()
    waiting = [device for cpu in topology.cpus for device in cpu.devices]
    while waiting:
        device = waiting.pop()
        counts["PCI devices"] += 1
        counts["GPUs"] += device.gpu is not None
        counts["ports of NICs"] += len(device.nets)
        waiting += device.children
    counts["ports of NICs"] += sum(len(cpu.nets) for cpu in topology.cpus)
    # NCCL has one limit for each of switches, GPUs and NICs, so PCI devices get three times as
    # much.
    limits = {"PCI devices": 3 * MAX_DEVICES, "GPUs": MAX_DEVICES, "ports of NICs": MAX_DEVICES}
    for what, limit in (*limits.items(), ("CPUs", MAX_CPUS)):
        number = len(topology.cpus) if what == "CPUs" else counts[what]
        if number > limit:
            raise InputError(
                f"has {number} {what}; more than {limit} are not read",
                where=topology.source,
                hint="NCCL supports a few hundred devices per host: is this the right file?",
            )


_OWN_NICS: Version = (2, 24, 0)
"""Before, the ports of a NIC that are PCI functions of one device share its PCIe link."""


class _Build:
    def __init__(self, version: Version | None, several: bool) -> None:
        self.version = version
        self.several = several
        self.vertices: dict[str, Vertex] = {}
        self.links: dict[tuple[str, str, LinkKind], Link] = {}
        self._counts: Counter[str] = Counter()
        self._seen = 0

    def new_links(self) -> list[Link]:
        """Return the links added since the last call."""
        new = list(islice(reversed(self.links.values()), len(self.links) - self._seen))
        self._seen = len(self.links)
        return new[::-1]

    def vertex(self, name: str, kind: NodeKind, node: int, **facts: object) -> str:
        """Add a vertex and return its name, with a suffix such as `#2` if the name is taken."""
        name = f"node{node}/{name}" if self.several else name
        base = name
        while name in self.vertices:
            self._counts[base] += 1
            name = f"{base}#{self._counts[base] + 1}"
        self.vertices[name] = Vertex(name=name, kind=kind, node=node, **facts)  # type: ignore[arg-type]
        return name

    def both(self, one: str, other: str, kind: LinkKind, found: Bandwidth) -> None:
        self.one_way(one, other, kind, found)
        self.one_way(other, one, kind, found)

    def one_way(self, source: str, target: str, kind: LinkKind, found: Bandwidth) -> None:
        """Add one direction of a link; several of one kind are added up, as in NCCL."""
        key = (source, target, kind)
        before = self.links.get(key)
        self.links[key] = Link(
            source=source,
            target=target,
            kind=kind,
            gb_per_s=found.gb_per_s + (before.gb_per_s if before else 0.0),
            how=f"{before.how}, and {found.how}" if before else found.how,
            sure=found.sure and (before is None or before.sure),
            upper_bound=found.upper_bound or (before is not None and before.upper_bound),
            wire_gb_per_s=min(UNKNOWN, found.wire + (before.wire_gb_per_s if before else 0.0)),
        )


class _Host:
    """The devices of one file. `nodes` maps the hash of each host to the number of the host."""

    def __init__(self, build: _Build, topology: Topology, nodes: dict[str | None, int]) -> None:
        self.build = build
        self.topology = topology
        self.nodes = nodes
        self.nvs: str | None = None
        self.gpus: dict[tuple[int, str], tuple[str, Gpu, str]] = {}
        """The name, file data and CPU of each GPU. Keys are host number and bus id."""
        self.switches: dict[tuple[int, str], str] = {}
        self._switch_links: list[tuple[int, str, str]] = []
        self._outside: dict[int, str] = {}
        self._nics: dict[tuple[int, str], str] = {}
        devices = [device for cpu in topology.cpus for device in cpu.devices]
        self.has_gpus = _any(
            devices, lambda device: device.gpu is not None and not device.gpu.detected
        )
        nets = [net for cpu in topology.cpus for net in _nets(cpu)]
        # NCCL ignores ports without a number. But a file without any numbers was not written by
        # NCCL, so all of its ports count.
        numbered = any(net.index is not None for net in nets)
        self.only_numbered = topology.dialect is Dialect.NCCL and numbered

    def add(self) -> None:
        cpus = []
        for cpu in self.topology.cpus:
            node = self.nodes[cpu.host_hash]
            known = cpu.numa is not None and cpu.numa >= 0
            label = str(cpu.numa) if known else ""
            name = self.build.vertex(
                f"CPU{label}", NodeKind.CPU, node, numa=cpu.numa, arch=cpu.arch, vendor=cpu.vendor
            )
            memory = self.build.vertex(f"MEM{label}", NodeKind.MEMORY, node, numa=cpu.numa)
            self.build.both(name, memory, LinkKind.MEMORY, bandwidth.memory(cpu))
            cpus.append((name, cpu))
            for device in cpu.devices:
                self._pci(device, name, name, node)
            if cpu.nets:
                self._ports(cpu.nets, self._outside_pci(name, node), node, has_speed=False)
        for name, gpu, cpu_name in self.gpus.values():
            self._nvlinks(name, gpu, cpu_name)
            self._c2c(name, gpu, cpu_name)
        for node, source, target in self._switch_links:
            other = self.switches.get((node, _bus(target)))
            if other is not None and other != source:
                words = Bandwidth(bandwidth.local(), "pcilink: switches joined without the CPU")
                self.build.one_way(source, other, LinkKind.SWITCH_TO_SWITCH, words)
        self._twins()
        for name, cpu in cpus:
            for other, twin in cpus:
                if other != name and twin.host_hash == cpu.host_hash:
                    found = bandwidth.between_cpus(cpu, self.build.version)
                    self.build.one_way(name, other, LinkKind.CPU_TO_CPU, found)

    def _outside_pci(self, cpu: str, node: int) -> str:
        """Return the vertex of NICs outside PCI: one, at the first CPU that has any."""
        if node not in self._outside:
            label = cpu.rpartition("/")[2]
            nic = self.build.vertex(f"NIC at {label}", NodeKind.NIC, node)
            words = Bandwidth(bandwidth.local(), "no PCI device: no limit")
            self.build.both(cpu, nic, LinkKind.PCI, words)
            self._outside[node] = nic
        return self._outside[node]

    def _pci(self, device: Pci, parent: str, cpu: str, node: int) -> None:
        shared = None
        found = bandwidth.pci(device)
        kind = pci_kind(device, self.has_gpus)
        if kind is PciKind.GPU:
            gpu = device.gpu or Gpu()
            index = gpu.index if gpu.index is not None else len(self.gpus)
            name = self.build.vertex(
                f"GPU{index}", NodeKind.GPU, node,
                bus_id=device.bus_id, index=index, sm=gpu.sm, gdr=gpu.gdr,
            )  # fmt: skip
            self.gpus[node, _bus(device.bus_id)] = (name, gpu, cpu)
            generation = bandwidth.pci_generation(device.speed)
            if generation is not None and generation < 3:
                # NCCL 2.30.7 and later uses the generation that NVML reports at the moment. It is
                # lower while a GPU is idle, so the bandwidth is not sure.
                words = f"{found.how}; an idle GPU reports less"
                found = Bandwidth(found.gb_per_s, words, False, True, UNKNOWN)
            found = bandwidth.pci_of_gpu(gpu.sm, found)
        elif kind is PciKind.NIC:
            shared = self._nics.get((node, device.bus_id[:-1]))
            name = shared or self.build.vertex(
                f"NIC {device.bus_id}", NodeKind.NIC, node, bus_id=device.bus_id
            )
            if self.build.version is not None and self.build.version < _OWN_NICS:
                self._nics[node, device.bus_id[:-1]] = name
            if device.nets:
                wireless = (device.class_code or "").startswith("0x0280")
                self._ports(device.nets, name, node, has_speed=not wireless)
            else:
                port = self.build.vertex(
                    f"NET {device.bus_id}", NodeKind.NET, node, bus_id=device.bus_id
                )
                words = f"speed not in the file: at most its PCI link's, {found.how}"
                most = Bandwidth(found.gb_per_s, words, False, True, found.wire)
                self.build.both(name, port, LinkKind.NET, most)
        elif kind is PciKind.SWITCH:
            if 0 < found.gb_per_s < bandwidth.SLOWEST_SWITCH:
                words = f"{found.how}; made up by a virtual machine"
                found = Bandwidth(found.gb_per_s, words, False, True, UNKNOWN)
            name = self.build.vertex(
                f"PCI {device.bus_id}", NodeKind.PCI, node, bus_id=device.bus_id
            )
            self._below(device, name, cpu, node)
        else:
            return
        if shared is None:
            self.build.both(parent, name, LinkKind.PCI, found)

    def _below(self, device: Pci, name: str, cpu: str, node: int) -> None:
        """Add the devices below a switch.

        NCCL joins two levels of Broadcom's (`FlattenBcmSwitches`), generation 5's since 2.20.
        """
        self.switches[node, _bus(device.bus_id)] = name
        self._switch_links += [(node, name, target) for target in device.switch_links]
        generation = broadcom_generation(device, 0, self.build.version)
        for child in device.children:
            if generation and broadcom_generation(child, 1, self.build.version) == generation:
                self.switches[node, _bus(child.bus_id)] = name
                self._switch_links += [(node, name, target) for target in child.switch_links]
                for grandchild in child.children:
                    self._pci(grandchild, name, cpu, node)
            else:
                self._pci(child, name, cpu, node)

    def _ports(self, nets: Sequence[Net], nic: str, node: int, *, has_speed: bool) -> None:
        for net in nets:
            if net.index is None and self.only_numbered:
                continue
            label = net.name or (str(net.index) if net.index is not None else "?")
            name = self.build.vertex(
                f"NET {label}", NodeKind.NET, node, index=net.index, gdr=net.gdr
            )
            is_default = net.mbit_per_s == bandwidth.NO_SPEED and not has_speed
            words = "as NCCL assumes without a speed" if is_default else net.assumed
            found = bandwidth.net(net.mbit_per_s, assumed=words)
            self.build.both(nic, name, LinkKind.NET, found)

    def _nvlinks(self, name: str, gpu: Gpu, cpu: str) -> None:
        each = bandwidth.nvlink(gpu, self.build.version)
        node = self.build.vertices[name].node
        to_switch: list[NvLink] = []
        for link in gpu.nvlinks:
            if link.count <= 0:
                continue
            peer = self.gpus.get((node, _bus(link.target)))
            kind = kind_of_target(link, peer is not None)
            words = Bandwidth(
                link.count * each.gb_per_s, f"{link.count} links of {each.how}", each.sure, False,
                link.count * each.wire,
            )  # fmt: skip
            if kind is NodeKind.NVS:
                to_switch.append(link)
            elif kind is NodeKind.CPU:
                self.build.both(name, cpu, LinkKind.NVLINK, words)
            # Skip links to the GPU itself, and to GPUs that are not in the file.
            elif peer is not None and peer[0] != name:
                self.build.one_way(name, peer[0], LinkKind.NVLINK, words)
        if to_switch:
            self._to_switch(name, to_switch, each)

    def _to_switch(self, name: str, links: list[NvLink], each: Bandwidth) -> None:
        if self.nvs is None:
            node = self.build.vertices[name].node
            self.nvs = self.build.vertex("NVS", NodeKind.NVS, node)
        counts = "+".join(str(link.count) for link in links)
        words = f"{counts} links of {each.how}"
        if len(links) > 1:
            words += f"; {len(links)} NVSwitches taken as one"
        count = sum(link.count for link in links)
        found = Bandwidth(count * each.gb_per_s, words, each.sure, False, count * each.wire)
        self.build.both(name, self.nvs, LinkKind.NVLINK, found)

    def _c2c(self, name: str, gpu: Gpu, cpu: str) -> None:
        for link in gpu.c2c:
            value = link.mb_per_s * link.count / 1000.0
            words = f"{link.count} C2C links of {link.mb_per_s / 1000:g}"
            self.build.both(name, cpu, LinkKind.C2C, Bandwidth(value, words))

    def _twins(self) -> None:
        """Add the other direction of every link that the file lists in one direction only."""
        for link in self.build.new_links():
            if (link.target, link.source, link.kind) not in self.build.links:
                words = f"only {link.source} lists it: {link.how}"
                found = Bandwidth(link.gb_per_s, words, False, False, link.wire_gb_per_s)
                self.build.one_way(link.target, link.source, link.kind, found)


def _bus(bus_id: str) -> str:
    """Return a bus id to compare: NCCL reads only its hexadecimal digits (`busIdToInt64`)."""
    digits = "".join(char for char in bus_id.lower() if char in "0123456789abcdef")
    return digits.lstrip("0")


def _nets(cpu: Cpu) -> list[Net]:
    nets = list(cpu.nets)
    waiting = list(cpu.devices)
    while waiting:
        device = waiting.pop()
        nets += device.nets
        waiting += device.children
    return nets


def _any(devices: list[Pci], test: Callable[[Pci], bool]) -> bool:
    waiting = list(devices)
    while waiting:
        device = waiting.pop()
        if test(device):
            return True
        waiting += device.children
    return False
