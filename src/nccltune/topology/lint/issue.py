# SPDX-License-Identifier: Apache-2.0
"""An issue that a lint rule reports, and helpers for the rules."""

from collections.abc import Iterable, Iterator

import msgspec

from nccltune.model.finding import Severity
from nccltune.model.topology import Cpu, Gpu, Net, Pci, Topology


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """An issue of a file, with its first `line` if known, and bus ids of `devices`."""

    severity: Severity
    id: str
    source: str
    message: str
    hint: str
    line: int | None = None
    devices: tuple[str, ...] = ()


class PlacedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI device, its CPU, and the switches above it, from the CPU downwards."""

    device: Pci
    cpu: Cpu
    above: tuple[Pci, ...] = ()


def placed(topology: Topology) -> Iterator[PlacedDevice]:
    """Yield every PCI device of a topology, in file order."""
    for cpu in topology.cpus:
        waiting = [PlacedDevice(device=device, cpu=cpu) for device in reversed(cpu.devices)]
        while waiting:
            one = waiting.pop()
            yield one
            above = (*one.above, one.device)
            waiting += [
                PlacedDevice(device=child, cpu=cpu, above=above)
                for child in reversed(one.device.children)
            ]


def gpus(topology: Topology) -> list[tuple[PlacedDevice, Gpu]]:
    """Return the GPUs that the file names."""
    return [(one, one.device.gpu) for one in placed(topology) if one.device.gpu is not None]


def nets(topology: Topology) -> list[Net]:
    """Return all NIC ports, including those that are not PCI devices."""
    inside = [net for one in placed(topology) for net in one.device.nets]
    return [*inside, *(net for cpu in topology.cpus for net in cpu.nets)]


def shortened(names: Iterable[str], most: int = 4) -> str:
    """Return the names as a text of limited length: `a, b, c, d and 5 more`."""
    listed = list(names)
    if len(listed) <= most + 1:
        return ", ".join(listed)
    return f"{', '.join(listed[:most])} and {len(listed) - most} more"


def issue_about(
    topology: Topology,
    severity: Severity,
    identity: str,
    devices: Iterable[Pci],
    message: str,
    hint: str,
) -> Iterator[Issue]:
    """Yield one issue about several devices, whose ids replace `{}`; nothing without any."""
    found = list(devices)
    if found:
        yield Issue(
            severity=severity,
            id=identity,
            source=topology.source,
            line=found[0].line,
            message=message.replace("{}", shortened(device.bus_id for device in found)),
            hint=hint,
            devices=tuple(device.bus_id for device in found),
        )
