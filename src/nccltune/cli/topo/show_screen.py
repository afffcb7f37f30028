# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune topo show`: the tree of a machine, its links and NCCL's paths."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from rich.console import Console

from nccltune.app.topo_show import ShownTopology
from nccltune.cli.output import hanging, styled
from nccltune.model.scale import count
from nccltune.model.topology import Topology
from nccltune.topology.hardware.bandwidth import ASSUMED
from nccltune.topology.hardware.fill_in import leaves_nvlink_out, nvlink_is_unknown
from nccltune.topology.hardware.links import Link, LinkGraph, LinkKind, NodeKind, Vertex
from nccltune.topology.nccl_model.paths import Path, Paths
from nccltune.topology.nccl_model.settings import PathKind


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
            if down.kind in kinds
            and down.target not in seen
            # A CPU is a root, so it is no child.
            and vertices[down.target].kind is not NodeKind.CPU
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


def headline(graph: LinkGraph, *, detected: bool = False, guesses: int = 0) -> str:
    """Return a summary: `8 GPUs (sm90) · NVLink through NVSwitches · 8 NIC ports · 2 CPUs`.

    `detected`: NCCL detects NVLink, so a graph without it means nothing. `guesses` of the CPUs may
    be no other NUMA nodes than the rest.
    """
    kinds = Counter(vertex.kind for vertex in graph.vertices)
    sms = sorted({v.sm for v in graph.vertices if v.kind is NodeKind.GPU and v.sm is not None})
    made = f" ({', '.join(f'sm{sm}' for sm in sms)})" if sms else ""
    assumed = " (assumed)" if any(_is_assumed(link) for link in graph.links) else ""
    parts = [count(kinds[NodeKind.GPU], "GPU") + made]
    gpus = {vertex.name for vertex in graph.vertices if vertex.kind is NodeKind.GPU}
    nvlinks = [link for link in graph.links if link.kind is LinkKind.NVLINK]
    joined = len(gpus & {link.source for link in nvlinks})
    of = f" of {joined} of the {len(gpus)} GPUs" if 0 < joined < len(gpus) else ""
    if kinds[NodeKind.NVS]:
        parts.append(f"NVLink through NVSwitches{of}{assumed}")
    elif names := {nvlink_name(link) for link in nvlinks}:
        parts.append(f"{' and '.join(sorted(names))} from GPU to GPU{of}{assumed}")
    elif kinds[NodeKind.GPU] > 1:
        parts.append("NVLink left to detection" if detected else "no NVLink")
    parts.append(count(kinds[NodeKind.NET], "NIC port"))
    if (cpus := kinds[NodeKind.CPU] - guesses) > 0:
        parts.append(count(cpus, "CPU"))
    return " · ".join(parts)


def _is_assumed(link: Link) -> bool:
    return link.kind is LinkKind.NVLINK and link.how.endswith(ASSUMED)


def nvlink_name(link: Link) -> str:
    """Return the common name of a link between GPUs. RCCL models AMD's xGMI as NVLink."""
    return "xGMI" if " for gfx" in link.how else "NVLink"


_NO_LIMIT = 5000.0
_STYLES = {
    PathKind.LOC: "dim", PathKind.NVL: "green", PathKind.NVB: "green", PathKind.C2C: "green",
    PathKind.PIX: "green", PathKind.PXB: "green", PathKind.P2C: "green", PathKind.PXN: "green",
    PathKind.PHB: "yellow", PathKind.SYS: "red", PathKind.NET: "red", PathKind.DIS: "red",
}  # fmt: skip
_WORDS = {
    PathKind.LOC: "ports of one NIC, or NICs outside PCI",
    PathKind.NVL: "NVLink", PathKind.NVB: "NVLink through one other GPU",
    PathKind.C2C: "C2C between GPU and CPU", PathKind.PIX: "at most one PCIe bridge",
    PathKind.PXB: "several PCIe bridges, no CPU", PathKind.P2C: "C2C to the CPU, then PCIe",
    PathKind.PXN: "through the GPU beside the NIC", PathKind.PHB: "through a CPU",
    PathKind.SYS: "between CPUs", PathKind.NET: "through the network",
    PathKind.DIS: "not connected",
}  # fmt: skip


def show(out: Console, shown: ShownTopology) -> None:
    """Print the headline, the tree, the other links and the paths."""
    topology, graph, ways = shown.whole, shown.graph, shown.paths
    trees, across = layout(graph)
    title = headline(
        graph,
        detected=nvlink_is_unknown(topology),
        guesses=sum(cpu.is_guess for cpu in topology.cpus),
    )
    out.print(title, style="bold", soft_wrap=True)
    for words in _left_open(topology, graph):
        hanging(out, ("note  ", "dim"), 6, words)
    out.print()
    rows: list[tuple[str, Link | None]] = []
    for tree in trees:
        _rows(tree, "", "", rows)
    wide = max((len(text) for text, _ in rows), default=0)
    for text, link in rows:
        _print_row(out, text, wide, link)
    _show_across(out, across, wide)
    _show_paths(out, graph, ways)
    for words in topology.unread[:5]:
        out.print(f"note: not read: {words}", style="dim", soft_wrap=True)


def as_data(shown: "ShownTopology") -> dict[str, Any]:
    """Return the file's content, and the graph with the assumed GPUs and NVLinks (`assumed`)."""
    from nccltune.topology.hardware.links import NodeKind

    graph, between = shown.graph, shown.paths.between
    ends = [vertex.name for vertex in graph.vertices if vertex.kind in (NodeKind.GPU, NodeKind.NET)]
    return {
        "topology": shown.topology,
        "nvlink_left_to_detection": shown.leaves_nvlink_out,
        "assumed": shown.whole.assumed,
        "vertices": graph.vertices,
        "links": [
            {"name": link.name, "source": link.source, "target": link.target,
             "kind": link.kind, "gb_per_s": link.gb_per_s, "how": link.how, "sure": link.sure}
            for link in graph.links
        ],
        "paths": [
            {"source": path.source, "target": path.target, "kind": path.kind.name,
             "gb_per_s": path.gb_per_s, "hops": path.hops, "stops": path.stops, "why": path.why}
            for path in (between(one, other) for one in ends for other in ends)
        ],
    }  # fmt: skip


def _left_open(topology: Topology, graph: LinkGraph) -> Iterator[str]:
    gpus = sum(vertex.kind is NodeKind.GPU for vertex in graph.vertices)
    yield from (f"assumed: {words}" for words in topology.assumed)
    if not gpus:
        yield "the file names no GPU; NCCL adds those of the job where the machine has them"
    elif gpus > 1 and leaves_nvlink_out(topology):
        yield (
            "the file leaves NVLink to detection and does not show which GPUs these are; paths "
            "between GPUs are those without NVLink"
        )


def label(vertex: Vertex) -> str:
    """Return a label for a vertex: its name and the known details."""
    if vertex.kind is NodeKind.GPU:
        known = [vertex.bus_id or "", f"sm{vertex.sm}" if vertex.sm is not None else ""]
        return " ".join([vertex.name, *filter(None, known)])
    if vertex.kind is NodeKind.CPU:
        return " ".join([vertex.name, *filter(None, [vertex.vendor or vertex.arch])])
    if vertex.kind is NodeKind.PCI:
        return vertex.name.replace("PCI ", "switch ", 1)
    return vertex.name


def _rows(branch: Branch, lead: str, below: str, rows: list[tuple[str, Link | None]]) -> None:
    name = label(branch.vertex)
    if not branch.children:
        # A PCI device without children need not be a switch.
        name = name.replace("switch ", "device ", 1)
    rows.append((lead + name, branch.link))
    last = len(branch.children) - 1
    for place, child in enumerate(branch.children):
        corner, bar = ("└─ ", "   ") if place == last else ("├─ ", "│  ")
        _rows(child, below + corner, below + bar, rows)


def _print_row(out: Console, text: str, wide: int, link: Link | None) -> None:
    if link is None:
        out.print(styled((text, "bold")), soft_wrap=True)
        return
    style = "default" if link.sure else "yellow"
    lead = styled(f"{text.ljust(wide)}  ", (f"{bandwidth_words(link):>12}", style), "  ")
    hanging(out, lead, len(lead), link.how, "dim")


def bandwidth_words(link: Link) -> str:
    """Return `48.0 GB/s`, with `?` if it is guessed, or `no limit` inside a chip."""
    if link.gb_per_s >= _NO_LIMIT:
        return "no limit  "
    value = f"{link.gb_per_s:.1f}" if link.gb_per_s >= 10 else f"{link.gb_per_s:.2f}"
    return f"{value} GB/s{' ' if link.sure else '?'}"


def _show_across(out: Console, across: tuple[Link, ...], wide: int) -> None:
    names = {
        LinkKind.CPU_TO_CPU: "between CPUs", LinkKind.NVLINK: "NVLink", LinkKind.C2C: "C2C",
        LinkKind.SWITCH_TO_SWITCH: "switch to switch", LinkKind.MEMORY: "host memory",
    }  # fmt: skip
    groups: dict[tuple[LinkKind, str], list[Link]] = {}
    for kind in names:
        for link in across:
            if link.kind is kind:
                groups.setdefault((kind, link.how), []).append(link)
    texts = []
    for (kind, _), links in groups.items():
        more = f" (and {len(links) - 1} more)" if len(links) > 1 else ""
        name = nvlink_name(links[0]) if kind is LinkKind.NVLINK else names[kind]
        texts.append(f"{name:<16}  {links[0].source} - {links[0].target}{more}")
    wide = max([wide, *map(len, texts)])
    if groups:
        out.print()
    for text, links in zip(texts, groups.values(), strict=True):
        _print_row(out, text, wide, links[0])


def _show_paths(out: Console, graph: LinkGraph, ways: Paths) -> None:
    gpus = [vertex.name for vertex in graph.vertices if vertex.kind is NodeKind.GPU]
    nets = [vertex.name for vertex in graph.vertices if vertex.kind is NodeKind.NET]
    ends = [*gpus, *nets]
    if len(ends) < 2:
        return
    heads = [name.replace("NET ", "", 1) for name in ends]
    first = max(len("from"), *(len(head) for head in heads))
    widths = [max(3, len(head)) for head in heads]
    out.print()
    columns = "  ".join(head.ljust(width) for head, width in zip(heads, widths, strict=True))
    out.print(styled(("paths", "bold"), f"  (row to column)\n{'':<{first}}  {columns}"),
              soft_wrap=True)  # fmt: skip
    found: dict[PathKind, Path] = {}
    reasons: dict[str, list[Path]] = {}
    for name, head in zip(ends, heads, strict=True):
        cells: list[str | tuple[str, str]] = []
        for other, width in zip(ends, widths, strict=True):
            path = ways.between(name, other)
            text = "X" if name == other else path.kind.name
            cells += ["  ", (text.ljust(width), _STYLES[path.kind])]
            if name != other:
                found.setdefault(path.kind, path)
                if path.why is not None and path.kind not in (PathKind.PXN, PathKind.P2C):
                    reasons.setdefault(path.why.rpartition(": ")[0], []).append(path)
        out.print(styled(head.ljust(first), *cells), soft_wrap=True)
    out.print()
    for kind in sorted(found):
        out.print(styled((f"{kind.name}", _STYLES[kind]), f"  {_WORDS[kind]}"), soft_wrap=True)
    for reason, paths in reasons.items():
        more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
        words = f"{paths[0].source} to {paths[0].target}{more}: {reason}, so through the CPU"
        out.print(words, soft_wrap=True)
    _show_gdr(out, gpus, nets, ways)


def _show_gdr(out: Console, gpus: list[str], nets: list[str], ways: Paths) -> None:
    """Print whether each GPU uses GPUDirect RDMA with its nearest NIC. Equal GPUs are one line."""
    groups: dict[str, list[str]] = {}
    if not nets:
        return
    for gpu in gpus:
        for net in ways.nearest_nets(gpu)[:1]:
            receive, send = (ways.gdr(gpu, net, read=read) for read in (False, True))
            if receive.allowed and send.allowed:
                words = f"receives and sends directly ({receive.why})"
            elif receive.allowed:
                words = f"receives directly, sends through host memory ({send.why})"
            else:
                words = f"goes through host memory ({receive.why})"
            groups.setdefault(words, []).append(f"{gpu} with {net}")
    for words, pairs in groups.items():
        more = f" (and {len(pairs) - 1} more)" if len(pairs) > 1 else ""
        out.print(f"GDR  {pairs[0]}{more}: {words}", soft_wrap=True)
