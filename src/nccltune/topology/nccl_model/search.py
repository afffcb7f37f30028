# SPDX-License-Identifier: Apache-2.0
"""The channels that NCCL's search finds for each algorithm, and the speed of each channel.

The search *books* bandwidth: it subtracts the speed of a channel from each link that the channel
uses. The source is `ncclTopoCompute` in `graph/search.cc` of NCCL 2.19.3 to 2.30. If the search
finds too little, it relaxes its goal in this order:

1. the same order of GPUs in all channels 2. different orders 3. a simpler tree 4. longer paths
inside the node 5. longer paths to the NIC 6. different NICs in and out 7. a lower speed

Then it doubles the channels and raises the speed again. What differs by version is in
`search_rules.py` and `search_speeds.toml`.

Not modelled: several hosts under one NVLink domain (MNNVL).
"""

import functools
import tomllib
from collections.abc import Sequence
from importlib import resources

import msgspec

from nccltune.formats.topology.graph_xml import Pattern
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.hardware.links import LinkKind
from nccltune.topology.nccl_model.routes import NodeRoutes
from nccltune.topology.nccl_model.search_attempts import HeadAttempts, SearchAttempts
from nccltune.topology.nccl_model.search_order import SearchOrder
from nccltune.topology.nccl_model.search_rules import (
    BestChannels,
    Ring,
    SearchGoal,
    SearchRules,
)
from nccltune.topology.nccl_model.settings import PathKind, PathRules

STEPS = 1 << 19
"""Limit of steps for a whole search, as in NCCL (`NCCL_SEARCH_GLOBAL_TIMEOUT`)."""
_STEPS_A_TRY = 1 << 14
_STEPS_SAME_CHANNELS = 1 << 8
_DOUBLE_FROM_GB_PER_S = 25.0
_FALLBACK_GB_PER_S = 0.1

NEWEST: Version = (2, 31, 2)
"""The NCCL version whose tables are used if no version is given."""


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one search. NCCL logs it as `Pattern n, crossNic c, nChannels k, bw i/o, ...`.

    `rings` are by channel, indexes into `NodeRoutes`. `fell_back`: one channel of 0.1 GB/s
    ("falling back to simple order"). `ran_out`: a limit of steps was reached, as in NCCL's search.
    """

    pattern: Pattern
    cross_nic: int
    intra_gb_per_s: float
    inter_gb_per_s: float
    intra_type: PathKind
    inter_type: PathKind
    same_channels: bool
    rings: tuple[Ring, ...]
    fell_back: bool = False
    ran_out: bool = False

    @property
    def channels(self) -> int:
        """Return the number of channels found. NCCL doubles this number when it connects them."""
        return len(self.rings)


class Searched(msgspec.Struct, frozen=True):
    """The ring and tree that the search finds for one node, cut to the same number of channels."""

    ring: SearchResult
    tree: SearchResult
    version: Version = NEWEST

    def connected_channels(
        self,
        nodes: int,
        sm: int,
        least: int | None = None,
        most: int | None = None,
        *,
        nvls: bool = False,
    ) -> int:
        """Return the number of channels that collectives use (`connect.cc`, 2.19 to 2.31).

        NCCL doubles the channels. If several nodes have GPUs of Hopper or later (`sm`), and a
        channel has more than 45 GB/s, NCCL doubles fewer than 16 channels again. Then it applies
        `NCCL_MAX_NCHANNELS` (`most`) and `NCCL_MIN_NCHANNELS` (`least`). Up to 2.27 there are at
        least as many channels as NVLS has, if NVLS is on (`nvls`).
        """
        rules = SearchRules(self.version)
        limit = rules.most_channels
        count = min(limit, 2 * self.ring.channels)
        hopper = 90 <= sm <= rules.doubled_to
        if hopper and nodes > 1 and self.ring.intra_gb_per_s > 45.0 and count < rules.doubled_below:
            count *= 2
        count = min(count, most or limit)
        count = min(max(count, least or 1), limit)
        if nvls and rules.raised_for_nvls:
            count = max(count, nvls_channels(self.version, sm, nodes))
        return count


def nvls_channels(version: Version, sm: int, nodes: int) -> int:
    """Return the number of channels of NVLS (`nvlsChannels`), by the least compute capability."""
    table = SearchRules(version).nvls_channels
    one, several = table[max(since for since in table if since <= sm)]
    return several if nodes > 1 else one


def search(
    node: NodeRoutes, *, nodes: int, cross_nic: int = 2, version: Version | None = None
) -> Searched:
    """Return ring and tree as NCCL's search finds them for `nodes` equal nodes.

    `version` is the NCCL version; None is the newest known. Raises ValueError for several nodes
    without a NIC.

    >>> from nccltune.examples import example
    >>> from nccltune.topology.files.load import load_topology
    >>> from nccltune.topology.nccl_model.routes import node_routes
    >>> found = search(node_routes(load_topology(example("h200x4-1-node"))), nodes=1)
    >>> found.ring.channels, found.ring.intra_gb_per_s
    (12, 30.0)
    """
    known = version or NEWEST
    inter = _several(node, nodes)
    most = SearchRules(known).most_channels // 2
    ring = _search(node, Pattern.RING, known, inter, cross_nic, 1, most)
    assert ring is not None
    tree = _search(
        node, Pattern.BALANCED_TREE, known, inter, cross_nic, ring.channels, ring.channels
    )
    assert tree is not None
    both = min(ring.channels, tree.channels)
    cut = msgspec.structs.replace
    return Searched(cut(ring, rings=ring.rings[:both]), cut(tree, rings=tree.rings[:both]), known)


def search_nvls(
    node: NodeRoutes, *, nodes: int, version: Version | None = None
) -> SearchResult | None:
    """Return the channels of NVLS: in `rings` the head of each and its NICs.

    None without NVSwitches, Hopper, or bandwidth. Whether the driver offers multicast is not known.
    """
    if not node.nvswitch or min(gpu.sm for gpu in node.gpus) < 90:
        return None
    known = version or NEWEST
    rules = SearchRules(known)
    most = min(rules.nvls_heads or len(node.gpus), len(node.gpus))
    inter = _several(node, nodes)
    # On one node NVLS has to read from all GPUs equally.
    least = 1 if inter else most
    return _search(node, Pattern.NVLS, known, inter, 0, least, most)


class CollnetSearched(msgspec.Struct, frozen=True):
    """The channels of CollNet chain and direct. None: too little bandwidth to NICs with CollNet."""

    chain: SearchResult | None
    direct: SearchResult | None


def search_collnet(
    node: NodeRoutes, *, nodes: int, channels: int, version: Version | None = None
) -> CollnetSearched:
    """Return the channels of CollNet on several nodes. `channels` is the number of the ring."""
    known = version or NEWEST
    rules = SearchRules(known)
    inter = _several(node, nodes)
    chain = _search(node, Pattern.TREE, known, inter, 0, channels, channels, coll=True)
    if not rules.collnet_direct:
        return CollnetSearched(chain, chain)
    most = min(rules.collnet_heads or len(node.gpus), len(node.gpus))
    direct = _search(node, Pattern.COLLNET_DIRECT, known, inter, 0, 1, most, coll=True)
    return CollnetSearched(chain, direct)


def _several(node: NodeRoutes, nodes: int) -> bool:
    if nodes > 1 and not node.nets:
        raise ValueError("several nodes need a NIC")
    return nodes > 1


class _Table(msgspec.Struct, frozen=True):
    sm: int
    since: tuple[int, int, int]
    intra: tuple[float, ...] = ()
    inter: tuple[float, ...] = ()


@functools.cache
def _tables() -> list[_Table]:
    text = (
        resources.files("nccltune.topology.nccl_model")
        .joinpath("search_speeds.toml")
        .read_text("utf-8")
    )
    return msgspec.convert(tomllib.loads(text)["table"], list[_Table])


def speeds(sm: int, *, inter: bool, version: Version) -> Sequence[float]:
    """Return the speeds in GB/s that a search tries, fastest first; `sm` is 90 for 9.0."""
    fitting = [
        one
        for one in _tables()
        if one.sm <= sm and one.since <= version and (one.inter if inter else one.intra)
    ]
    best = max(fitting or _tables()[:1], key=lambda one: (one.sm, one.since))
    return best.inter if inter else best.intra


def _search(
    node: NodeRoutes,
    pattern: Pattern,
    version: Version,
    inter: bool,
    cross_nic: int,
    least: int,
    most: int,
    *,
    coll: bool = False,
) -> SearchResult | None:
    """Return the best channels of a pattern; None if one that NCCL can do without has none."""
    found = _Search(node, pattern, version, inter, cross_nic, coll).run(least, most)
    optional = coll or found.pattern is Pattern.NVLS
    return None if optional and found.fell_back else found


class _Search:
    def __init__(
        self,
        node: NodeRoutes,
        pattern: Pattern,
        version: Version,
        inter: bool,
        cross_nic: int,
        coll: bool,
    ) -> None:
        self.node = node
        self.size = len(node.gpus)
        self.sm = min(gpu.sm for gpu in node.gpus)
        self.version = version
        self.rules = SearchRules(version)
        self.table = speeds(self.sm, inter=inter, version=version)
        self.inter = inter
        self.coll = coll
        # A channel may use different NICs in and out (crossNic). NCCL decides this before it gives
        # a single GPU the plain tree pattern.
        crossing = len(node.nets) > 1 and (inter or self.rules.nets_on_one_node)
        self.cross_nic = cross_nic if crossing else 0
        self.pattern = pattern
        if self.size == 1 and pattern is not Pattern.RING:
            self.pattern = Pattern.TREE
        self.same_first = pattern is not Pattern.NVLS
        self.ran_out = False

    def run(self, least: int, most: int) -> SearchResult:
        if self.pattern is Pattern.RING and least == 1 and most >= 2 and self._split_nvlink():
            least = 2
        low_intra, high_intra, low_inter, high_inter = self._types()
        goal = SearchGoal(
            pattern=self.pattern,
            least=least,
            most=most,
            cross_nic=1 if self.cross_nic == 1 else 0,
            intra_type=low_intra,
            inter_type=low_inter,
            same_channels=self.same_first,
        )
        heads = self.pattern in (Pattern.NVLS, Pattern.COLLNET_DIRECT)
        kind = HeadAttempts if heads else SearchAttempts
        attempts = kind(self.node, self.inter, goal, self.rules, self.coll)
        fastest, total = system_bandwidths(self.node, inter=self.inter, version=self.version)
        stretched = total
        if self.size > 1 and self.pattern is not Pattern.RING:
            # As in NCCL: a tree does not return to its first GPU, so it may use a little more
            # bandwidth.
            stretched *= self.size / (self.size - 1)
        elif self.size == 1 and self.rules.unbounded_single_gpu:
            stretched = float("inf")
        speed = 0
        last = len(self.table) - 1
        while speed < last and (
            self.table[speed] > fastest or self.table[speed] * least > stretched
        ):
            speed += 1
        self._first_pass(attempts, speed, total, (low_intra, high_intra, low_inter, high_inter))
        self._second_pass(attempts)
        return self._result(attempts)

    def _first_pass(
        self,
        attempts: SearchAttempts,
        speed: int,
        total: float,
        types: tuple[PathKind, PathKind, PathKind, PathKind],
    ) -> None:
        """Relax the goal step by step until a further attempt cannot improve the result much."""
        goal, best = attempts.goal, attempts.best
        goal.set_speed(self.table[speed])
        budget = STEPS
        while True:
            given = self._budget(goal)
            budget -= given
            left = attempts.run(given)
            self.ran_out |= left == 0
            if left == -1 or best.booked_gb_per_s >= total:
                return
            if goal.same_channels and not (self.node.amd and goal.intra_type is PathKind.SYS):
                goal.same_channels = False
                continue
            goal.same_channels = self.same_first
            budget += left
            if budget < 0 and best.rings:
                return
            if self._relax_pattern(goal, best) or self._relax_paths(goal, best, types):
                continue
            if speed == len(self.table) - 1 or (
                best.rings and self.table[speed + 1] / best.inter_gb_per_s <= 0.49
            ):
                return
            speed += 1
            goal.set_speed(self.table[speed])

    def _relax_pattern(self, goal: SearchGoal, best: BestChannels) -> bool:
        """Replace a balanced tree by a plain one. Return whether there is a new goal to try."""
        if self.sm >= 90 and goal.pattern is Pattern.BALANCED_TREE:
            goal.pattern = Pattern.TREE
            return True
        goal.pattern = best.pattern
        return False

    def _relax_paths(
        self,
        goal: SearchGoal,
        best: BestChannels,
        types: tuple[PathKind, PathKind, PathKind, PathKind],
    ) -> bool:
        """Allow longer paths in the node, then to NICs, then different NICs in and out.

        Return whether there is a new goal; if not, it is reset to the shortest paths.
        """
        low_intra, high_intra, low_inter, high_inter = types
        ceiling = goal.inter_type if self.inter else high_intra
        longer = self._next_kind(goal.intra_type, ceiling)
        if longer is not None and (not best.rings or goal.intra_type < best.intra_type):
            goal.intra_type = longer
            return True
        goal.intra_type = low_intra
        improves = (
            not best.rings or goal.inter_type < best.inter_type or goal.inter_type < PathKind.PXN
        )
        longer = self._next_kind(goal.inter_type, high_inter)
        if self.inter and longer is not None and improves:
            goal.inter_type = longer
            return True
        goal.inter_type = low_inter
        crossed = self.rules.crossed
        crossing = crossed == 1 or best.pattern in (Pattern.RING, Pattern.BALANCED_TREE)
        if self.cross_nic == 2 and goal.cross_nic == 0 and crossing:
            goal.cross_nic = crossed
            return True
        goal.cross_nic = 1 if self.cross_nic == 1 else 0
        return False

    def _next_kind(self, kind: PathKind, ceiling: PathKind) -> PathKind | None:
        """Return the next longer path type that this version has; None above the ceiling."""
        return next((one for one in self.rules.kinds if kind < one <= ceiling), None)

    def _second_pass(self, attempts: SearchAttempts) -> None:
        """Split fast channels into two of half the speed, then try to raise the speed again."""
        best = attempts.best
        self._double(attempts)
        attempts.goal = goal = best.as_goal(attempts.goal)
        attempts.hops = best.hops
        goal.least = len(best.rings)
        last = len(self.table) - 1
        speed = 0
        while speed < last and self.table[speed] > best.inter_gb_per_s:
            speed += 1
        goal.set_speed(self.table[speed])
        left = -1
        while left != 0 and speed > 0 and best.rings:
            if self.pattern is Pattern.RING:
                speed -= 1
                goal.set_speed(self.table[speed])
            elif (
                self.pattern is Pattern.NVLS
                and goal.inter_gb_per_s == best.inter_gb_per_s
                and goal.inter_gb_per_s < goal.intra_gb_per_s * 2
            ):
                goal.least = goal.most = len(best.rings)
                speed -= 1
                goal.inter_gb_per_s = self.table[speed]
            elif (
                goal.intra_gb_per_s == best.intra_gb_per_s
                and goal.intra_gb_per_s < goal.inter_gb_per_s * 2
            ):
                speed -= 1
                goal.intra_gb_per_s = self.table[speed]
            else:
                return
            left = attempts.run(self._budget(goal))

    def _double(self, attempts: SearchAttempts) -> None:
        best = attempts.best
        count = len(best.rings)
        if not count or best.intra_gb_per_s < _DOUBLE_FROM_GB_PER_S:
            return
        if self.pattern is Pattern.NVLS:
            return
        if self.sm > 80 and best.intra_gb_per_s < 50.0 and count > 4:
            return
        doubled = min(2 * count, attempts.goal.most)
        parts = -(-doubled // count)
        best.rings = [*best.rings, *best.rings][:doubled]
        best.intra_gb_per_s /= parts
        best.inter_gb_per_s /= parts

    def _budget(self, goal: SearchGoal) -> int:
        return _STEPS_SAME_CHANNELS if goal.same_channels else _STEPS_A_TRY

    def _types(self) -> tuple[PathKind, PathKind, PathKind, PathKind]:
        """Return the shortest and longest path types inside the node, and then those to NICs."""
        low_intra, high_intra = PathKind.LOC, PathKind.SYS
        low_inter, high_inter = PathKind.PIX, PathKind.SYS
        if not self.rules.own_kinds:
            low_intra = PathKind.LOC if self.size == 1 else PathKind.NVL
            return low_intra, high_intra, low_inter, high_inter
        if self.size > 1:
            kinds = [
                route.kind
                for a, row in enumerate(self.node.gpu_gpu)
                for b, route in enumerate(row)
                if a != b
            ]
            low_intra, high_intra = min([*kinds, PathKind.SYS]), max(kinds)
        if self.inter:
            kinds = [route.kind for row in self.node.gpu_net for route in row]
            low_inter = min([*kinds, PathKind.SYS])
            high_inter = high_intra = max([*kinds, PathKind.LOC])
        if self.sm < 90 and self.rules.far_nets_before_sm90:
            # The way back of a balanced tree may need a long path, so allow all paths to NICs.
            high_inter = PathKind.SYS
        return low_intra, high_intra, low_inter, high_inter

    def _split_nvlink(self) -> bool:
        """Return whether NVLink joins the GPUs into exactly two groups (`ncclTopoSplitNvLink`)."""
        if not self.rules.split_nvlink:
            return False
        domain = list(range(self.size))
        for a in range(self.size):
            for b in range(a + 1, self.size):
                if self.node.gpu_gpu[a][b].kind is PathKind.NVL:
                    domain[b] = domain[a]
        return sum(domain.count(one) > 1 for one in set(domain)) == 2

    def _result(self, attempts: SearchAttempts) -> SearchResult:
        best = attempts.best
        if not best.rings:
            order = tuple(range(self.size))
            ends = self._fallback_nets()
            joined = self.inter or ends is not None or not self.rules.nets_in_fallback
            return SearchResult(
                pattern=self.pattern,
                cross_nic=best.cross_nic,
                intra_gb_per_s=_FALLBACK_GB_PER_S,
                inter_gb_per_s=_FALLBACK_GB_PER_S if joined else 0.0,
                intra_type=PathKind.SYS,
                inter_type=PathKind.SYS if joined else PathKind.DIS,
                same_channels=best.same_channels,
                rings=(Ring(order, *(ends if self.inter and ends else (None, None))),),
                fell_back=True,
                ran_out=self.ran_out,
            )
        return SearchResult(
            pattern=best.pattern,
            cross_nic=best.cross_nic,
            intra_gb_per_s=best.intra_gb_per_s,
            inter_gb_per_s=best.inter_gb_per_s,
            intra_type=best.intra_type,
            inter_type=best.inter_type,
            same_channels=best.same_channels,
            rings=tuple(best.rings),
            ran_out=self.ran_out,
        )

    def _fallback_nets(self) -> tuple[int, int] | None:
        """Return the NICs of the simple order; None if the node has no NIC."""
        if not self.node.nets:
            return None
        if not self.rules.nets_in_fallback:
            return 0, 0
        own = SearchOrder(self.node, self.rules, ()).own_nets
        return own[0][0], own[-1][0]


def system_bandwidths(
    node: NodeRoutes, *, inter: bool, version: Version | None = None
) -> tuple[float, float]:
    """Return NCCL's `maxBw` and `totalBw` of a node in GB/s (`ncclTopoSearchInit`).

    They are that of the fastest path (with `inter`, to a NIC), and the largest of a GPU's NVLinks
    together, with C2C up to 2.25, or its PCIe link.
    """
    if not inter and len(node.gpus) == 1:
        return 5000.0, 5000.0
    routes = node.gpu_net if inter else node.gpu_gpu
    fastest = max((route.gb_per_s for row in routes for route in row if route.links), default=0.0)
    nvlinks = {LinkKind.NVLINK}
    if PathRules(version).c2c_as_nvlink:
        nvlinks.add(LinkKind.C2C)
    totals = []
    for gpu in node.gpus:
        own = [link for link in node.links if link.source == gpu.name]
        nvlink = gpu.own_nvlink_gb_per_s
        nvlink += sum(link.gb_per_s for link in own if link.kind in nvlinks)
        pci = max((link.gb_per_s for link in own if link.kind is LinkKind.PCI), default=0.0)
        totals.append(max(nvlink, pci))
    return fastest, max(totals)
