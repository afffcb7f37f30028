# SPDX-License-Identifier: Apache-2.0
"""Reduce a node to the GPUs and NICs that take part in a job."""

import msgspec

from nccltune.model.errors import InputError
from nccltune.model.topology import Cpu, Net, Pci, Topology
from nccltune.topology.hardware.nics import chosen_nic_indexes
from nccltune.topology.hardware.rebuild import devices_of, nets_of, rebuilt


def first_gpus(topology: Topology, count: int) -> Topology:
    """Return the topology with the first `count` GPUs by NVML index.

    `CUDA_VISIBLE_DEVICES` selects GPUs in the same way. Raises InputError if the file names fewer
    GPUs.
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

    NCCL applies the rule to InfiniBand and RoCE NICs; here it is applied to socket interfaces, too.
    Without a rule all ports are kept. Raises InputError if the file has NICs and the rule selects
    none.
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
