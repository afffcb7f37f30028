# SPDX-License-Identifier: Apache-2.0
"""Assign NICs to GPUs as NCCL does (`ncclTopoGetLocalNet`, 2.19 to 2.30.7)."""

from collections.abc import Sequence
from typing import Protocol

from nccltune.model.choice import MAX_CHANNELS


class AnyRoute(Protocol):
    """A route: its path type and its bandwidth."""

    @property
    def kind(self) -> int: ...  # noqa: D102
    @property
    def gb_per_s(self) -> float: ...  # noqa: D102


def best_route_indexes(routes: Sequence[AnyRoute]) -> list[int]:
    """Return the indexes of all best routes: by bandwidth, then by path type."""
    if not routes:
        return []
    best = max(routes, key=lambda route: (route.gb_per_s, -route.kind))
    return [
        number
        for number, route in enumerate(routes)
        if route.gb_per_s == best.gb_per_s and route.kind == best.kind
    ]


def local_nets(
    gpu: int,
    gpu_net: Sequence[Sequence[AnyRoute]],
    net_gpu: Sequence[Sequence[AnyRoute]],
    indexes: Sequence[int],
    *,
    among_sharing: bool = True,
) -> list[int]:
    """Return the NICs of a GPU in the order in which the GPU's channels use them, each NIC once.

    GPUs with the same nearest NICs share them (`NCCL_NETDEVS_POLICY=AUTO`): each starts at another,
    by its NVML index, since NCCL 2.30.7 modulo the sharing GPUs (`among_sharing`).
    """
    near = best_route_indexes(gpu_net[gpu])
    if not near:
        return []
    sharing = len(best_route_indexes(net_gpu[near[0]]))
    each = -(-len(near) // sharing)
    start = indexes[gpu] % sharing if among_sharing else indexes[gpu]
    if len(near) & (len(near) - 1) == 0:
        start = _mirrored(start, len(near))
    return list(dict.fromkeys(near[(start + channel) % len(near)] for channel in range(each)))


def local_gpu(
    net: int,
    gpu_net: Sequence[Sequence[AnyRoute]],
    net_gpu: Sequence[Sequence[AnyRoute]],
    indexes: Sequence[int],
    *,
    among_sharing: bool = True,
) -> int | None:
    """Return the GPU that has `net` among its own NICs; None if no GPU near the NIC has it."""
    near = best_route_indexes(net_gpu[net])
    owned = {
        gpu: local_nets(gpu, gpu_net, net_gpu, indexes, among_sharing=among_sharing) for gpu in near
    }
    for channel in range(MAX_CHANNELS):
        for gpu in near:
            if owned[gpu] and owned[gpu][channel % len(owned[gpu])] == net:
                return gpu
    return None


def _mirrored(value: int, power: int) -> int:
    """Return the lowest bits of `value`, below `power` of two, in reverse order."""
    bits = power.bit_length() - 1
    return int(f"{value % power:0{bits}b}"[::-1], 2) if bits else 0
