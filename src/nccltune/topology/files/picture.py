# SPDX-License-Identifier: Apache-2.0
"""Draw a machine as one self-contained SVG that follows dark mode."""

from html import escape
from itertools import pairwise
from math import log2

from nccltune.formats.text.lines import visible
from nccltune.topology.files.picture_layout import GAP, MARGIN, Box, Picture, place
from nccltune.topology.files.tree import headline, layout, nvlink_name
from nccltune.topology.hardware.links import Link, LinkGraph, LinkKind, NodeKind

_HEAD = 108.0
_NO_LIMIT = 5000.0
_MOST_MARKS = 4
"""The most NVLink arcs that get a label each. For more arcs, the legend shows the range of GB/s."""
_STYLE = """\
.nt-topo{--ink:#17202b;--soft:#5b6776;--paper:#ffffff;--box:#f3f5f8;--line:#c3cad4;
--gpu:#dff3e2;--gpu-line:#2f8f4e;--nic:#fdebd3;--nic-line:#c77414;--cpu:#e6e4fb;--cpu-line:#6557c9;
--pci:#6b7a8d;--nvl:#2f8f4e;--net:#c77414;--sys:#6557c9;--c2c:#0f8ea3;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:12px}
@media (prefers-color-scheme:dark){.nt-topo{--ink:#e7edf4;--soft:#9aa7b6;--paper:#11161d;
--box:#1c2430;--line:#3a4655;--gpu:#15311f;--gpu-line:#54c47a;--nic:#382711;--nic-line:#eaa04a;
--cpu:#25213f;--cpu-line:#9b8ff0;--pci:#8b99aa;--nvl:#54c47a;--net:#eaa04a;--sys:#9b8ff0;
--c2c:#45c2d6}}
.nt-topo text{fill:var(--ink)}.nt-topo .soft{fill:var(--soft);font-size:11px}
.nt-topo .title{font-size:16px;font-weight:600}.nt-topo .name{font-weight:600}
.nt-topo .gpu{fill:var(--gpu);stroke:var(--gpu-line)}
.nt-topo .nic{fill:var(--nic);stroke:var(--nic-line)}
.nt-topo .cpu{fill:var(--cpu);stroke:var(--cpu-line)}
.nt-topo .switch{fill:var(--box);stroke:var(--pci)}
.nt-topo .other{fill:var(--box);stroke:var(--line)}.nt-topo .nvs{fill:var(--gpu);stroke:var(--nvl)}
.nt-topo path{fill:none}.nt-topo .pci{stroke:var(--pci)}.nt-topo .nvl{stroke:var(--nvl)}
.nt-topo .net{stroke:var(--net)}.nt-topo .sys{stroke:var(--sys)}.nt-topo .c2c{stroke:var(--c2c)}
.nt-topo .guess{stroke-dasharray:5 4}.nt-topo .halo{stroke:var(--paper);stroke-width:4px;
paint-order:stroke;stroke-linejoin:round}"""
_CLASSES = {
    LinkKind.PCI: "pci", LinkKind.NVLINK: "nvl", LinkKind.C2C: "c2c", LinkKind.CPU_TO_CPU: "sys",
    LinkKind.SWITCH_TO_SWITCH: "pci", LinkKind.NET: "net",
}  # fmt: skip
_LEGEND = (
    ("pci", "PCIe"), ("nvl", "NVLink"), ("c2c", "C2C"), ("sys", "between CPUs"),
    ("pci guess", "a guess"),
)  # fmt: skip


def svg(graph: LinkGraph, *, title: str, detected: bool = False) -> str:
    """Return the picture of a graph: CPUs, switches, GPUs and NICs with each link's GB/s.

    Tooltips show how each bandwidth was derived. `detected` is True if the file has no information
    about NVLink, because NCCL detects it.

    >>> from nccltune.examples import example
    >>> from nccltune.topology.files.load import load_topology
    >>> from nccltune.topology.hardware.build import link_graph
    >>> graph = link_graph([load_topology(example("h200x4-1-node"))])
    >>> svg(graph, title="4 H200").startswith("<svg")
    True
    """
    trees, across = layout(graph)
    picture = place(trees, _HEAD)
    lines: list[str] = []
    for root in picture.roots:
        _tree_lines(root, lines)
    floor = _beside(picture, across, lines)
    shapes = [_shape(box) for box in picture.boxes.values()]
    subtitle = f"{headline(graph, detected=detected)} · numbers are GB/s in each direction"
    width = max(picture.width, 2 * MARGIN + 6.6 * len(subtitle))
    height = floor + 58
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="nt-topo" role="img" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'style="max-width:100%;height:auto;background:var(--paper)">',
        f"<title>{_text(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{width:.0f}" height="{height:.0f}" style="fill:var(--paper)"/>',
        f'<text x="{MARGIN}" y="34" class="title">{_text(title, 90)}</text>',
        f'<text x="{MARGIN}" y="54" class="soft">{_text(subtitle)}</text>',
        *lines,
        *shapes,
        _legend(graph, across, height - 22),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _text(words: str, most: int = 400) -> str:
    return escape(visible(words, most), quote=True)


def _number(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _stroke(link: Link) -> str:
    """Return the CSS class and width of a line. The width grows with bandwidth, from 1 to 7."""
    width = 1.0 if link.gb_per_s >= _NO_LIMIT else min(7.0, max(1.0, 1 + log2(link.gb_per_s / 3)))
    guess = "" if link.sure else " guess"
    return f'class="{_CLASSES.get(link.kind, "pci")}{guess}" stroke-width="{width:.1f}"'


def _line(path: str, link: Link) -> str:
    tooltip = f"{link.name}: {_number(link.gb_per_s)} GB/s, {link.how}"
    return f'<path d="{path}" {_stroke(link)}><title>{_text(tooltip)}</title></path>'


def _mark(x: float, y: float, link: Link, *, anchor: str = "start", kind: str = "") -> str:
    """Return a label with a link's bandwidth; an empty text if the link has no limit."""
    if link.gb_per_s >= _NO_LIMIT:
        return ""
    guess = "" if link.sure else "?"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="soft halo" text-anchor="{anchor}">'
        f"{kind}{_number(link.gb_per_s)}{guess}</text>"
    )


def _tree_lines(box: Box, lines: list[str]) -> None:
    """Draw the links from a box to its children: a common line with a branch for each child."""
    top = box.y + box.height
    middle = top + 20
    for child in box.children:
        if child.link is not None:
            path = f"M{box.centre:.1f} {top:.1f}V{middle:.1f}H{child.centre:.1f}V{child.y:.1f}"
            lines.append(_line(path, child.link))
            lines.append(_mark(child.centre + 6, child.y - 8, child.link))
        for above, below in pairwise(child.stack):
            if below.link is not None:
                # The links to the boxes of a column run along the column's left side.
                side = child.x - GAP / 2
                path = (
                    f"M{child.centre:.1f} {child.y - 22:.1f}H{side:.1f}"
                    f"V{below.y + below.height / 2:.1f}H{below.x:.1f}"
                )
                lines.append(_line(path, below.link))
                same = above.link is not None and above.link.gb_per_s == below.link.gb_per_s
                if not same:
                    lines.append(_mark(below.x + 4, below.y - 2, below.link))
        _tree_lines(child, lines)


def _shape(box: Box) -> str:
    vertex = box.vertex
    kinds = {NodeKind.GPU: "gpu", NodeKind.NIC: "nic", NodeKind.CPU: "cpu"}
    kind = kinds.get(vertex.kind, "switch" if box.children else "other")
    first, second = _labels(box)
    tooltip = " · ".join(filter(None, [vertex.name, vertex.bus_id, vertex.vendor, second]))
    two = bool(second)
    y = box.y + box.height / 2 + (-3 if two else 4)
    parts = [
        f"<g><title>{_text(tooltip)}</title>",
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="7" class="{kind}" stroke-width="1.2"/>',
        f'<text x="{box.centre:.1f}" y="{y:.1f}" text-anchor="middle" class="name">'
        f"{_text(first, 20 if kind == 'cpu' else 13)}</text>",
    ]
    if two:
        parts.append(
            f'<text x="{box.centre:.1f}" y="{y + 15:.1f}" text-anchor="middle" class="soft">'
            f"{_text(second, 24 if kind == 'cpu' else 18)}</text>"
        )
    return "".join([*parts, "</g>"])


def _labels(box: Box) -> tuple[str, str]:
    """Return the two lines of text in a box: its name and the known details."""
    vertex = box.vertex
    name = vertex.name.rpartition("/")[2] if vertex.kind is not NodeKind.NIC else vertex.name
    if vertex.kind is NodeKind.GPU:
        return name, vertex.bus_id or ""
    if vertex.kind is NodeKind.CPU:
        return name, vertex.vendor or vertex.arch or ""
    if vertex.kind is NodeKind.NIC:
        ports = [link.target.rpartition("NET ")[2] for link in box.ports]
        if not ports:
            return "NIC", vertex.bus_id or ""
        total = sum(link.gb_per_s for link in box.ports) * 8
        guess = "" if all(link.sure for link in box.ports) else "?"
        names = ports[0] if len(ports) == 1 else f"{ports[0]} +{len(ports) - 1}"
        return names, f"{total:g} Gbit/s{guess}"
    return ("switch" if box.children else "device"), vertex.bus_id or ""


def _beside(picture: Picture, across: tuple[Link, ...], lines: list[str]) -> float:
    """Draw the links that are in no tree. Return the y coordinate of the lowest point."""
    floor = picture.floor
    sys = [link for link in across if link.kind is LinkKind.CPU_TO_CPU]
    _between_cpus(picture, sys, lines)
    for link in across:
        ends = (picture.boxes.get(link.source), picture.boxes.get(link.target))
        if link.kind is LinkKind.C2C and ends[0] is not None and ends[1] is not None:
            _c2c(ends[0], ends[1], link, lines)
    nvlinks = [link for link in across if link.kind is LinkKind.NVLINK]
    to_switch = [link for link in nvlinks if "NVS" in (_last(link.source), _last(link.target))]
    if to_switch:
        floor = _nvs(picture, to_switch, floor, lines)
    direct = [link for link in nvlinks if link not in to_switch]
    return _arcs(picture, direct, floor, lines)


def _last(name: str) -> str:
    return name.rpartition("/")[2].partition("#")[0]


def _between_cpus(picture: Picture, links: list[Link], lines: list[str]) -> None:
    """Draw one line between two CPUs, or a common line above more than two CPUs."""
    if not links:
        return
    cpus = [root for root in picture.roots if root.vertex.kind is NodeKind.CPU]
    if len(cpus) == 2:
        one, other = cpus
        y = one.y + one.height / 2
        lines.append(_line(f"M{one.x + one.width:.1f} {y:.1f}H{other.x:.1f}", links[0]))
        middle = (one.x + one.width + other.x) / 2
        lines.append(_mark(middle, y - 9, links[0], anchor="middle"))
        return
    y = cpus[0].y - 22
    slowest = min(links, key=lambda link: link.gb_per_s)
    legs = "".join(f"M{cpu.centre:.1f} {cpu.y:.1f}V{y:.1f}" for cpu in cpus)
    path = f"{legs}M{cpus[0].centre:.1f} {y:.1f}H{cpus[-1].centre:.1f}"
    lines.append(_line(path, slowest))
    lines.append(_mark((cpus[0].centre + cpus[-1].centre) / 2, y - 8, slowest,
                       anchor="middle", kind="each two CPUs: "))  # fmt: skip


def _c2c(one: Box, other: Box, link: Link, lines: list[str]) -> None:
    gpu, cpu = (one, other) if one.vertex.kind is NodeKind.GPU else (other, one)
    x = gpu.x + 14
    top = cpu.y + cpu.height
    path = f"M{cpu.centre - 16:.1f} {top:.1f}V{top + 34:.1f}H{x:.1f}V{gpu.y:.1f}"
    lines.append(_line(path, link))
    lines.append(_mark(x + 8, gpu.y - 34, link, kind="C2C "))


def _nvs(picture: Picture, links: list[Link], floor: float, lines: list[str]) -> float:
    """Draw all NVSwitches as one bar below the GPUs, because NCCL treats them as one switch."""
    joined = []
    for link in links:
        name = link.source if _last(link.target) == "NVS" else link.target
        if name in picture.boxes:
            joined.append((picture.boxes[name], link))
    if not joined:
        return floor
    bar = floor + 48
    for box, link in joined:
        lines.append(_line(f"M{box.centre:.1f} {box.y + box.height:.1f}V{bar:.1f}", link))
        lines.append(_mark(box.centre + 8, box.y + box.height + 18, link))
    left = min(box.x for box, _ in joined)
    right = max(box.x + box.width for box, _ in joined)
    lines.append(
        f'<g><title>{_text(links[0].how)}</title><rect x="{left:.1f}" y="{bar:.1f}" '
        f'width="{right - left:.1f}" height="30" rx="7" class="nvs" stroke-width="1.2"/>'
        f'<text x="{(left + right) / 2:.1f}" y="{bar + 19:.1f}" text-anchor="middle" '
        'class="name">NVSwitch</text></g>'
    )
    return bar + 30


def _arcs(picture: Picture, links: list[Link], floor: float, lines: list[str]) -> float:
    """Draw NVLinks between GPUs as arcs below the GPUs. Return the y of the lowest point."""
    lowest = floor
    for link in links:
        ends = [picture.boxes.get(name) for name in (link.source, link.target)]
        one, other = ends[0], ends[1]
        if one is None or other is None:
            continue
        if one.centre > other.centre:
            one, other = other, one
        y = one.y + one.height
        deep = 34 + (other.centre - one.centre) * 0.12
        start, end = one.centre + 10, other.centre - 10
        low = y + deep
        path = f"M{start:.1f} {y:.1f}C{start:.1f} {low:.1f} {end:.1f} {low:.1f} {end:.1f} {y:.1f}"
        lines.append(_line(path, link))
        if len(links) <= _MOST_MARKS:
            lines.append(_mark((start + end) / 2, y + deep * 0.75 + 4, link, anchor="middle"))
        lowest = max(lowest, low)
    return lowest


def _legend(graph: LinkGraph, across: tuple[Link, ...], y: float) -> str:
    kinds = {_CLASSES.get(link.kind, "") for link in across} | {"pci"}
    drawn = [link for link in graph.links if link.kind is not LinkKind.MEMORY]
    if any(not link.sure for link in drawn):
        kinds.add("pci guess")
    widths = sorted({link.gb_per_s for link in across if link.kind is LinkKind.NVLINK})
    x = MARGIN
    parts = []
    for name, words in _LEGEND:
        if name not in kinds:
            continue
        if name == "nvl":
            words = next(nvlink_name(link) for link in across if link.kind is LinkKind.NVLINK)  # noqa: PLW2901
        if name == "nvl" and len(widths) > 1:
            words += f" {_number(widths[0])} to {_number(widths[-1])}"  # noqa: PLW2901
        parts.append(
            f'<path d="M{x:.0f} {y:.0f}h26" class="{name}" stroke-width="3"/>'
            f'<text x="{x + 34:.0f}" y="{y + 4:.0f}" class="soft">{words}</text>'
        )
        x += 60 + 7 * len(words)
    return "".join(parts)
