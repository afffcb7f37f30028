# SPDX-License-Identifier: Apache-2.0
"""Walk and rebuild the tree of a topology."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

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
