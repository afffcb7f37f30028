# SPDX-License-Identifier: Apache-2.0
"""Parse NCCL's messages of its topology and graphs.

NCCL logs them with `NCCL_DEBUG_SUBSYS=GRAPH`; the channel counts need INIT.

Source: `graph/topo.cc`, `graph/search.cc`, `graph/paths.cc` and `init.cc` of 2.18.3, 2.23.4, 2.27.3
and 2.30.7, Meta's copy of 2.31, and the strings of libnccl.so of 2.32.3. Up to 2.22 the name of a
node is `GPU/41000`, since 2.23 `GPU/0-41000` (host, bus id). Up to 2.29 a channel names its GPUs by
rank.
"""

import re
from typing import Literal

import msgspec

# NCCL 2.18 has the first six types of nodes. 2.30 added GIN, RMA, DEV and CXB.
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
    r"Pattern (?P<pattern>\d{1,3}), crossNic (?P<cross>\d{1,9}), nChannels (?P<channels>\d{1,5}), "
    r"(?:bw|speed) (?P<intra>\d{1,6}\.\d{1,9})/(?P<inter>\d{1,6}\.\d{1,9}), "
    r"type (?P<type_intra>\w{2,4})/(?P<type_inter>\w{2,4})(?:, sameChannels (?P<same>\d{1,9}))?"
)
_ORDER = re.compile(rf" *(?P<channel>\d+) :(?P<nodes>(?: (?:{_NODE}|NET/-\d+))+) *$")
# NCCL up to 2.18 does not print the number of collnet channels.
_CHANNELS = re.compile(
    r"(?P<coll>\d{1,5}) coll channels,(?: (?P<collnet>\d{1,5}) collnet channels,)?"
    r"(?: (?P<nvls>\d{1,5}) nvls channels,)?"
    r"(?: (?P<p2p>\d{1,5}) p2p channels, (?P<peer>\d{1,5}) p2p channels per peer)?"
)
# The fallback is a warning up to 2.26. Since 2.27 it is a GRAPH line, which is not logged by
# default.
_FALLBACK = re.compile(r"Could not find a path for pattern (?P<pattern>\d+), falling back to simpl")
PATTERNS = {
    1: "balanced tree",
    2: "split tree",
    3: "tree",
    4: "ring",
    5: "nvls",
    6: "collnet direct",
}
"""Names of `NCCL_TOPO_PATTERN_*` (`include/graph.h`)."""


class TreeLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link in the hardware tree: from `source` to its child `target`.

    `kind` is the link type (NVL, PCI, SYS, NET, ...). `gb_per_s` is the bandwidth that NCCL
    assumes. `about` is the text in parentheses after the target; for a GPU this is its rank.
    """

    source: str
    target: str
    kind: str
    gb_per_s: float
    about: str | None = None


class System(msgspec.Struct, frozen=True, kw_only=True):
    """The hardware of a node as NCCL sees it.

    `most_gb_per_s` is the highest bandwidth of one link of a GPU. `total_gb_per_s` is the highest
    bandwidth of all links of a GPU together. `links` are the links of the hardware tree.
    """

    most_gb_per_s: float
    total_gb_per_s: float
    links: tuple[TreeLink, ...] = ()

    def of_kind(self, kind: str) -> list[TreeLink]:
        """Return the links of one kind."""
        return [link for link in self.links if link.kind == kind]


class LoggedPath(msgspec.Struct, frozen=True, kw_only=True):
    """The path between two nodes of the topology: hops, bandwidth, and type (LOC, NVL, PIX)."""

    source: str
    target: str
    hops: int
    gb_per_s: float
    kind: str


class LoggedGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A result of NCCL's graph search.

    Bandwidths are for one channel. `orders` has one entry for each logged channel: its GPUs in
    order (up to 2.29 their ranks). The order of a channel between nodes starts and ends with a NIC.
    """

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
        """Return the name of the pattern, such as `ring`; for an unknown pattern its number."""
        return PATTERNS.get(self.pattern, f"pattern {self.pattern}")

    @property
    def fell_back(self) -> bool:
        """Return whether NCCL uses this graph because its search found none.

        Such a graph has one channel in the order of ranks, with 0.1 GB/s over SYS
        (`ncclTopoCompute`, 2.18 to 2.30).
        """
        lone = self.channels == 1 and self.type_intra == "SYS"
        return lone and 0 < self.gb_per_s_intra <= 0.1


class ChannelCounts(msgspec.Struct, frozen=True):
    """The numbers of channels of a communicator.

    None: this NCCL version does not print the number.
    """

    coll: int
    nvls: int | None = None
    p2p: int | None = None
    p2p_per_peer: int | None = None
    collnet: int | None = None


class NodePaths(msgspec.Struct, frozen=True):
    """The paths from one node of the topology."""

    paths: tuple[LoggedPath, ...]


class GraphFallback(msgspec.Struct, frozen=True):
    """NCCL found no graph for a pattern and uses the order of ranks."""

    pattern: int


class GraphOrder(msgspec.Struct, frozen=True):
    """The nodes of one channel.

    The channel belongs to the last graph that the same thread logged.
    """

    nodes: tuple[str, ...]


class TreeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the printed hardware tree of a node.

    `part` is the kind of the line: the start with the two bandwidths, a root, a link with its
    indent, or the end.
    """

    part: Literal["start", "root", "link", "end"]
    node: str = ""
    indent: int = 0
    kind: str = ""
    gb_per_s: float = 0.0
    total_gb_per_s: float = 0.0
    about: str | None = None


def read_paths(message: str) -> NodePaths | None:
    """Return the paths of one node; None for another line.

    NCCL truncates the line at 1,023 characters, so the last paths may be missing.
    """
    start = _PATHS.match(message)
    if start is None:
        return None
    return NodePaths(
        tuple(
            LoggedPath(
                source=start["node"],
                target=match["node"],
                hops=int(match["hops"]),
                gb_per_s=float(match["bw"]),
                kind=match["kind"],
            )
            for match in _PATH.finditer(message, start.end())
        )
    )


def read_channels(message: str) -> ChannelCounts | None:
    """Parse `24 coll channels, ...`; return None for another line."""
    match = _CHANNELS.match(message)
    if match is None:
        return None
    counts = {name: int(value) for name, value in match.groupdict().items() if value is not None}
    return ChannelCounts(
        coll=counts["coll"],
        nvls=counts.get("nvls"),
        p2p=counts.get("p2p"),
        p2p_per_peer=counts.get("peer"),
        collnet=counts.get("collnet"),
    )


def read_fallback(message: str) -> GraphFallback | None:
    """Return the pattern for which NCCL found no graph; None for another line."""
    match = _FALLBACK.match(message)
    return GraphFallback(int(match["pattern"])) if match is not None else None


def read_graph(message: str) -> LoggedGraph | None:
    """Parse `Pattern 4, crossNic 0, ...`; return None for another line."""
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
        same_channels=match["same"] not in (None, "0"),
    )


def read_order(message: str) -> GraphOrder | None:
    """Parse the order ` 0 : NET/0-0 GPU/0-60 GPU/0-70 NET/0-0`; return None for another line."""
    match = _ORDER.match(message)
    return GraphOrder(tuple(match["nodes"].split())) if match is not None else None


def read_tree_line(message: str) -> TreeLine | None:
    """Parse a line of the hardware tree of a node; return None for another line."""
    if (match := _LINK.match(message)) is not None:
        return TreeLine(
            part="link",
            node=match["node"],
            indent=len(match["indent"]),
            kind=match["kind"],
            gb_per_s=float(match["bw"]),
            about=match["about"],
        )
    if (match := _ROOT.match(message)) is not None:
        return TreeLine(part="root", node=match["node"])
    if (match := _SYSTEM.match(message)) is not None:
        return TreeLine(
            part="start", gb_per_s=float(match["most"]), total_gb_per_s=float(match["total"])
        )
    return TreeLine(part="end") if message.startswith("======") else None


class TreeReader:
    """A parser that builds one hardware tree from the tree lines of one thread."""

    def __init__(self) -> None:
        self._start: TreeLine | None = None
        self._stack: list[tuple[int, str]] = []
        self._links: list[TreeLink] = []

    def feed(self, line: TreeLine) -> System | None:
        """Process a line; return the system when its tree is complete, else None."""
        if line.part == "start":
            self._start, self._stack, self._links = line, [], []
        elif self._start is None:
            return None
        elif line.part == "link":
            self._link(line)
        elif line.part == "root":
            self._stack = [(-1, line.node)]
        else:
            start, self._start = self._start, None
            return System(
                most_gb_per_s=start.gb_per_s,
                total_gb_per_s=start.total_gb_per_s,
                links=tuple(self._links),
            )
        return None

    def _link(self, line: TreeLine) -> None:
        while self._stack and self._stack[-1][0] >= line.indent:
            self._stack.pop()
        if not self._stack:
            return
        if len(self._links) < _MAX_LINKS:
            self._links.append(
                TreeLink(
                    source=self._stack[-1][1],
                    target=line.node,
                    kind=line.kind,
                    gb_per_s=line.gb_per_s,
                    about=line.about,
                )
            )
        self._stack.append((line.indent, line.node))


_MAX_LINKS = 65_536
