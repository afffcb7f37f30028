# SPDX-License-Identifier: Apache-2.0
"""The best path from every vertex to one, before settings change any (`ncclTopoSetPaths`)."""

from collections import defaultdict

import msgspec

from nccltune.topology import bandwidth
from nccltune.topology.links import Link, LinkGraph, LinkKind, NodeKind, Vertex
from nccltune.topology.settings import PathKind

_KINDS = {
    LinkKind.PCI: PathKind.PIX,
    LinkKind.NVLINK: PathKind.NVL,
    LinkKind.C2C: PathKind.C2C,
    LinkKind.SWITCH_TO_SWITCH: PathKind.LOC,
    LinkKind.CPU_TO_CPU: PathKind.SYS,
    # Only the way between NIC and GPU matters.
    LinkKind.NET: PathKind.LOC,
}
"""What a link alone makes of a path; links of other kinds are not followed."""


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """A way between two vertices: its links in order, its kind and its narrowest link's GB/s.

    `why` says what NCCL changed and for which reason, where it does not take the direct one.
    """

    source: str
    target: str
    kind: PathKind
    gb_per_s: float
    links: tuple[Link, ...] = ()
    why: str | None = None

    @property
    def hops(self) -> int:
        """Links on the way. NCCL 2.30 and later counts one more for each GPU at an end."""
        return len(self.links)

    @property
    def stops(self) -> tuple[str, ...]:
        """Names of the vertices on the way, both ends included."""
        return (self.source, *(link.target for link in self.links))


class Hardware:
    """The graph's vertices and links, ready to be walked."""

    def __init__(self, graph: LinkGraph) -> None:
        self.vertices: dict[str, Vertex] = {vertex.name: vertex for vertex in graph.vertices}
        self.leaving: dict[str, list[Link]] = defaultdict(list)
        self.memory: dict[str, tuple[Link, Link]] = {}
        """The link to each memory and the one back."""
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
        """NCCL's order (`ncclTopoSortSystem`), which decides between equals: wide links first, the
        one up the PCI tree last."""
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
        """The same link in the other direction."""
        return self._twins[link.target, link.source, link.kind]

    def is_a(self, name: str, kind: NodeKind) -> bool:
        """Whether a vertex is of a kind."""
        return self.vertices[name].kind is kind

    def domains(self) -> dict[str, int]:
        """A number for each vertex, the same for those that some way joins."""
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
        """The best path to `base` from each vertex that has one.

        `by_kind` as in `PathRules`; `nvb` allows a way through one other GPU over NVLink.
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
        """A GPU is no way station, but for one hop of NVLink between two others."""
        if name == base or not self.is_a(name, NodeKind.GPU):
            return True
        return (
            nvb
            and link.kind is LinkKind.NVLINK
            and self.is_a(link.target, NodeKind.GPU)
            and len(path.links) <= 1
        )

    def _kind(self, link: Link, path: Path) -> PathKind:
        """What a link makes of the path that it lengthens."""
        ends = (self.vertices[link.source].kind, self.vertices[link.target].kind)
        if ends == (NodeKind.PCI, NodeKind.PCI):
            return PathKind.PXB
        if link.kind is LinkKind.PCI and NodeKind.CPU in ends:
            return PathKind.PHB
        if (
            link.kind is LinkKind.NVLINK
            and ends[0] is NodeKind.GPU
            and path.kind is PathKind.NVL
            and len(path.links) == 1
        ):
            return PathKind.NVB
        return _KINDS[link.kind]


def _is_better(
    kind: PathKind, width: float, path: Path, held: Path | None, *, by_kind: bool
) -> bool:
    """Whether `path` and one more link beat the path held so far."""
    if held is None:
        return True
    if by_kind:
        return (kind, -width, len(path.links) + 1) < (held.kind, -held.gb_per_s, len(held.links))
    return len(held.links) > len(path.links) and held.gb_per_s < width
