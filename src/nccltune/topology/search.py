# SPDX-License-Identifier: Apache-2.0
"""The channels that NCCL's search finds for ring and tree, and the speed it books for each.

Written after `graph/search.cc` of NCCL 2.28.9 (`ncclTopoCompute`), whose order of relaxation is
the same from 2.19 to 2.30: same channels, different channels, a simpler tree, longer paths inside
the node, longer paths to the NIC, another NIC, less speed; then channels are doubled and the speed
is raised again. Only the speeds tried differ by version (search_speeds.toml).

Left out: POWER9's NVLink to the CPU, CollNet, several hosts under one NVLink domain (MNNVL).
"""

import functools
import tomllib
from collections.abc import Sequence
from importlib import resources

import msgspec

from nccltune.formats.graph_xml import Pattern
from nccltune.model.choice import MAX_CHANNELS
from nccltune.topology.bandwidth import Version
from nccltune.topology.goal import Goal, Ring
from nccltune.topology.reach import Reach
from nccltune.topology.settings import PathKind
from nccltune.topology.walk import Walk

STEPS = 1 << 19
"""Steps that NCCL's search may take altogether (`NCCL_SEARCH_GLOBAL_TIMEOUT`)."""
_STEPS_A_TRY = 1 << 14
_STEPS_SAME_CHANNELS = 1 << 8
_DOUBLE_FROM_GB_PER_S = 25.0
_FALLBACK_GB_PER_S = 0.1

NEWEST: Version = (2, 30, 7)
"""The version whose tables hold where nobody says which NCCL it is."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found: NCCL's `Pattern n, crossNic c, nChannels k, bw i/o, type a/b` line.

    `rings` hold places in `Reach.gpus` and `Reach.nets`. `fell_back` is NCCL's "falling back to
    simple order": it found nothing and books 0.1 GB/s. `ran_out` says that a budget of steps ended
    some try before every order was seen, as NCCL's own does.
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
        """How many there are; NCCL doubles them when it connects them."""
        return len(self.rings)


class Searched(msgspec.Struct, frozen=True):
    """Ring and tree of one node among `nodes`, cut to the same number of channels."""

    ring: Found
    tree: Found

    def connected(
        self, nodes: int, sm: int, least: int | None = None, most: int | None = None
    ) -> int:
        """The channels that collectives run with (`connect.cc`, 2.19 to 2.30): doubled, again for
        fast networks on Hopper and later, then `NCCL_MAX_NCHANNELS` and `NCCL_MIN_NCHANNELS`."""
        count = min(MAX_CHANNELS, 2 * self.ring.channels)
        if sm >= 90 and nodes > 1 and self.ring.intra_gb_per_s > 45.0 and count < 16:
            count *= 2
        count = min(count, most or MAX_CHANNELS)
        return min(max(count, least or 1), MAX_CHANNELS)


def search(
    reach: Reach, *, nodes: int, cross_nic: int = 2, version: Version | None = None
) -> Searched:
    """Ring and tree as NCCL `version` (the newest known without) would find them for `nodes` nodes
    that are like this one."""
    inter = nodes > 1
    if inter and not reach.nets:
        raise ValueError("several nodes need a NIC")
    known = version or NEWEST
    ring = _Search(reach, Pattern.RING, known, inter, cross_nic).run(1, MAX_CHANNELS // 2)
    count = ring.channels
    tree = _Search(reach, Pattern.BALANCED_TREE, known, inter, cross_nic).run(count, count)
    both = min(ring.channels, tree.channels)
    cut = msgspec.structs.replace
    return Searched(cut(ring, rings=ring.rings[:both]), cut(tree, rings=tree.rings[:both]))


class _Table(msgspec.Struct, frozen=True):
    sm: int
    since: tuple[int, int, int]
    intra: tuple[float, ...]
    inter: tuple[float, ...]


@functools.cache
def _tables() -> list[_Table]:
    text = resources.files("nccltune.topology").joinpath("search_speeds.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text)["table"], list[_Table])


def speeds(sm: int, *, inter: bool, version: Version) -> Sequence[float]:
    """The speeds that a search tries for a compute capability (90 is 9.0), fastest first."""
    fitting = [one for one in _tables() if one.sm <= sm and (one.since <= version or one.sm == 0)]
    best = max(fitting, key=lambda one: (one.sm, one.since))
    return best.inter if inter else best.intra


class _Search:
    """One pattern's search; `goal` is what is tried now, `best` the best found so far."""

    def __init__(
        self,
        reach: Reach,
        pattern: Pattern,
        version: Version,
        inter: bool,
        cross_nic: int,
    ) -> None:
        self.reach = reach
        self.size = len(reach.gpus)
        self.sm = min(gpu.sm for gpu in reach.gpus)
        self.version = version
        self.table = speeds(self.sm, inter=inter, version=version)
        self.inter = inter
        self.pattern = pattern
        if self.size == 1 and pattern is not Pattern.RING:
            self.pattern = Pattern.TREE
        crossing = self.pattern in (Pattern.RING, Pattern.BALANCED_TREE)
        self.cross_nic = cross_nic if crossing and len(reach.nets) > 1 else 0
        self.ran_out = False

    def run(self, least: int, most: int) -> Found:
        """Search for `least` to `most` channels."""
        if self.pattern is Pattern.RING and least == 1 and most >= 2 and self._split_nvlink():
            least = 2
        low_intra, high_intra, low_inter, high_inter = self._types()
        goal = Goal(
            pattern=self.pattern,
            least=least,
            most=most,
            cross_nic=1 if self.cross_nic == 1 else 0,
            intra_type=low_intra,
            inter_type=low_inter,
        )
        walk = Walk(self.reach, self.inter, goal, among_sharing=self.version >= (2, 30, 7))
        fastest, total = system_bandwidths(self.reach, inter=self.inter)
        stretched = total
        if self.size > 1 and self.pattern is not Pattern.RING:
            # NCCL: what need not close to where it began may use a little more.
            stretched *= self.size / (self.size - 1)
        speed = 0
        last = len(self.table) - 1
        while speed < last and (
            self.table[speed] > fastest or self.table[speed] * least > stretched
        ):
            speed += 1
        self._first_pass(walk, speed, total, (low_intra, high_intra, low_inter, high_inter))
        self._second_pass(walk)
        return self._found(walk)

    def _first_pass(
        self,
        walk: Walk,
        speed: int,
        total: float,
        types: tuple[PathKind, PathKind, PathKind, PathKind],
    ) -> None:
        """Relax step by step until something is found that cannot be much improved."""
        low_intra, high_intra, low_inter, high_inter = types
        goal, best = walk.goal, walk.best
        goal.set_speed(self.table[speed])
        budget = STEPS
        while True:
            given = self._budget(goal)
            budget -= given
            left = walk.run(given)
            self.ran_out |= left == 0
            if left == -1 or best.booked >= total:
                return
            if goal.same_channels and not (self.reach.amd and goal.intra_type is PathKind.SYS):
                goal.same_channels = False
                continue
            goal.same_channels = True
            budget += left
            if budget < 0 and best.rings:
                return
            if self.sm >= 90 and goal.pattern is Pattern.BALANCED_TREE:
                goal.pattern = Pattern.TREE
                continue
            goal.pattern = self.pattern
            ceiling = goal.inter_type if self.inter else high_intra
            if goal.intra_type < ceiling and (not best.rings or goal.intra_type < best.intra_type):
                goal.intra_type = PathKind(goal.intra_type + 1)
                continue
            goal.intra_type = low_intra
            if (
                self.inter
                and goal.inter_type < high_inter
                and (
                    not best.rings
                    or goal.inter_type < best.inter_type
                    or goal.inter_type < PathKind.PXN
                )
            ):
                goal.inter_type = PathKind(goal.inter_type + 1)
                continue
            goal.inter_type = low_inter
            crossing = self.pattern in (Pattern.RING, Pattern.BALANCED_TREE)
            if self.cross_nic == 2 and goal.cross_nic == 0 and crossing:
                goal.cross_nic = 2
                continue
            goal.cross_nic = 1 if self.cross_nic == 1 else 0
            if speed < len(self.table) - 1 and (
                not best.rings or self.table[speed + 1] / best.inter_gb_per_s > 0.49
            ):
                speed += 1
                goal.set_speed(self.table[speed])
                continue
            return

    def _second_pass(self, walk: Walk) -> None:
        """Double slow channels of fast links, then raise the speed as far as it goes."""
        best = walk.best
        self._double(walk)
        walk.goal = goal = best.as_goal(walk.goal)
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
                goal.intra_gb_per_s == best.intra_gb_per_s
                and goal.intra_gb_per_s < goal.inter_gb_per_s * 2
            ):
                speed -= 1
                goal.intra_gb_per_s = self.table[speed]
            else:
                return
            left = walk.run(self._budget(goal))

    def _double(self, walk: Walk) -> None:
        best = walk.best
        count = len(best.rings)
        if not count or best.intra_gb_per_s < _DOUBLE_FROM_GB_PER_S:
            return
        if self.sm > 80 and best.intra_gb_per_s < 50.0 and count > 4:
            return
        doubled = min(2 * count, walk.goal.most)
        parts = -(-doubled // count)
        best.rings = [*best.rings, *best.rings][:doubled]
        best.intra_gb_per_s /= parts
        best.inter_gb_per_s /= parts

    def _budget(self, goal: Goal) -> int:
        return _STEPS_SAME_CHANNELS if goal.same_channels else _STEPS_A_TRY

    def _types(self) -> tuple[PathKind, PathKind, PathKind, PathKind]:
        """Shortest and longest types, inside the node and to NICs."""
        low_intra, high_intra = PathKind.LOC, PathKind.SYS
        low_inter, high_inter = PathKind.PIX, PathKind.SYS
        if self.size > 1:
            kinds = [
                way.kind
                for a, row in enumerate(self.reach.gpu_gpu)
                for b, way in enumerate(row)
                if a != b
            ]
            low_intra, high_intra = min(kinds), max(kinds)
        if self.inter:
            kinds = [way.kind for row in self.reach.gpu_net for way in row]
            low_inter = min([*kinds, PathKind.SYS])
            high_inter = high_intra = max([*kinds, PathKind.LOC])
        if self.sm < 90 and self.version >= (2, 29, 0):
            # A balanced tree may have to come back by a long way.
            high_inter = PathKind.SYS
        return low_intra, high_intra, low_inter, high_inter

    def _split_nvlink(self) -> bool:
        """Whether NVLink joins the GPUs into exactly two groups (`ncclTopoSplitNvLink`)."""
        domain = list(range(self.size))
        for a in range(self.size):
            for b in range(a + 1, self.size):
                if self.reach.gpu_gpu[a][b].kind is PathKind.NVL:
                    domain[b] = domain[a]
        return sum(domain.count(one) > 1 for one in set(domain)) == 2

    def _found(self, walk: Walk) -> Found:
        best = walk.best
        if not best.rings:
            order = tuple(range(self.size))
            net = 0 if self.inter else None
            return Found(
                pattern=self.pattern,
                cross_nic=best.cross_nic,
                intra_gb_per_s=_FALLBACK_GB_PER_S,
                inter_gb_per_s=_FALLBACK_GB_PER_S,
                intra_type=PathKind.SYS,
                inter_type=PathKind.SYS,
                same_channels=best.same_channels,
                rings=(Ring(order, net, net),),
                fell_back=True,
                ran_out=self.ran_out,
            )
        return Found(
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


def system_bandwidths(reach: Reach, *, inter: bool) -> tuple[float, float]:
    """NCCL's `maxBw` and `totalBw` of a node in GB/s (`ncclTopoSearchInit`)."""
    if not inter and len(reach.gpus) == 1:
        return 5000.0, 5000.0
    ways = reach.gpu_net if inter else reach.gpu_gpu
    fastest = max((way.gb_per_s for row in ways for way in row if way.links), default=0.0)
    totals = []
    for gpu in reach.gpus:
        own = [link for link in reach.links if link.source == gpu.name]
        nvlink = sum(link.gb_per_s for link in own if link.kind.value == "NVL")
        pci = max((link.gb_per_s for link in own if link.kind.value == "PCI"), default=0.0)
        totals.append(max(nvlink, pci))
    return fastest, max(totals)
