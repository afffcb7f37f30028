# SPDX-License-Identifier: Apache-2.0
"""What NCCL logs of its topology and of the rings and trees that it found (`NCCL_DEBUG_SUBSYS`
GRAPH, and INIT for the last line).

Forms read in `graph/topo.cc`, `graph/search.cc`, `graph/paths.cc` and `init.cc` of 2.18.3, 2.23.4,
2.27.3 and 2.30.7, in Meta's copy of 2.31, and among the strings of libnccl.so of 2.32.3. To 2.22 a
node is `GPU/41000`, since 2.23 `GPU/0-41000` (host, bus id); to 2.29 a channel names GPUs by rank.
"""

import re

import msgspec

# 2.18: the first six. 2.30 added GIN, RMA, DEV and CXB.
_NODE = r"(?:GPU|PCI|NVS|CPU|NIC|NET|GIN|RMA|DEV|CXB)/[0-9A-Fa-f]+(?:-[0-9A-Fa-f]+)?"
_SYSTEM = re.compile(r"=== System : maxBw (?P<most>[\d.]+) totalBw (?P<total>[\d.]+) ===")
_ROOT = re.compile(r"(?P<node>CPU/[0-9A-Fa-f]+(?:-[0-9A-Fa-f]+)?) \(")
_LINK = re.compile(
    rf"(?P<indent> *)\+ (?P<kind>[A-Z0-9]+)\[(?P<bw>[\d.]+)\] - (?P<node>{_NODE})"
    r"(?: \((?P<about>[^)]*)\))?"
)
_PATHS = re.compile(rf"(?P<node>{_NODE}) :(?=$|\s|[A-Z])")
_PATH = re.compile(rf"(?P<node>{_NODE}) \((?P<hops>\d+)/(?P<bw>[\d.]+)/(?P<kind>[A-Z0-9]{{3}})\)")
_GRAPH = re.compile(
    r"Pattern (?P<pattern>\d+), crossNic (?P<cross>\d+), nChannels (?P<channels>\d+), "
    r"bw (?P<intra>[\d.]+)/(?P<inter>[\d.]+), type (?P<type_intra>\w+)/(?P<type_inter>\w+), "
    r"sameChannels (?P<same>\d+)"
)
_ORDER = re.compile(rf" *(?P<channel>\d+) :(?P<nodes>(?: (?:{_NODE}|NET/-\d+))+) *$")
_RING = re.compile(r"Ring (?P<channel>\d+) : (?P<before>\d+) -> (?P<rank>\d+) -> (?P<after>\d+)")
_TREE = re.compile(
    r"Tree (?P<channel>\d+) : (?P<up>-?\d+) -> (?P<rank>\d+) -> (?P<down>-?\d+/-?\d+/-?\d+)"
)
# INIT, so that they are there without GRAPH: rank 0's rings, and every rank's trees in one line,
# which NCCL cuts at 1,023 characters.
_RING_ORDER = re.compile(
    r"Channel (?P<channel>\d+)/\d+ ?:(?P<ranks>(?: +\d+)+)(?P<cut> *\.\.\.)? *$"
)
_TREES = re.compile(r"Trees(?= \[)")
_TREE_OF = re.compile(
    r" \[(?P<channel>\d+)\] (?P<down>-?\d+/-?\d+/-?\d+)->(?P<rank>\d+)->(?P<up>-?\d+)(?= |$)"
)
# To 2.18 without collnet.
_CHANNELS = re.compile(
    r"(?P<coll>\d+) coll channels, (?:(?P<collnet>\d+) collnet channels, )?"
    r"(?P<nvls>\d+) nvls channels, (?P<p2p>\d+) p2p channels, (?P<peer>\d+) p2p channels per peer"
)
# A warning to 2.26, since 2.27 a line of GRAPH that nobody sees.
_FALLBACK = re.compile(r"Could not find a path for pattern (?P<pattern>\d+), falling back to simpl")
PATTERNS = {
    1: "balanced tree",
    2: "split tree",
    3: "tree",
    4: "ring",
    5: "nvls",
    6: "collnet direct",
}
"""`NCCL_TOPO_PATTERN_*` (`include/graph.h`)."""


class TreeLink(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the tree: `target` hangs at `source` by a link of `kind` (NVL, PCI, SYS, NET, ...)
    with the bandwidth that NCCL books. `about` stands in brackets behind it, of a GPU its rank."""

    source: str
    target: str
    kind: str
    gb_per_s: float
    about: str | None = None


class System(msgspec.Struct, frozen=True, kw_only=True):
    """A node's hardware as NCCL sees it: the most that one link of a GPU carries, the most that all
    of them do, and the tree."""

    most_gb_per_s: float
    total_gb_per_s: float
    links: tuple[TreeLink, ...] = ()

    def of_kind(self, kind: str) -> list[TreeLink]:
        """Its links of one kind."""
        return [link for link in self.links if link.kind == kind]


class LoggedPath(msgspec.Struct, frozen=True, kw_only=True):
    """The path from one node to another: hops, bandwidth, and type (LOC, NVL, PIX, PHB, ...)."""

    source: str
    target: str
    hops: int
    gb_per_s: float
    kind: str


class LoggedGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A graph of the search: bandwidths are those of one channel; `orders` its channels as far as
    they were logged, by GPU (to 2.29 by rank), between two NICs where it leaves the node."""

    pattern: int
    cross_nic: int
    channels: int
    gb_per_s_intra: float
    gb_per_s_inter: float
    type_intra: str
    type_inter: str
    same_channels: bool
    orders: tuple[tuple[str, ...], ...] = ()

    @property
    def name(self) -> str:
        """`ring`, `balanced tree`, ... or the number where it is a new one."""
        return PATTERNS.get(self.pattern, f"pattern {self.pattern}")

    @property
    def fell_back(self) -> bool:
        """Whether it is what NCCL takes when the search found nothing: one channel in the order of
        ranks, booked at 0.1 GB/s over SYS (`ncclTopoCompute`, 2.18 to 2.30)."""
        lone = self.channels == 1 and self.type_intra == "SYS"
        return lone and 0 < self.gb_per_s_intra <= 0.1


class RingStep(msgspec.Struct, frozen=True):
    """Where a rank stands in the ring of a channel."""

    channel: int
    before: int
    rank: int
    after: int


class TreeStep(msgspec.Struct, frozen=True):
    """Where a rank stands in the tree of a channel; -1 is nobody."""

    channel: int
    up: int
    rank: int
    down: tuple[int, ...]


class ChannelCounts(msgspec.Struct, frozen=True):
    """How many channels a communicator has; `collnet` is None where the version does not say."""

    coll: int
    nvls: int
    p2p: int
    p2p_per_peer: int
    collnet: int | None = None


def read_paths(message: str) -> list[LoggedPath] | None:
    """The paths of one node; None for another line. NCCL cuts the line at 1,023 characters: the
    last path may be missing."""
    start = _PATHS.match(message)
    if start is None:
        return None
    return [
        LoggedPath(
            source=start["node"],
            target=match["node"],
            hops=int(match["hops"]),
            gb_per_s=float(match["bw"]),
            kind=match["kind"],
        )
        for match in _PATH.finditer(message, start.end())
    ]


def read_channels(message: str) -> ChannelCounts | None:
    """`24 coll channels, ...`; None for another line."""
    match = _CHANNELS.match(message)
    if match is None:
        return None
    return ChannelCounts(
        coll=int(match["coll"]),
        nvls=int(match["nvls"]),
        p2p=int(match["p2p"]),
        p2p_per_peer=int(match["peer"]),
        collnet=int(match["collnet"]) if match["collnet"] is not None else None,
    )


def read_fallback(message: str) -> int | None:
    """The pattern of which no graph was found; None for another line."""
    match = _FALLBACK.match(message)
    return int(match["pattern"]) if match is not None else None


def read_ring(message: str) -> RingStep | None:
    """`Ring 00 : 3 -> 0 -> 1`; None for another line."""
    match = _RING.match(message)
    if match is None:
        return None
    names = ("channel", "before", "rank", "after")
    return RingStep(*(int(match[name]) for name in names))


def read_tree(message: str) -> TreeStep | None:
    """`Tree 0 : -1 -> 0 -> 1/-1/-1`; None for another line."""
    match = _TREE.match(message)
    if match is None:
        return None
    down = tuple(int(rank) for rank in match["down"].split("/"))
    return TreeStep(int(match["channel"]), int(match["up"]), int(match["rank"]), down)


def read_trees(message: str) -> list[TreeStep] | None:
    """`Trees [0] 1/-1/-1->0->-1 [1] ...`; None for another line."""
    start = _TREES.match(message)
    if start is None:
        return None
    return [
        TreeStep(
            int(match["channel"]),
            int(match["up"]),
            int(match["rank"]),
            tuple(int(rank) for rank in match["down"].split("/")),
        )
        for match in _TREE_OF.finditer(message, start.end())
    ]


def read_ring_order(message: str) -> tuple[int, tuple[int, ...]] | None:
    """The ranks of a channel's ring in order: `Channel 00/24 : 0 1 2 3`; None for another line. Of
    many ranks NCCL prints the first ones (2.18: 20 of them)."""
    match = _RING_ORDER.match(message)
    if match is None:
        return None
    ranks = [int(rank) for rank in match["ranks"].split()]
    # The number before the dots may have lost digits.
    return int(match["channel"]), tuple(ranks[:-1] if match["cut"] else ranks)


def read_graph(message: str) -> LoggedGraph | None:
    """`Pattern 4, crossNic 0, ...`; None for another line."""
    match = _GRAPH.match(message)
    if match is None:
        return None
    return LoggedGraph(
        pattern=int(match["pattern"]),
        cross_nic=int(match["cross"]),
        channels=int(match["channels"]),
        gb_per_s_intra=float(match["intra"]),
        gb_per_s_inter=float(match["inter"]),
        type_intra=match["type_intra"],
        type_inter=match["type_inter"],
        same_channels=match["same"] != "0",
    )


def read_order(message: str) -> tuple[str, ...] | None:
    """The nodes of ` 0 : NET/0-0 GPU/0-60 GPU/0-70 NET/0-0`; None for another line."""
    match = _ORDER.match(message)
    return tuple(match["nodes"].split()) if match is not None else None


class TreeReader:
    """Puts the lines of one printed tree together: feed it every line of one writer."""

    def __init__(self) -> None:
        self._begun: tuple[float, float] | None = None
        self._stack: list[tuple[int, str]] = []
        self._links: list[TreeLink] = []

    def feed(self, message: str) -> System | None:
        """Take in a line; the system when its tree is complete."""
        if (match := _SYSTEM.match(message)) is not None:
            self._begun = float(match["most"]), float(match["total"])
            self._stack, self._links = [], []
            return None
        if self._begun is None:
            return None
        if (match := _LINK.match(message)) is not None:
            self._link(match)
        elif (match := _ROOT.match(message)) is not None:
            self._stack = [(-1, match["node"])]
        elif message.startswith("======"):
            most, total = self._begun
            self._begun = None
            return System(
                most_gb_per_s=most, total_gb_per_s=total, links=tuple(self._links[:_MAX_LINKS])
            )
        return None

    def _link(self, match: re.Match[str]) -> None:
        depth = len(match["indent"])
        while self._stack and self._stack[-1][0] >= depth:
            self._stack.pop()
        if not self._stack:
            return
        if len(self._links) < _MAX_LINKS:
            self._links.append(
                TreeLink(
                    source=self._stack[-1][1],
                    target=match["node"],
                    kind=match["kind"],
                    gb_per_s=float(match["bw"]),
                    about=match["about"],
                )
            )
        self._stack.append((depth, match["node"]))


_MAX_LINKS = 65_536
