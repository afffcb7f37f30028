# SPDX-License-Identifier: Apache-2.0
"""One thing to say of a file, and how rules say it."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from nccltune.model.topology import Cpu, Gpu, Net, Pci, Topology


class Severity(StrEnum):
    """An error makes NCCL go wrong or refuse; a warning makes it guess; a note is good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """`source` is the file, `line` where it first shows; `devices` are those it is about."""

    severity: Severity
    id: str
    source: str
    message: str
    hint: str
    line: int | None = None
    devices: tuple[str, ...] = ()


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI device, the CPU it hangs on and the switches above it, the nearest last."""

    device: Pci
    cpu: Cpu
    above: tuple[Pci, ...] = ()


def placed(topology: Topology) -> Iterator[Placed]:
    """Every PCI device of a topology, in the file's order."""
    for cpu in topology.cpus:
        waiting = [Placed(device=device, cpu=cpu) for device in reversed(cpu.devices)]
        while waiting:
            one = waiting.pop()
            yield one
            above = (*one.above, one.device)
            waiting += [
                Placed(device=child, cpu=cpu, above=above)
                for child in reversed(one.device.children)
            ]


def gpus(topology: Topology) -> list[tuple[Placed, Gpu]]:
    """The GPUs that the file names."""
    return [(one, one.device.gpu) for one in placed(topology) if one.device.gpu is not None]


def nets(topology: Topology) -> list[Net]:
    """All ports of NICs, those outside PCI too."""
    inside = [net for one in placed(topology) for net in one.device.nets]
    return [*inside, *(net for cpu in topology.cpus for net in cpu.nets)]


def few(names: Iterable[str], most: int = 4) -> str:
    """`a, b, c and 5 more`."""
    listed = list(names)
    if len(listed) <= most + 1:
        return ", ".join(listed)
    return f"{', '.join(listed[:most])} and {len(listed) - most} more"


def about(
    topology: Topology,
    severity: Severity,
    identity: str,
    devices: Iterable[Pci],
    message: str,
    hint: str,
) -> Iterator[Issue]:
    """One issue about several devices, none where there are none; `{}` in the message is their
    bus ids."""
    found = list(devices)
    if found:
        yield Issue(
            severity=severity,
            id=identity,
            source=topology.source,
            line=found[0].line,
            message=message.replace("{}", few(device.bus_id for device in found)),
            hint=hint,
            devices=tuple(device.bus_id for device in found),
        )
