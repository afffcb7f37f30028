# SPDX-License-Identifier: Apache-2.0
"""Turn a graph of links into trees: a CPU, the switches below it, then GPUs and NICs."""

from collections import Counter, defaultdict
from typing import NamedTuple

import msgspec

from nccltune.model.scale import count
from nccltune.topology.hardware.bandwidth import ASSUMED
from nccltune.topology.hardware.links import Link, LinkGraph, LinkKind, NodeKind, Vertex


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A vertex, the link from its parent (None for a CPU), and its children."""

    vertex: Vertex
    link: Link | None = None
    children: tuple["Branch", ...] = ()


class TreeLayout(NamedTuple):
    """One tree for each CPU. `across` are the links outside the trees, each in one direction."""

    trees: tuple[Branch, ...]
    across: tuple[Link, ...]


def layout(graph: LinkGraph) -> TreeLayout:
    """Return the trees of a graph, and its links that are in no tree."""
    vertices = {vertex.name: vertex for vertex in graph.vertices}
    leaving: dict[str, list[Link]] = defaultdict(list)
    for link in graph.links:
        leaving[link.source].append(link)
    seen: set[str] = set()

    def branch(name: str, link: Link | None) -> Branch:
        seen.add(name)
        kinds = (LinkKind.PCI, LinkKind.NET)
        children = [
            branch(down.target, down)
            for down in leaving[name]
            if down.kind in kinds and down.target not in seen and not _is_up(down, vertices)
        ]
        # NICs come last. The other children keep the order of the file.
        children.sort(key=lambda child: child.vertex.kind is NodeKind.NIC)
        return Branch(vertex=vertices[name], link=link, children=tuple(children))

    trees = tuple(
        branch(vertex.name, None) for vertex in graph.vertices if vertex.kind is NodeKind.CPU
    )
    across = []
    known: set[tuple[str, str, LinkKind]] = set()
    for link in graph.links:
        if (
            link.kind in (LinkKind.PCI, LinkKind.NET)
            or (link.target, link.source, link.kind) in known
        ):
            continue
        known.add((link.source, link.target, link.kind))
        across.append(link)
    return TreeLayout(trees, tuple(across))


def _is_up(link: Link, vertices: dict[str, Vertex]) -> bool:
    """Return whether a link leads to a CPU. A CPU is a root, so it is no child."""
    return vertices[link.target].kind is NodeKind.CPU


def headline(graph: LinkGraph, *, detected: bool = False) -> str:
    """Return a summary: `8 GPUs (sm90) · NVLink through NVSwitches · 8 NIC ports · 2 CPUs`.

    `detected`: NCCL detects NVLink, so a graph without it means nothing.
    """
    kinds = Counter(vertex.kind for vertex in graph.vertices)
    sms = sorted({v.sm for v in graph.vertices if v.kind is NodeKind.GPU and v.sm is not None})
    made = f" ({', '.join(f'sm{sm}' for sm in sms)})" if sms else ""
    assumed = " (assumed)" if any(_is_assumed(link) for link in graph.links) else ""
    parts = [count(kinds[NodeKind.GPU], "GPU") + made]
    if kinds[NodeKind.NVS]:
        parts.append(f"NVLink through NVSwitches{assumed}")
    elif names := {nvlink_name(link) for link in graph.links if link.kind is LinkKind.NVLINK}:
        parts.append(f"{' and '.join(sorted(names))} from GPU to GPU{assumed}")
    elif kinds[NodeKind.GPU] > 1:
        parts.append("NVLink left to detection" if detected else "no NVLink")
    parts.append(count(kinds[NodeKind.NET], "NIC port"))
    parts.append(count(kinds[NodeKind.CPU], "CPU"))
    return " · ".join(parts)


def _is_assumed(link: Link) -> bool:
    return link.kind is LinkKind.NVLINK and link.how.endswith(ASSUMED)


def nvlink_name(link: Link) -> str:
    """Return the common name of a link between GPUs. RCCL models AMD's xGMI as NVLink."""
    return "xGMI" if " for gfx" in link.how else "NVLink"
