# SPDX-License-Identifier: Apache-2.0
"""The order in which NCCL's search tries NICs and GPUs.

The search stops at a limit of steps, so the order decides which channels it finds. The source is
`graph/search.cc` of NCCL 2.19 to 2.30 (`ncclTopoSelectNets`, `ncclTopoSearchNextGpuSort`).
"""

from collections.abc import Sequence
from typing import Protocol

from nccltune.formats.topology.graph_xml import Pattern
from nccltune.model.choice import MAX_CHANNELS
from nccltune.topology.hardware.links import LinkKind
from nccltune.topology.nccl_model.routes import NodeRoutes, twins
from nccltune.topology.nccl_model.search_rules import SearchRules
from nccltune.topology.nccl_model.settings import PathKind


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


class SearchOrder:
    """The order of NICs and GPUs on one node. `left` is the bandwidth left on each link in MB/s."""

    def __init__(self, node: NodeRoutes, rules: SearchRules, left: Sequence[int]) -> None:
        self.node = node
        self.rules = rules
        self.left = left
        self.size = len(node.gpus)
        indexes = [gpu.index for gpu in node.gpus]
        by_rest = rules.shares_by_rest
        self.own_nets = [
            local_nets(gpu, node.gpu_net, node.net_gpu, indexes, among_sharing=by_rest)
            for gpu in range(self.size)
        ]
        self.own_gpu = [
            local_gpu(net, node.gpu_net, node.net_gpu, indexes, among_sharing=by_rest)
            for net in range(len(node.nets))
        ]
        self._first_gpus = [self._near(net) for net in range(len(node.nets))]
        self._pci_links = _pci_links(node)
        self._nets_to_try: dict[tuple[int | None, PathKind], list[int]] = {}
        self._sorted: dict[tuple[object, ...], list[tuple[int, tuple[int, int]]]] = {}
        self._next: dict[tuple[object, ...], tuple[int, ...]] = {}

    def nets(self, gpu: int | None, limit: PathKind) -> list[int]:
        """Return the NICs to try from a GPU (None: all): its own, then all up to `limit`."""
        key = (gpu, limit)
        if key not in self._nets_to_try:
            gpus = range(self.size) if gpu is None else (gpu,)
            nets = dict.fromkeys(net for one in gpus for net in self.own_nets[one])
            for kind in range(limit + 1):
                for one in gpus:
                    for net, route in enumerate(self.node.gpu_net[one]):
                        if route.kind == kind:
                            nets.setdefault(net)
            self._nets_to_try[key] = list(nets)
        return self._nets_to_try[key]

    def first_gpus(self, net: int, number: int, gb_per_s: int) -> Sequence[int]:
        """Return the GPUs at which channel `number` may begin after it has come from a NIC."""
        near = self._first_gpus[net]
        if self.rules.near_gpus:
            own = self.own_gpu[net]
            if own is None or not self.rules.own_gpu_first:
                return near
            return (own, *(gpu for gpu in near if gpu != own))
        if not near or self.node.net_gpu[net][near[0]].gb_per_s < gb_per_s:
            return ()
        turn = number % self.size
        return (*(gpu for gpu in near if gpu >= turn), *(gpu for gpu in near if gpu < turn))

    def _near(self, net: int) -> list[int]:
        routes = self.node.net_gpu[net]
        if self.rules.near_gpus:
            return best_route_indexes(routes)
        ranks = [(-route.gb_per_s, len(route.links)) for route in routes]
        return [gpu for gpu, rank in enumerate(ranks) if rank == min(ranks)]

    def next_gpus(
        self, gpu: int, used: int, net: int | None, pattern: Pattern, *, back_later: bool
    ) -> tuple[int, ...]:
        """Return the GPUs to try after a GPU, best first, without those in the bits of `used`.

        GPUs near NIC `net` come first. `back_later`: the channel returns to a NIC, but not from the
        next GPU, and equally good GPUs are tried in reverse.
        """
        if self.node.nvswitch and self.rules.neighbours_only:
            # The order does not matter: only the neighbours are left of it.
            net, back_later = None, False
        pci = None
        if net is not None:
            left = self.left
            pci = tuple([min(left[up], left[down]) // 1000 for up, down in self._pci_links])
        key = (gpu, used, net, back_later, pattern, pci)
        found = self._next.get(key)
        if found is None:
            found = self._next[key] = self._find_next(gpu, used, net, pattern, back_later, pci)
        return found

    def _find_next(
        self,
        gpu: int,
        used: int,
        net: int | None,
        pattern: Pattern,
        back_later: bool,
        pci: tuple[int, ...] | None,
    ) -> tuple[int, ...]:
        free = [one for one in self._order_from(gpu, net, pci) if not used >> one[0] & 1]
        following = [other for other, _ in free]
        if back_later and len({inside for _, inside in free}) == 1:
            following.reverse()
        if not self.node.nvswitch:
            return tuple(following)
        first = [one for one in self._neighbours(gpu, pattern) if one in following]
        if self.rules.neighbours_only:
            return tuple(first)
        return (*first, *(other for other in following if other not in first))

    def _order_from(
        self, gpu: int, net: int | None, pci: tuple[int, ...] | None
    ) -> list[tuple[int, tuple[int, int]]]:
        """Return all other GPUs, best first, with bandwidth and hops; `pci` has what is left
        there."""
        key = (gpu, net, pci)
        if key not in self._sorted:
            routes = self.node.gpu_gpu[gpu]
            scores = []
            for away in range(1, self.size):
                other = (gpu + away) % self.size
                if not routes[other].links:
                    continue
                inside = (-int(routes[other].gb_per_s), len(routes[other].links))
                outside = (0, 0, 0)
                if net is not None and pci is not None:
                    route = self.node.net_gpu[net][other]
                    outside = (-int(route.gb_per_s), -pci[other], len(route.links))
                scores.append(((*outside, *inside, away), other, inside))
            self._sorted[key] = [(other, inside) for _, other, inside in sorted(scores)]
        return self._sorted[key]

    def _neighbours(self, gpu: int, pattern: Pattern) -> list[int]:
        """Return the GPUs to try first with NVSwitches: the next and the previous by index."""
        after, before = (gpu + 1) % self.size, (gpu - 1) % self.size
        if pattern is Pattern.RING:
            wanted = [after, before]
        elif pattern is Pattern.BALANCED_TREE:
            wanted = [before, after]
        else:
            wanted = [after]
        # NCCL inserts each GPU at the front of its list, so the last inserted comes first.
        return list(dict.fromkeys(reversed(wanted)))


def _pci_links(node: NodeRoutes) -> list[tuple[int, int]]:
    """Return the PCI link of each GPU, both ways; a GPU without one gets any, the same."""
    back = twins(node.links)
    of_gpu = {
        link.source: (number, back[number])
        for number, link in enumerate(node.links)
        if link.kind is LinkKind.PCI
    }
    return [of_gpu.get(gpu.name, (0, 0)) for gpu in node.gpus]
