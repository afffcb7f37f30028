# SPDX-License-Identifier: Apache-2.0
"""Read NCCL's graph XML: the channels of its search (`NCCL_GRAPH_DUMP_FILE`, `NCCL_GRAPH_FILE`).

Source: `graph/search.cc`, NCCL 2.19 to 2.30.
"""

from enum import IntEnum

import msgspec

from nccltune.formats.topology.xml_tree import Element, Integer, float_of, read_tree, shown
from nccltune.model.errors import InputError

_SYSTEM_SHIFT = 56
_LOCAL_MASK = (1 << _SYSTEM_SHIFT) - 1


class GraphId(IntEnum):
    """The id of the search that produced a graph."""

    RING = 0
    TREE = 1
    COLLNET_CHAIN = 2
    NVLS = 3
    COLLNET_DIRECT = 4


class Pattern(IntEnum):
    """The pattern that a search looked for: `NCCL_TOPO_PATTERN_*`."""

    BALANCED_TREE = 1
    SPLIT_TREE = 2
    TREE = 3
    RING = 4
    NVLS = 5
    COLLNET_DIRECT = 6


class GraphGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU of a channel.

    `index` is its NVML index on its host. `host` is 0, except if several hosts share NVLink
    (MNNVL). `rank` is None in files of NCCL before 2.30, which have no ranks.
    """

    index: int
    host: int = 0
    rank: int | None = None


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """One channel: the NIC where data enters, the GPUs in order, the NIC where data leaves.

    `net_in` and `net_out` are None within one node. An NVLS channel has only its head GPU.
    """

    gpus: tuple[GraphGpu, ...]
    net_in: int | None = None
    net_out: int | None = None


class ChannelGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The channels of one algorithm. Speeds are GB/s per channel; types are NCCL's path types."""

    id: int
    pattern: int
    cross_nic: int
    channel_count: int
    intra_gb_per_s: float
    inter_gb_per_s: float
    inter_latency_us: float | None
    intra_type: str | None
    inter_type: str | None
    same_channels: bool
    channels: tuple[Channel, ...]
    line: int


class Graphs(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a graph file.

    `source` is the file name. `unread` describes the skipped elements.
    """

    source: str
    version: str | None
    graphs: tuple[ChannelGraph, ...]
    unread: tuple[str, ...] = ()

    def find(self, graph_id: int) -> ChannelGraph | None:
        """Return the graph with an id; None if the file has none."""
        return next((graph for graph in self.graphs if graph.id == graph_id), None)


def read_graphs(data: bytes, source: str) -> Graphs:
    """Return the graphs in `data`. Raises InputError, with the line, if it is not a graph file."""
    root = read_tree(data, source).root
    if root.name != "graphs":
        what = "a topology" if root.name == "system" else f"<{root.name[:40]}>"
        raise InputError(
            f"is no graph file: it begins with {what}, not <graphs>",
            where=f"{source}:{root.line}",
            hint="name what NCCL wrote to NCCL_GRAPH_DUMP_FILE, or a file for NCCL_GRAPH_FILE",
        )
    unread: list[str] = []
    graphs = tuple(
        _graph(child, source, unread)
        for child in root.children
        if _is(child, ("graph",), root, unread)
    )
    return Graphs(
        source=source, version=root.get("version"), graphs=graphs, unread=tuple(unread[:50])
    )


def _is(child: Element, names: tuple[str, ...], parent: Element, unread: list[str]) -> bool:
    if child.name in names:
        return True
    unread.append(f"line {child.line}: element <{child.name[:40]}> in <{parent.name}>")
    return False


def _graph(element: Element, source: str, unread: list[str]) -> ChannelGraph:
    latency = element.get("latencyinter")
    return ChannelGraph(
        id=_integer(element, "id", source),
        pattern=_integer(element, "pattern", source),
        cross_nic=_integer(element, "crossnic", source),
        channel_count=_integer(element, "nchannels", source),
        intra_gb_per_s=_real(element, "speedintra", source),
        inter_gb_per_s=_real(element, "speedinter", source),
        inter_latency_us=None if latency is None else float_of(latency) or 0.0,
        intra_type=element.get("typeintra"),
        inter_type=element.get("typeinter"),
        same_channels=_integer(element, "samechannels", source) != 0,
        channels=tuple(
            _channel(child, source, unread)
            for child in element.children
            if _is(child, ("channel",), element, unread)
        ),
        line=element.line,
    )


def _channel(element: Element, source: str, unread: list[str]) -> Channel:
    gpus = []
    nets = []
    for child in element.children:
        if not _is(child, ("gpu", "net"), element, unread):
            continue
        device = _device(child, source)
        if child.name == "net":
            nets.append(device & _LOCAL_MASK)
            continue
        rank = child.get("rank")
        gpus.append(
            GraphGpu(
                index=device & _LOCAL_MASK,
                host=device >> _SYSTEM_SHIFT,
                rank=None if rank is None else Integer(rank).value,
            )
        )
    if len(nets) not in (0, 2):
        raise InputError(
            f"a channel names {len(nets)} NICs; it has two, in and out, or none",
            where=f"{source}:{element.line}",
            hint="dump it again with NCCL_GRAPH_DUMP_FILE",
        )
    return Channel(
        gpus=tuple(gpus),
        net_in=nets[0] if nets else None,
        net_out=nets[1] if nets else None,
    )


def _needed(element: Element, name: str, source: str) -> str:
    text = element.get(name)
    if text is None:
        raise InputError(
            f"<{element.name}> has no {name}",
            where=f"{source}:{element.line}",
            hint="NCCL refuses the file as well: dump it again with NCCL_GRAPH_DUMP_FILE",
        )
    return text


def _integer(element: Element, name: str, source: str) -> int:
    text = _needed(element, name, source)
    number = Integer(text)
    if not number.clean:
        raise _no_number(element, name, text, source)
    return number.value


def _real(element: Element, name: str, source: str) -> float:
    text = _needed(element, name, source)
    number = float_of(text)
    if number is None:
        raise _no_number(element, name, text, source)
    return number


def _device(element: Element, source: str) -> int:
    """Return the hexadecimal attribute `dev`.

    A prefix 0x is optional, because NCCL uses `strtol`.
    """
    text = _needed(element, "dev", source)
    digits = text.strip().removeprefix("0x")
    if not 0 < len(digits) <= 16 or not all(char in "0123456789abcdefABCDEF" for char in digits):
        raise _no_number(element, "dev", text, source)
    return int(digits, 16)


def _no_number(element: Element, name: str, text: str, source: str) -> InputError:
    return InputError(
        f"{name}={shown(text)} of <{element.name}> is no number",
        where=f"{source}:{element.line}",
        hint="dump it again with NCCL_GRAPH_DUMP_FILE",
    )
