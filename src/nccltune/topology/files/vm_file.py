# SPDX-License-Identifier: Apache-2.0
"""Make a topology file for a virtual machine from known facts about the host's PCI tree."""

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from nccltune.formats.topology.cpu_list import all_of
from nccltune.model.errors import InputError
from nccltune.model.topology import Cpu, Net, Pci, Topology
from nccltune.topology.hardware import bandwidth

SPEEDS = {
    1: "2.5 GT/s PCIe", 2: "5.0 GT/s PCIe", 3: "8.0 GT/s PCIe",
    4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe", 6: "64.0 GT/s PCIe",
}  # fmt: skip
"""Link speeds by PCIe generation, spelled as in NCCL's table."""
_BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class Pcie(msgspec.Struct, frozen=True):
    """A PCIe link: its generation and number of lanes."""

    generation: int
    width: int = 16


def parse_pcie(text: str) -> Pcie:
    """Return the link in a text such as `5`, `gen5` or `5x16`. Raises InputError."""
    found = re.fullmatch(r"(?:gen)?([1-6])(?:\s*x\s*(1|2|4|8|12|16|32))?", text.strip().lower())
    if found is None:
        raise InputError(f"'{text}' is not a PCIe link", hint="write it as 4, 5 or 5x16")
    return Pcie(int(found.group(1)), int(found.group(2) or 16))


def parse_bus_ids(text: str) -> list[tuple[str | None, str]]:
    """Return name (or None) and bus id of `0000:05:00.0,mlx5_0=0000:06:00.0`. Raises InputError."""
    found: list[tuple[str | None, str]] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, sign, bus_id = word.rpartition("=")
        bus_id = bus_id.lower()
        bus_id = bus_id if bus_id.count(":") == 2 else f"0000:{bus_id}"
        if _BUS_ID.fullmatch(bus_id) is None:
            raise InputError(
                f"'{word}' is not a bus id", hint="write it as lspci -D does: 0000:05:00.0"
            )
        found.append((name if sign else None, bus_id))
    taken = [bus_id for _, bus_id in found]
    if len(set(taken)) < len(taken):
        raise InputError("a bus id is in the list twice", hint="each device has its own")
    return found


def with_bus_ids(
    topology: Topology,
    gpus: Sequence[tuple[str | None, str]],
    nics: Sequence[tuple[str | None, str]],
) -> tuple[Topology, list[str]]:
    """Return the topology with real bus ids, and the NICs that were removed for want of one.

    GPUs are matched by index (by bus id in `nvidia-smi` and NCCL), NICs by name or order. Raises
    InputError for a wrong number of GPUs, unknown names, and more bus ids than NICs.
    """
    by_gpu = _by_number(_indices(topology), gpus, "GPU")
    names = [net.name or "" for net in _nets(topology)]
    by_name = {name: bus_id for name, bus_id in nics if name is not None}
    unknown = sorted(set(by_name) - set(names))
    if unknown:
        raise InputError(
            f"no NIC is called {unknown[0]!r}", hint=f"there are {', '.join(names) or 'none'}"
        )
    unnamed = [bus_id for name, bus_id in nics if name is None]
    for name in names:
        if name not in by_name and unnamed:
            by_name[name] = unnamed.pop(0)
    if unnamed:
        raise InputError(
            f"{len(nics)} NICs are given, and the tree has {len(names)}", hint="leave some out"
        )

    def changed(device: Pci) -> Pci | None:
        if device.gpu is not None:
            bus_id = by_gpu[device.gpu.index or 0]
            return msgspec.structs.replace(device, bus_id=bus_id)
        if device.nets:
            found = by_name.get(device.nets[0].name or "")
            return msgspec.structs.replace(device, bus_id=found) if found is not None else None
        children = tuple(new for child in device.children if (new := changed(child)) is not None)
        return msgspec.structs.replace(device, children=children) if children else None

    return _map(topology, changed), [name for name in names if name not in by_name]


def _by_number(
    indices: Sequence[int], given: Sequence[tuple[str | None, str]], what: str
) -> Mapping[int, str]:
    if len(given) != len(indices):
        raise InputError(
            f"{len(given)} bus ids are given for {len(indices)} {what}s",
            where="--gpus",
            hint="nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader prints them in order",
        )
    ids = [bus_id for _, bus_id in given]
    return dict(zip(sorted(indices), ids, strict=True))


def with_links(topology: Topology, pcie: Pcie | None) -> Topology:
    """Return the topology with a speed and a width for every link.

    `pcie` replaces what NCCL does not understand, and links of switches below 3 GB/s, which a
    virtual machine made up. Raises InputError if a link needs it and it is None.
    """

    def changed(device: Pci) -> Pci:
        has_speed = bandwidth.pci_generation(device.speed) is not None
        width = device.width if device.width and 0 < device.width <= 32 else None
        made_up = bool(device.children) and (
            bandwidth.pci(device).gb_per_s < bandwidth.SLOWEST_SWITCH
        )
        if (not has_speed or width is None or made_up) and pcie is None:
            raise InputError(
                f"the link of {device.bus_id} is not known",
                where=topology.source,
                hint="give the generation and width of links that the file lacks: --pcie 5x16",
            )
        speed = device.speed
        if pcie is not None and (not has_speed or made_up):
            speed = SPEEDS[pcie.generation]
        if pcie is not None and (width is None or made_up):
            width = pcie.width
        return msgspec.structs.replace(
            device, speed=speed, width=width, class_code=_class(device),
            children=tuple(changed(child) for child in device.children),
        )  # fmt: skip

    return _map(topology, changed)


def with_cpus(topology: Topology, machine: Topology, *, made_up: bool) -> Topology:
    """Return the topology with the kind and affinity of every CPU.

    The kind is architecture, vendor, family and model. A CPU without a complete kind gets that of
    `machine`, unless the tree has an architecture or vendor that differs. A NUMA node that
    `machine` does not have gets the affinity of all CPUs. With `made_up` the affinity in the tree
    is ignored, because it belongs to another machine. If `machine` has no CPU, the topology is
    returned unchanged.

    The file must have the kind, because NCCL adds it only to CPUs above a rank's own GPUs. If ranks
    see different kinds, each counts the CPU of the other rank as an additional CPU. If there also
    is a NIC that is not a PCI device, no rank starts (2.28.9, "internal error").
    """
    if not machine.cpus:
        return topology
    affinities = {cpu.numa: cpu.affinity for cpu in machine.cpus}
    every = all_of(mask for mask in affinities.values() if mask)
    kind = machine.cpus[0]
    cpus = []
    for cpu in topology.cpus:
        fits = cpu.arch == kind.arch and cpu.vendor in (None, kind.vendor)
        known = kind if lacks_kind(cpu) and (cpu.arch is None or fits) else cpu
        own = None if made_up else cpu.affinity
        cpus.append(
            msgspec.structs.replace(
                cpu,
                affinity=own or affinities.get(cpu.numa) or every,
                arch=known.arch,
                vendor=known.vendor,
                family=known.family,
                model=known.model,
            )
        )
    return msgspec.structs.replace(topology, cpus=tuple(cpus))


def lacks_kind(cpu: Cpu) -> bool:
    """Return whether the CPU lacks an attribute that `ncclTopoAddCpu` reads (NCCL 2.28.9)."""
    if cpu.arch != "x86_64":
        return cpu.arch is None
    numbers = cpu.family is None or cpu.model is None
    return cpu.vendor is None or (cpu.vendor == "GenuineIntel" and numbers)


def _class(device: Pci) -> str:
    if device.class_code is not None:
        return device.class_code
    if device.gpu is not None:
        return "0x030200"
    return "0x020000" if device.nets else "0x060400"


def _map(topology: Topology, change: Callable[[Pci], Pci | None]) -> Topology:
    cpus = []
    for cpu in topology.cpus:
        devices = tuple(new for device in cpu.devices if (new := change(device)) is not None)
        cpus.append(msgspec.structs.replace(cpu, devices=devices))
    return msgspec.structs.replace(topology, cpus=tuple(cpus))


def _walk(topology: Topology) -> list[Pci]:
    found = []
    waiting = [device for cpu in topology.cpus for device in cpu.devices]
    while waiting:
        device = waiting.pop(0)
        found.append(device)
        waiting += device.children
    return found


def _indices(topology: Topology) -> list[int]:
    return [device.gpu.index or 0 for device in _walk(topology) if device.gpu is not None]


def _nets(topology: Topology) -> list[Net]:
    """Return the first port of each NIC, ordered by the port's index."""
    nets = [device.nets[0] for device in _walk(topology) if device.nets]
    return sorted(nets, key=lambda net: net.index if net.index is not None else 1 << 30)
