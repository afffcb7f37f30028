# SPDX-License-Identifier: Apache-2.0
"""Find the best path from every vertex to a given one, before settings change paths.

The source is `ncclTopoSetPaths`.
"""

from collections import defaultdict

import msgspec

from nccltune.topology.hardware import bandwidth
from nccltune.topology.hardware.links import Link, LinkGraph, LinkKind, NodeKind, Vertex
from nccltune.topology.nccl_model.settings import PathKind

_KINDS = {
    LinkKind.PCI: PathKind.PIX,
    LinkKind.NVLINK: PathKind.NVL,
    LinkKind.C2C: PathKind.C2C,
    LinkKind.SWITCH_TO_SWITCH: PathKind.LOC,
    LinkKind.CPU_TO_CPU: PathKind.SYS,
    # The link from a NIC to its port does not change the kind of a path.
    LinkKind.NET: PathKind.LOC,
}
"""The kind of a path that consists of one link. The search follows no links of other kinds."""


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """A path: its links in order, its kind, its lowest bandwidth in GB/s.

    `why` is the reason if NCCL does not use the direct path; else None.
    """

    source: str
    target: str
    kind: PathKind
    gb_per_s: float
    links: tuple[Link, ...] = ()
    why: str | None = None

    @property
    def hops(self) -> int:
        """Return the number of links; NCCL 2.30 and later adds one for each GPU at an end."""
        return len(self.links)

    @property
    def stops(self) -> tuple[str, ...]:
        """Return the names of the vertices on the path, both ends included."""
        return (self.source, *(link.target for link in self.links))


class GraphIndex:
    """The vertices and links of a graph, indexed for the path search."""

    def __init__(self, graph: LinkGraph, *, c2c_as_nvlink: bool = False) -> None:
        self._kinds = dict(_KINDS)
        if c2c_as_nvlink:
            self._kinds[LinkKind.C2C] = PathKind.NVL
        self.vertices: dict[str, Vertex] = {vertex.name: vertex for vertex in graph.vertices}
        self.leaving: dict[str, list[Link]] = defaultdict(list)
        self.memory: dict[str, tuple[Link, Link]] = {}
        """For each memory vertex: the link to it and the link from it."""
        self._twins: dict[tuple[str, str, LinkKind], Link] = {}
        for link in graph.links:
            if link.kind in _KINDS:
                self.leaving[link.source].append(link)
            self._twins[link.source, link.target, link.kind] = link
        self._sort_links()
        for link in graph.links:
            if link.kind is LinkKind.MEMORY and self.is_a(link.target, NodeKind.MEMORY):
                self.memory[link.target] = (link, self.twin(link))

    def _sort_links(self) -> None:
        """Sort links in NCCL's order (`ncclTopoSortSystem`): wide first, up the PCI tree last.

        The search takes the first of equally good paths, so the order matters.
        """
        for links in self.leaving.values():
            links.sort(key=lambda link: -link.gb_per_s)
        seen = {name for name in self.vertices if self.is_a(name, NodeKind.CPU)}
        waiting = list(seen)
        while waiting:
            above = waiting.pop()
            for down in self.leaving[above]:
                if down.kind is not LinkKind.PCI or down.target in seen:
                    continue
                seen.add(down.target)
                waiting.append(down.target)
                links = self.leaving[down.target]
                up = next(place for place, link in enumerate(links) if link.target == above)
                links.append(links.pop(up))

    def twin(self, link: Link) -> Link:
        """Return the same link in the other direction."""
        return self._twins[link.target, link.source, link.kind]

    def is_a(self, name: str, kind: NodeKind) -> bool:
        """Return whether a vertex is of a kind."""
        return self.vertices[name].kind is kind

    def domains(self) -> dict[str, int]:
        """Return a number for each vertex. Vertices that links connect have the same number."""
        found: dict[str, int] = {}
        for name in self.vertices:
            if name in found:
                continue
            waiting = [name]
            number = len(found)
            found[name] = number
            while waiting:
                for link in self.leaving[waiting.pop()]:
                    if link.target not in found:
                        found[link.target] = number
                        waiting.append(link.target)
        for name, (link, _) in self.memory.items():
            found[name] = found[link.source]
        return found

    def paths_to(self, base: str, *, by_kind: bool, nvb: bool) -> dict[str, Path]:
        """Return the best path to `base` from each vertex that has one.

        `by_kind` (2.30.7 and later) compares kind, bandwidth, hops; else a path needs more
        bandwidth and no more hops. `nvb` allows to pass another GPU over NVLink.
        """
        local = Path(source=base, target=base, kind=PathKind.LOC, gb_per_s=bandwidth.local())
        best = {base: local}
        frontier = [base]
        while frontier:
            upcoming: dict[str, None] = {}
            for name in frontier:
                path = best[name]
                for link in self.leaving[name]:
                    if not self._may_pass(name, base, link, path, nvb=nvb):
                        continue
                    width = min(path.gb_per_s, link.gb_per_s)
                    kind = max(path.kind, self._kind(link, path))
                    if _is_better(kind, width, path, best.get(link.target), by_kind=by_kind):
                        best[link.target] = Path(
                            source=link.target,
                            target=base,
                            kind=kind,
                            gb_per_s=width,
                            links=(self.twin(link), *path.links),
                        )
                        upcoming[link.target] = None
            frontier = list(upcoming)
        return best

    def _may_pass(self, name: str, base: str, link: Link, path: Path, *, nvb: bool) -> bool:
        """Return whether a path may go on through `name`: a GPU only between two over NVLink."""
        if name == base or not self.is_a(name, NodeKind.GPU):
            return True
        return (
            nvb
            and link.kind is LinkKind.NVLINK
            and self.is_a(link.target, NodeKind.GPU)
            and len(path.links) <= 1
        )

    def _kind(self, link: Link, path: Path) -> PathKind:
        ends = (self.vertices[link.source].kind, self.vertices[link.target].kind)
        if ends == (NodeKind.PCI, NodeKind.PCI):
            return PathKind.PXB
        if link.kind is LinkKind.PCI and NodeKind.CPU in ends:
            return PathKind.PHB
        if (
            self._kinds[link.kind] is PathKind.NVL
            and ends[0] is NodeKind.GPU
            and path.kind is PathKind.NVL
            and len(path.links) == 1
        ):
            return PathKind.NVB
        return self._kinds[link.kind]


def _is_better(
    kind: PathKind, width: float, path: Path, held: Path | None, *, by_kind: bool
) -> bool:
    if held is None:
        return True
    if by_kind:
        return (kind, -width, len(path.links) + 1) < (held.kind, -held.gb_per_s, len(held.links))
    return len(held.links) > len(path.links) and held.gb_per_s < width
