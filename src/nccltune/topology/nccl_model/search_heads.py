# SPDX-License-Identifier: Apache-2.0
"""Attempts of the search for the heads of NVLS and of CollNet direct.

A channel is a *head*: a GPU that exchanges the data of the whole node with a NIC. It reaches all
other GPUs at once, so there is no order of GPUs. The sources are `ncclTopoSearchTryNvls` and
`ncclTopoSearchTryCollnetDirect` in `graph/search.cc` of NCCL 2.19 to 2.30.
"""

from nccltune.formats.topology.graph_xml import Pattern
from nccltune.topology.hardware.links import LinkKind
from nccltune.topology.nccl_model.routes import Route
from nccltune.topology.nccl_model.search_attempts import SearchAttempts, SearchStep
from nccltune.topology.nccl_model.settings import PathKind


class HeadAttempts(SearchAttempts):
    """The attempts to find heads on one node."""

    def run(self, steps: int) -> int:
        """Search for the goal. Equal goals are searched again: few steps are needed."""
        self._tried.clear()
        return super().run(steps)

    def _channel(self) -> SearchStep:
        """Begin the next channel. On one node its head is the GPU with the channel's number."""
        if self.inter:
            yield self._from_nets(0, -1)
        else:
            yield self._enter(None, len(self.rings), -1, -1, "search")

    def _from_nets(self, to_net: int, to_first: int) -> SearchStep:
        """Begin a channel at the first NIC that leads to a further head."""
        speed = int(self.goal.inter_gb_per_s) * 1000
        nets = self.order.nets(None, self.goal.inter_type)
        number = len(self.rings)
        rule = self.rules.head_search
        for turn in range(1 if rule == 1 else len(nets)):
            net = nets[(number + turn) % len(nets)]
            if self.net_left[net] < speed or (self.coll and not self.node.nets[net].coll):
                continue
            for port in self._ports[net]:
                self.net_left[port] -= speed
            head = self.order.own_gpu[net]
            fits = number < len(nets)
            again = any(ring.gpus[0] == head for ring in self.rings) and rule > 1
            if fits and again and rule == 2:
                continue
            self.net_in = net
            tried = fits and head is not None and not again
            if tried and head is not None:
                yield self._enter(net, head, to_net, to_first, "search")
            for port in self._ports[net]:
                self.net_left[port] += speed
            if tried:
                return

    def _onward(self, gpu: int, _step: int, _net: int, _first: int, order: str) -> SearchStep:
        booked: list[tuple[Route, float]] = []
        if all(self._book_part(route, part, booked) for route, part in self._head_routes(gpu)):
            if self.goal.pattern is Pattern.COLLNET_DIRECT:
                self.gpus = [gpu, *(other for other in range(self.size) if other != gpu)]
            yield self._at(gpu, self.size, -1, -1, order)
        for route, part in reversed(booked):
            self._add_part(route, -part)

    def _head_routes(self, gpu: int) -> list[tuple[Route, float]]:
        node = self.node
        if self.goal.pattern is Pattern.NVLS:
            parts = [2.0 if other == gpu else 1.0 for other in range(self.size)]
            return [*zip((*node.from_switch, *node.to_switch), (*parts, *parts), strict=True)]
        part = 1 / (self.size - 1)
        out = [(route, part) for route in node.gpu_gpu[gpu]]
        return out + [(row[gpu], part) for row in node.gpu_gpu]

    def _book_part(self, route: Route, part: float, booked: list[tuple[Route, float]]) -> bool:
        """Book a part of the channel's speed on a route; NCCL checks the path type for the
        whole."""
        if part == 1.0 and route.kind > self.goal.intra_type:
            return False
        if any(self.left[link] < want for link, want in self._wants(route, part)):
            return False
        self._add_part(route, part)
        booked.append((route, part))
        return True

    def _add_part(self, route: Route, part: float) -> None:
        for link, want in self._wants(route, part):
            self.left[link] = round(self.left[link] - want)
        # NCCL counts hops as an integer, so each sum is truncated and some get lost.
        count = len(route.links) + 2 * (self.rules.two_devices and bool(route.links))
        self.hops = int(self.hops + part * count)

    def _hops(self, route: Route) -> int:
        """Return the hops to a NIC. Here their number matters, because NCCL truncates sums."""
        return super()._hops(route) + self.rules.two_devices

    def _wants(self, route: Route, part: float) -> list[tuple[int, float]]:
        mb_per_s = self.goal.intra_gb_per_s * 1000 * part
        over = 6 / 5 if route.kind is PathKind.PHB and self.node.intel else 1.0
        links = self.node.links
        return [
            (link, mb_per_s * (over if links[link].kind is LinkKind.PCI else 1.0))
            for link in route.links
        ]

    def _is_better(self) -> bool:
        if self.goal.pattern is not Pattern.NVLS:
            return super()._is_better()
        count, best = len(self.rings), self.best
        if count < self.goal.least:
            return False
        more = count > len(best.rings) and count <= self.size
        return more or count * self.goal.inter_gb_per_s > best.booked_gb_per_s
