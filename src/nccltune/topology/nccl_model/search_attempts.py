# SPDX-License-Identifier: Apache-2.0
"""One attempt of NCCL's search for channels that satisfy a goal.

An attempt goes from GPU to GPU, subtracts (*books*) bandwidth from the links between them, and
backtracks if a link has too little left. The source is `ncclTopoSearchRec` and its callees in
`graph/search.cc` of NCCL 2.19 to 2.30. Bandwidth is counted in whole MB/s, because NCCL rounds the
remaining GB/s of a link to three decimals.
"""

from collections.abc import Iterator, Sequence

import msgspec

from nccltune.formats.topology.graph_xml import Pattern
from nccltune.topology.hardware.links import LinkKind
from nccltune.topology.nccl_model.routes import NodeRoutes, Route, twins
from nccltune.topology.nccl_model.search_order import SearchOrder
from nccltune.topology.nccl_model.search_rules import BestChannels, Ring, SearchGoal, SearchRules
from nccltune.topology.nccl_model.settings import PathKind

TREES = (Pattern.BALANCED_TREE, Pattern.SPLIT_TREE, Pattern.TREE)

_FIRST_ORDER_STEPS = 1 << 10
Bookings = tuple[tuple[int, int], ...]
"""Pairs of a link's index and the MB/s booked on it."""


SearchStep = Iterator["SearchStep | None"]
"""Yields each nested step, or None for one without work.

The search is thousands of steps deep, more than Python's recursion limit.
"""
_DONE: SearchStep = iter(())


def _run_step(first: SearchStep) -> None:
    """Run a step and all steps nested in it, with a stack instead of recursion."""
    outer, step = [_DONE], first
    while step is not _DONE:
        part = next(step, _DONE)
        if part is _DONE:
            step = outer.pop()
        elif part is not None:
            outer.append(step)
            step = part


class SearchAttempts:
    """The search attempts on one node. `best` is the best result of all attempts so far."""

    def __init__(
        self, node: NodeRoutes, inter: bool, goal: SearchGoal, rules: SearchRules, coll: bool
    ) -> None:
        self.node = node
        self.inter = inter
        self.goal = goal
        self.rules = rules
        self.coll = coll
        """Whether channels enter only through NICs with CollNet."""
        self.size = len(node.gpus)
        self.best = BestChannels(
            pattern=goal.pattern,
            cross_nic=goal.cross_nic,
            intra_type=goal.intra_type,
            inter_type=goal.inter_type,
            intra_gb_per_s=0.0,
            inter_gb_per_s=0.0,
            same_channels=goal.same_channels,
            rings=[],
            hops=0,
        )
        self.hops = 0
        self.left = [round(link.gb_per_s * 1000) for link in node.links]
        self.net_left = [round(net.gb_per_s * 1000) for net in node.nets]
        self.order = SearchOrder(node, rules, self.left)
        self._known_bookings: dict[tuple[int, float], Bookings] = {}
        self.found = 0
        """The number of times that an attempt improved `best`."""
        self._tried: dict[tuple[object, ...], tuple[int, int]] = {}
        self._intra_kinds = {route.kind for row in node.gpu_gpu for route in row}
        self._inter_kinds = {
            route.kind for rows in (node.gpu_net, node.net_gpu) for row in rows for route in row
        }
        self._old_gpus = {gpu.name for gpu in node.gpus if gpu.sm < 80}
        self._twin = twins(node.links)
        self._ports = [_same_port(node, net) for net in range(len(node.nets))]

    def run(self, steps: int) -> int:
        """Search for the goal for at most `steps` steps; return those left, -1 if it is best.

        A goal that differs from an earlier one only in a path type that no path has is not searched
        again, unless `best` has improved since.
        """
        key = (steps, *msgspec.structs.astuple(self._effective_goal()))
        if key in self._tried and self._tried[key][0] == self.found:
            return self._tried[key][1]
        self.time = steps
        self.rings: list[Ring] = []
        self.used = 0
        self.gpus: list[int] = []
        self.net_in: int = 0
        self.net_out: int | None = None
        self._open = self._open_routes()
        _run_step(self._channel())
        self._tried[key] = (self.found, self.time)
        return self.time

    def _effective_goal(self) -> SearchGoal:
        """Return the goal with each path type lowered to the longest type that the node has."""
        types = [
            max((kind for kind in kinds if kind <= limit), default=None)
            for kinds, limit in (
                (self._intra_kinds, self.goal.intra_type),
                (self._inter_kinds, self.goal.inter_type),
            )
        ]
        replace = msgspec.structs.replace
        return replace(self.goal, intra_type=types[0], inter_type=types[1])

    def _channel(self) -> SearchStep:
        """Begin the next channel, at its first NIC or GPU (`ncclTopoSearchRec`)."""
        to_net, to_first = self._exit_steps()
        if self.inter:
            yield self._from_nets(to_net, to_first)
            return
        number = len(self.rings)
        if number == 0:
            yield self._enter(None, 0, to_net, to_first, "index")
        else:
            yield self._enter(None, self.rings[-1].gpus[0], to_net, to_first, "replay")
        if not self.goal.same_channels or number == 0:
            for gpu in range(self.size):
                yield self._enter(None, gpu, to_net, to_first, "search")

    def _exit_steps(self) -> tuple[int, int]:
        """Return the steps at which a channel goes to its NIC, and a ring closes; -1 is never."""
        if not self.inter:
            return -1, self.size - 1 if self.goal.pattern is Pattern.RING else -1
        return (self.size - 1 if self.goal.pattern is Pattern.RING else 0), -1

    def _from_nets(self, to_net: int, to_first: int) -> SearchStep:
        """Begin a channel at each NIC that has bandwidth left (`ncclTopoSearchRecNet`)."""
        goal = self.goal
        # NCCL uses whole GB/s for this test: `const int bw`.
        speed = int(goal.inter_gb_per_s) * 1000
        nets = self.order.nets(None, goal.inter_type)
        number = len(self.rings)
        paired = number & 1 and self._pairs_nets()
        for turn in range(len(nets)):
            net = nets[(number + turn) % len(nets)]
            if self.net_left[net] < speed or (self.coll and not self.node.nets[net].coll):
                continue
            if paired and net != self.rings[-1].net_out:
                continue
            for port in self._ports[net]:
                self.net_left[port] -= speed
            self.net_in = net
            yield self._from_net(net, to_net, to_first)
            for port in self._ports[net]:
                self.net_left[port] += speed

    def _pairs_nets(self) -> bool:
        """Return whether an odd channel uses the NICs of the channel before it in reverse."""
        rules = self.rules
        crosses = self.goal.cross_nic == rules.crossed
        everywhere = rules.pairs_nets and rules.crossed == 1
        return crosses and (
            everywhere or (rules.crossed == 2 and self.goal.pattern is Pattern.RING)
        )

    def _from_net(self, net: int, to_net: int, to_first: int) -> SearchStep:
        same = self.goal.same_channels
        if self.rings and (same or not self.rules.own_gpu_first):
            yield self._enter(net, self.rings[-1].gpus[0], to_net, to_first, "replay")
        if self.rings and same:
            return
        if not self.rings and not self.node.nvswitch:
            # Try the GPUs in index order first, with a separate limit of steps.
            saved, self.time = self.time, _FIRST_ORDER_STEPS
            yield self._enter(net, 0, to_net, to_first, "index")
            self.time = -1 if self.time == -1 else saved
        for gpu in self.order.first_gpus(net, len(self.rings), int(self.goal.inter_gb_per_s)):
            yield self._enter(net, gpu, to_net, to_first, "search")

    def _enter(
        self, net: int | None, gpu: int, to_net: int, to_first: int, order: str
    ) -> SearchStep:
        """Go to the first GPU of a channel, from NIC `net` if any.

        `order` of further GPUs is `index`, `replay` of the last channel, or `search`, the best
        first.
        """
        route: Route | None = None
        bookings: Bookings = ()
        if net is not None:
            route, back = self.node.net_gpu[net][gpu], self.node.gpu_net[gpu][net]
            bookings = self._bookings_of(route, self.goal.inter_gb_per_s, True)
            if not self._book(route, back, bookings, False):
                return
        self.used = 1 << gpu
        yield self._at(gpu, 0, to_net, to_first, order)
        self.used = 0
        if route is not None:
            self._release(route, bookings)

    def _book(self, route: Route, back: Route, bookings: Bookings, intra: bool) -> bool:
        """Book bandwidth on every link of a route; False, and nothing, if one does not fit."""
        kind = self.goal.intra_type if intra else self.goal.inter_type
        if route.kind > kind:
            return False
        if back.kind > kind and self.goal.pattern in TREES:
            return False
        left = self.left
        for link, want in bookings:
            if left[link] < want:
                return False
        for link, want in bookings:
            left[link] -= want
        self.hops += self._hops(route)
        return True

    def _release(self, route: Route, bookings: Bookings) -> None:
        left = self.left
        for link, want in bookings:
            left[link] += want
        self.hops -= self._hops(route)

    def _hops(self, route: Route) -> int:
        """Return the hops of a route; since 2.30 a GPU in between counts as two devices."""
        through_gpu = self.rules.two_devices and route.kind is PathKind.PXN
        return len(route.links) + 2 * through_gpu

    def _bookings_of(self, route: Route, speed: float, from_net: bool) -> Bookings:
        """Return the bandwidth in MB/s that a route books on each link.

        P2P through an Intel root complex books 6/5 on PCI links, because the data is split into
        small packets. A NIC that writes to a GPU before compute capability 8.0 also books 1/8 on
        the other direction, and NVLink to a CPU of POWER the same on both.
        """
        key = (id(route), speed)
        found = self._known_bookings.get(key)
        if found is not None:
            return found
        links = self.node.links
        mb_per_s = round(speed * 1000)
        through = not from_net and route.kind is PathKind.PHB and self.node.intel
        bookings = [
            (link, mb_per_s * 6 // 5 if through and links[link].kind is LinkKind.PCI else mb_per_s)
            for link in route.links
        ]
        bookings += [
            (self._twin[link], mb_per_s // 8)
            for link in route.links
            if from_net and links[link].target in self._old_gpus
        ]
        bookings += [
            (self._twin[link], mb_per_s)
            for link in route.links
            if links[link].kind is LinkKind.NVLINK and links[link].target in self.node.power
        ]
        self._known_bookings[key] = tuple(bookings)
        return self._known_bookings[key]

    def _at(self, gpu: int, step: int, to_net: int, to_first: int, order: str) -> SearchStep | None:
        """Continue at a GPU, number `step` of the channel (`ncclTopoSearchRecGpu`); None at the
        limit."""
        if self.time <= 0:
            return None
        self.time -= 1
        size = self.size
        if step == size:
            return self._complete()
        self.gpus[step:] = (gpu,)
        if step == to_net:
            return self._to_net(gpu, step, to_first, order)
        if step < size - 1:
            return self._onward(gpu, step, to_net, to_first, order)
        if step == to_first:
            return self._close(gpu, step, to_net, order)
        return self._at(gpu, size, -1, -1, order)

    def _onward(self, gpu: int, step: int, to_net: int, to_first: int, order: str) -> SearchStep:
        """Continue at each next GPU whose links have enough bandwidth left.

        Nearly all time is spent here, so `_book` and `_release` are inlined.
        """
        left, routes, open_routes = self.left, self.node.gpu_gpu[gpu], self._open[gpu]
        for following in self._next(gpu, step, to_net, order):
            if self.time <= 0:
                return
            bookings = open_routes[following]
            if bookings is None:
                continue
            for link, want in bookings:
                if left[link] < want:
                    break
            else:
                for link, want in bookings:
                    left[link] -= want
                hops, used = len(routes[following].links), self.used
                self.hops += hops
                self.used = used | 1 << following
                yield self._at(following, step + 1, to_net, to_first, order)
                self.used = used
                self.hops -= hops
                for link, want in bookings:
                    left[link] += want
                del self.gpus[step + 1 :]

    def _open_routes(self) -> list[list[Bookings | None]]:
        """Return the bookings of each route between GPUs; None for one that is too long.

        For a tree, the route back counts too.
        """
        goal = self.goal
        tree = goal.pattern in TREES
        routes = self.node.gpu_gpu
        return [
            [
                self._bookings_of(route, goal.intra_gb_per_s, False)
                if max(route.kind, routes[b][a].kind if tree else route.kind) <= goal.intra_type
                else None
                for b, route in enumerate(row)
            ]
            for a, row in enumerate(routes)
        ]

    def _close(self, gpu: int, step: int, to_net: int, order: str) -> SearchStep:
        """Close a ring: go from its last GPU to its first GPU."""
        first = self.gpus[0]
        route, back = self.node.gpu_gpu[gpu][first], self.node.gpu_gpu[first][gpu]
        bookings = self._bookings_of(route, self.goal.intra_gb_per_s, False)
        if self._book(route, back, bookings, True):
            yield self._at(first, step + 1, to_net, -1, order)
            self._release(route, bookings)

    def _to_net(self, gpu: int, step: int, to_first: int, order: str) -> SearchStep:
        """Go to the NIC through which the channel leaves; a balanced tree books half of it
        twice."""
        goal = self.goal
        balanced = goal.pattern is Pattern.BALANCED_TREE
        speed = goal.inter_gb_per_s / (2 if balanced else 1)
        start = self.net_in
        then = 1 if balanced and step == 0 else -1
        for net in self.order.nets(gpu, goal.inter_type):
            if not self._fits(start, net, step):
                continue
            route, back = self.node.gpu_net[gpu][net], self.node.net_gpu[net][gpu]
            bookings = self._bookings_of(route, speed, False)
            if not self._book(route, back, bookings, False):
                continue
            saved, self.net_out = self.net_out, net
            yield self._at(gpu, step, then, to_first, order)
            self.net_out, self.net_in = saved, start
            self._release(route, bookings)

    def _fits(self, start: int, net: int, step: int) -> bool:
        goal = self.goal
        a, b = self.node.nets[start], self.node.nets[net]
        if goal.pattern is Pattern.TREE and net != start:
            return False
        if goal.cross_nic == 0 and (a.asic, a.port) != (b.asic, b.port):
            return False
        if len(self.rings) & 1 and self._pairs_nets() and net != self.rings[-1].net_in:
            return False
        return not (goal.pattern is Pattern.BALANCED_TREE and step != 0 and net != self.net_out)

    def _next(self, gpu: int, step: int, to_net: int, order: str) -> Sequence[int]:
        if order == "index":
            return (step + 1,)
        if order == "replay":
            return (self.rings[-1].gpus[step + 1],)
        net = None if to_net == -1 else self.net_in
        back_later = to_net not in (-1, step + 1)
        return self.order.next_gpus(gpu, self.used, net, self.goal.pattern, back_later=back_later)

    def _complete(self) -> SearchStep:
        """Finish a channel, keep all channels if they are the best so far, and begin the next."""
        ends = (self.net_in, self.net_out) if self.inter else (None, None)
        self.rings.append(Ring(tuple(self.gpus), *ends))
        if self._is_better():
            self.found += 1
            goal = self.goal
            self.best.pattern = goal.pattern
            self.best.cross_nic = goal.cross_nic
            self.best.intra_type, self.best.inter_type = goal.intra_type, goal.inter_type
            self.best.intra_gb_per_s = goal.intra_gb_per_s
            self.best.inter_gb_per_s = goal.inter_gb_per_s
            self.best.same_channels = goal.same_channels
            self.best.rings = list(self.rings)
            self.best.hops = self.hops
            if len(self.rings) == goal.most:
                self.time = -1
        if len(self.rings) < self.goal.most:
            kept = (self.gpus, self.used, self.net_in, self.net_out)
            self.gpus = []
            yield self._channel()
            self.gpus, self.used, self.net_in, self.net_out = kept
        self.rings.pop()

    def _is_better(self) -> bool:
        """Return whether the channels have more bandwidth, or fewer hops
        (`ncclTopoCompareGraphs`)."""
        goal, best = self.goal, self.best
        count = len(self.rings)
        if count < goal.least:
            return False
        mine, other = count * goal.intra_gb_per_s, len(best.rings) * best.intra_gb_per_s
        other *= 1.0 - (best.cross_nic - goal.cross_nic) * self.rules.crossing_loss
        if mine != other:
            return mine > other
        return (
            goal.pattern is best.pattern
            and goal.cross_nic == best.cross_nic
            and self.hops < best.hops
        )


def _same_port(node: NodeRoutes, net: int) -> list[int]:
    """Return the NICs that are on the same port as a NIC, itself included."""
    spot = node.nets[net]
    return [
        number
        for number, other in enumerate(node.nets)
        if (other.asic, other.port) == (spot.asic, spot.port)
    ]


class HeadAttempts(SearchAttempts):
    """The attempts to find the heads of NVLS and of CollNet direct on one node.

    A channel is a *head*: a GPU that exchanges the data of the whole node with a NIC. It reaches
    all other GPUs at once, so there is no order of GPUs. The sources are `ncclTopoSearchTryNvls`
    and `ncclTopoSearchTryCollnetDirect` in `graph/search.cc` of NCCL 2.19 to 2.30.
    """

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
