# SPDX-License-Identifier: Apache-2.0
"""Reduce a node to the GPUs and NICs that take part in a job."""

import re
from collections.abc import Sequence

import msgspec

from nccltune.model.errors import InputError
from nccltune.model.topology import Cpu, Net, Pci, Topology
from nccltune.topology.hardware.change import devices_of, nets_of, rebuilt

_NUMBER = re.compile(r"\s*[+-]?\d{1,9}")
_ANY_PORT = -1


def chosen_nic_indexes(nics: Sequence[tuple[str, int]], rule: str | None) -> list[int]:
    """Return the indexes of the `nics` (name, port) that `rule` selects; all if there is no rule.

    The rule is that of `NCCL_IB_HCA`, `[^][=]NAME[:PORT],...`, as `parseStringList` and
    `matchIfList` read it from NCCL 2.12 to 2.31, also for interfaces in `NCCL_SOCKET_IFNAME`.
    A name in the rule is a prefix, unless the list begins with `=`. `^` excludes the listed NICs.
    Blanks are part of a name, and signs behind the start of the list are, too. A list without names
    names every NIC, so `^` alone excludes all. A port of -1 is any port.
    """
    if not rule:
        return list(range(len(nics)))
    excluding = rule.startswith("^")
    text = rule.removeprefix("^")
    exact = text.startswith("=")
    entries = [entry for part in text.removeprefix("=").split(",") if (entry := _entry(part))[0]]

    def named(name: str, port: int) -> bool:
        return not entries or any(
            (name == wanted if exact else name.startswith(wanted))
            and (_ANY_PORT in (at, port) or at == port)
            for wanted, at in entries
        )

    return [number for number, (name, port) in enumerate(nics) if named(name, port) != excluding]


def _entry(text: str) -> tuple[str, int]:
    name, sign, port = text.partition(":")
    if not sign:
        return name, _ANY_PORT
    number = _NUMBER.match(port)
    return name, int(number[0]) if number else 0


def first_gpus(topology: Topology, count: int) -> Topology:
    """Return the topology with the first `count` GPUs, as `CUDA_VISIBLE_DEVICES` selects them.

    Raises InputError if the file names fewer GPUs.
    """
    indexes = [
        place if device.gpu.index is None else device.gpu.index
        for place, device in enumerate(one for one in devices_of(topology) if one.gpu is not None)
        if device.gpu is not None
    ]
    if len(indexes) < count:
        raise InputError(
            f"names {len(indexes)} GPUs, not {count}",
            where=topology.source,
            hint="request at most as many GPUs a node as the file names",
        )
    order = iter(indexes)
    kept = set(sorted(indexes)[:count])

    def device(one: Pci) -> Pci | None:
        if one.gpu is None:
            return one
        return one if next(order) in kept else None

    return topology if count == len(indexes) else rebuilt(topology, device)


def only_nics(topology: Topology, rule: str | None) -> Topology:
    """Return the topology with the NIC ports that `NCCL_IB_HCA=rule` selects.

    Here it also selects socket interfaces. Raises InputError if it selects none of the NICs.
    """
    nets = nets_of(topology)
    if not rule or not nets:
        return topology
    kept = {
        id(nets[place])
        for place in chosen_nic_indexes([(net.name or "", net.port or 0) for net in nets], rule)
    }
    if not kept:
        raise InputError(
            f"{rule} leaves none of the NICs of {topology.source}",
            where="NCCL_IB_HCA",
            hint=" ".join(net.name or "?" for net in nets),
        )

    def left(ports: tuple[Net, ...]) -> tuple[Net, ...]:
        return tuple(net for net in ports if id(net) in kept)

    def device(one: Pci) -> Pci | None:
        nics = left(one.nets)
        if one.nets and not nics:
            return None
        return msgspec.structs.replace(one, nets=nics)

    def cpu(one: Cpu) -> Cpu:
        return msgspec.structs.replace(one, nets=left(one.nets))

    return rebuilt(topology, device, cpu)
