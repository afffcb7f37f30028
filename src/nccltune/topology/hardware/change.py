# SPDX-License-Identifier: Apache-2.0
"""Walk and change a topology; for a what-if question move a NIC or add a switch."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from nccltune.model.errors import InputError
from nccltune.model.topology import Cpu, Net, Pci, Topology

DeviceChange = Callable[[Pci], Pci | None]
"""Returns the replacement of a device, its children replaced before, or None to remove it."""


def devices_of(topology: Topology) -> Iterator[Pci]:
    """Yield every PCI device; a device comes before the devices below it."""
    for cpu in topology.cpus:
        yield from _below(cpu.devices)


def _below(devices: Iterable[Pci]) -> Iterator[Pci]:
    for device in devices:
        yield device
        yield from _below(device.children)


def nets_of(topology: Topology) -> list[Net]:
    """Return every NIC port: first those of PCI devices, then the others."""
    nets = [net for device in devices_of(topology) for net in device.nets]
    return nets + [net for cpu in topology.cpus for net in cpu.nets]


def rebuilt(
    topology: Topology, device: DeviceChange, cpu: Callable[[Cpu], Cpu] = lambda cpu: cpu
) -> Topology:
    """Return the topology with every device replaced by `device`, and then every CPU by `cpu`."""
    replace = msgspec.structs.replace

    def each(one: Pci) -> Pci | None:
        children = tuple(kept for child in one.children if (kept := each(child)) is not None)
        return device(replace(one, children=children))

    cpus = tuple(
        cpu(
            replace(
                one, devices=tuple(kept for item in one.devices if (kept := each(item)) is not None)
            )
        )
        for one in topology.cpus
    )
    return replace(topology, cpus=cpus)


NEW_SWITCH = "new-switch"
"""The bus id of an added switch. A second one gets `new-switch-2`."""


def move_nic(topology: Topology, nic: str, place: str) -> Topology:
    """Return the topology with a NIC (a port's name or a bus id) at another place.

    `place` is the new parent: the bus id of a switch or a CPU (`CPU0`). A GPU (`GPU0`) stands for
    its own parent. Raises InputError if `nic` is not a NIC of the topology, or if the topology does
    not have `place`.
    """
    device = _device(topology, nic)
    if not device.nets:
        raise InputError(f"{nic} is not a NIC", where=topology.source, hint=_names(topology))
    taken = _without(topology, [device])
    return _placed(taken, [device], _parent_of(topology, place))


def add_switch(topology: Topology, place: str, names: Sequence[str]) -> Topology:
    """Return the topology with a new PCIe switch at `place` and the devices `names` below it.

    Its uplink is as fast as their fastest link. Raises InputError for unknown or no names.
    """
    devices = [_device(topology, name) for name in names]
    if not devices:
        raise InputError("a switch needs devices below it", where=place)
    fastest = max(devices, key=lambda one: (_rate(one), one.width or 0))
    taken = {one.bus_id for one in devices_of(topology)}
    number = 1
    name = NEW_SWITCH
    while name in taken:
        number += 1
        name = f"{NEW_SWITCH}-{number}"
    switch = Pci(
        bus_id=name,
        class_code="0x060400",
        speed=fastest.speed,
        width=fastest.width,
        children=tuple(devices),
    )
    return _placed(_without(topology, devices), [switch], _parent_of(topology, place))


def _rate(device: Pci) -> float:
    """Return the number before "GT/s" in the link speed of a device; 0 if there is none."""
    text = (device.speed or "").partition(" ")[0]
    try:
        return float(text)
    except ValueError:
        return 0.0


def _names(topology: Topology) -> str:
    nets = [net.name or device.bus_id for device in devices_of(topology) for net in device.nets]
    return "NICs here: " + (" ".join(nets) or "none")


def _device(topology: Topology, name: str) -> Pci:
    """Return the device with this bus id, GPU name or port name. Raises InputError."""
    for device in devices_of(topology):
        ports = [net.name for net in device.nets]
        index = device.gpu.index if device.gpu is not None else None
        if name in (device.bus_id, *ports) or (index is not None and name == f"GPU{index}"):
            return device
    known = [
        f"GPU{device.gpu.index}" if device.gpu is not None else port
        for device in devices_of(topology)
        for port in [*(net.name or device.bus_id for net in device.nets), ""]
        if device.gpu is not None or port
    ]
    raise InputError(
        f"no device {name!r}", where=topology.source, hint="devices here: " + " ".join(known)
    )


class _Parent(msgspec.Struct, frozen=True):
    """The parent of a device: a switch by bus id, or a CPU by its index in the topology."""

    bus_id: str | None = None
    cpu: int | None = None


def _parent_of(topology: Topology, place: str) -> _Parent:
    """Return the parent that `place` stands for. Raises InputError for an unknown place."""
    for number, cpu in enumerate(topology.cpus):
        if place == f"CPU{number if cpu.numa is None or cpu.numa < 0 else cpu.numa}":
            return _Parent(cpu=number)
    for device in devices_of(topology):
        if device.bus_id == place and device.gpu is None and not device.nets:
            return _Parent(bus_id=place)
    if not place.startswith("GPU"):
        switches = [
            device.bus_id
            for device in devices_of(topology)
            if device.gpu is None and not device.nets
        ]
        raise InputError(
            f"{place!r} is not a place for a device",
            where=topology.source,
            hint=" ".join([*switches, "CPU0", "GPU0 (beside it)"]),
        )
    beside = _device(topology, place)
    for number, cpu in enumerate(topology.cpus):
        if beside in cpu.devices:
            return _Parent(cpu=number)
    for device in devices_of(topology):
        if beside in device.children:
            return _Parent(bus_id=device.bus_id)
    raise AssertionError("a device of the tree has a parent")


def _without(topology: Topology, devices: Sequence[Pci]) -> Topology:
    gone = {device.bus_id for device in devices}
    return rebuilt(topology, lambda one: None if one.bus_id in gone else one)


def _placed(topology: Topology, devices: Sequence[Pci], parent: _Parent) -> Topology:
    replace = msgspec.structs.replace
    if parent.cpu is not None:
        cpus = list(topology.cpus)
        cpu: Cpu = cpus[parent.cpu]
        cpus[parent.cpu] = replace(cpu, devices=(*cpu.devices, *devices))
        return replace(topology, cpus=tuple(cpus))

    def each(one: Pci) -> Pci:
        if one.bus_id != parent.bus_id:
            return one
        return replace(one, children=(*one.children, *devices))

    return rebuilt(topology, each)
