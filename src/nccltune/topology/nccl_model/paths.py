# SPDX-License-Identifier: Apache-2.0
"""The path that NCCL uses between any two devices, for given settings and version.

The steps are those of `ncclTopoComputePaths` and `ncclTopoCheckGdr` (`graph/paths.cc`, NCCL 2.19 to
2.31):

1. Compute direct paths. 2. Connect GPUs without P2P through the CPU. 3. Give paths over C2C and
then PCIe the kind P2C. 4. Reach a NIC near another GPU through that GPU (PXN). 5. Reach a NIC
without GPUDirect RDMA through the CPU.

Whether P2P works and whether ranks run in containers is known only on a running machine. P2P is
assumed to work here.
"""

from collections import defaultdict
from typing import NamedTuple

import msgspec

from nccltune.topology.hardware import bandwidth
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.hardware.links import Link, LinkGraph, LinkKind, NodeKind, Vertex
from nccltune.topology.nccl_model.settings import PathKind, PathRules, PathSettings

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


__all__ = ["Gdr", "Path", "PathKind", "Paths", "paths"]

_MAX_CHANNELS = 64
DEFAULT_SETTINGS = PathSettings()


class Gdr(NamedTuple):
    """Whether NCCL uses GPUDirect RDMA between a GPU and a NIC, and the reason."""

    allowed: bool
    why: str


def paths(
    graph: LinkGraph,
    *,
    settings: PathSettings = DEFAULT_SETTINGS,
    nccl_version: Version | None = None,
) -> "Paths":
    """Return the paths of a graph. Those of a connected part are computed when it is first used.

    >>> from nccltune.examples import example
    >>> from nccltune.topology.files.load import load_topology
    >>> from nccltune.topology.hardware.build import link_graph
    >>> found = paths(link_graph([load_topology(example("h200x4-1-node"))]))
    >>> found.between("GPU0", "GPU1").kind.name
    'NVL'
    """
    return Paths(graph, settings, PathRules(nccl_version))


class Paths:
    """The paths between any two vertices of a graph. They are computed on first use."""

    def __init__(self, graph: LinkGraph, settings: PathSettings, rules: PathRules) -> None:
        self._graph = GraphIndex(graph, c2c_as_nvlink=rules.c2c_as_nvlink)
        self._settings = settings
        self._rules = rules
        self._domains = self._graph.domains()
        self._members: dict[int, list[str]] = {}
        for name in self._graph.vertices:
            self._members.setdefault(self._domains[name], []).append(name)
        self._found: dict[int, _Domain] = {}

    def between(self, source: str, target: str) -> Path:
        """Return the path: of kind NET if only the network connects them, DIS if nothing does.

        Raises KeyError for an unknown name.
        """
        if self._domains[source] != self._domains[target]:
            nodes = [self._graph.vertices[name].node for name in (source, target)]
            kind = PathKind.NET if nodes[0] != nodes[1] else PathKind.DIS
            return Path(source=source, target=target, kind=kind, gb_per_s=0.0)
        return self._domain(source).between(source, target)

    def p2p(self, gpu: str, peer: str) -> bool:
        """Return whether one GPU accesses the memory of the other directly."""
        same = self._domains[gpu] == self._domains[peer]
        return same and self._domain(gpu).p2p(gpu, peer)

    def gdr(self, gpu: str, net: str, *, read: bool) -> Gdr:
        """Return whether NCCL uses GPUDirect RDMA; with `read` for sending, else for receiving."""
        if self._domains[gpu] != self._domains[net]:
            return Gdr(False, "not in the same node")
        return self._domain(gpu).gdr(gpu, net, read=read)

    def nearest_nets(self, gpu: str) -> list[str]:
        """Return the NIC ports with the most bandwidth to a GPU, then the best path kind."""
        return self._domain(gpu).nearest(gpu, self._domain(gpu).nets)

    def _domain(self, name: str) -> "_Domain":
        number = self._domains[name]
        if number not in self._found:
            members = self._members[number]
            self._found[number] = _Domain(self._graph, members, self._settings, self._rules)
        return self._found[number]


class _Domain:
    """Vertices that are connected by links: one node, or several nodes that share NVLink."""

    def __init__(
        self, graph: GraphIndex, members: list[str], settings: PathSettings, rules: PathRules
    ) -> None:
        self._graph = graph
        self._settings = settings
        self._rules = rules
        self.gpus = [name for name in members if graph.is_a(name, NodeKind.GPU)]
        self.nets = [name for name in members if graph.is_a(name, NodeKind.NET)]
        self.cpus = [name for name in members if graph.is_a(name, NodeKind.CPU)]
        self._direct: dict[str, dict[str, Path]] = {}
        self._changed: dict[tuple[str, str], Path] = {}
        self._near: dict[tuple[str, int], list[str]] = {}
        self._owners: dict[str, str | None] = {}
        self._change_gpu_paths()
        if rules.p2c:
            self._mark_p2c()
        self._change_net_paths()

    def between(self, source: str, target: str) -> Path:
        memory = self._graph.memory
        if source == target:
            return Path(source=source, target=target, kind=PathKind.LOC, gb_per_s=bandwidth.local())
        if target in memory:
            down = memory[target][0]
            return self._join(
                self.between(source, down.source),
                Path(
                    source=down.source, target=target, kind=PathKind.LOC,
                    gb_per_s=down.gb_per_s, links=(down,),
                ),
            )  # fmt: skip
        if source in memory:
            up = memory[source][1]
            first = Path(
                source=source, target=up.target, kind=PathKind.LOC,
                gb_per_s=up.gb_per_s, links=(up,),
            )  # fmt: skip
            return self._join(first, self.between(up.target, target))
        changed = self._changed.get((source, target))
        if changed is not None:
            return changed
        if target not in self._direct:
            self._direct[target] = self._graph.paths_to(
                target, by_kind=self._rules.by_kind, nvb=self._settings.nvb
            )
        found = self._direct[target].get(source)
        if found is None:
            return Path(source=source, target=target, kind=PathKind.DIS, gb_per_s=0.0)
        return found

    def _join(self, first: Path, second: Path, why: str | None = None) -> Path:
        """Return one path made of two consecutive paths (`addInterStep`)."""
        kinds = {first.kind, second.kind}
        kind = max(kinds)
        if kinds == {PathKind.PHB, PathKind.C2C} and self._rules.p2c:
            kind = PathKind.P2C
        return Path(
            source=first.source,
            target=second.target,
            kind=kind,
            gb_per_s=min(first.gb_per_s, second.gb_per_s),
            links=first.links + second.links,
            why=why,
        )

    def _change(self, path: Path) -> None:
        """Use `path` instead of the direct path, and drop the cached results of the direct path."""
        self._changed[path.source, path.target] = path
        self._owners.clear()
        for among in (self.gpus, self.nets, self.cpus):
            self._near.pop((path.source, id(among)), None)

    def nearest(self, source: str, among: list[str]) -> list[str]:
        """Return the devices of one kind with the most bandwidth, then the best path kind."""
        key = (source, id(among))
        if key not in self._near:
            self._near[key] = self._nearest(source, among)
        return self._near[key]

    def _nearest(self, source: str, among: list[str]) -> list[str]:
        found = [(self.between(source, name), name) for name in among]
        ranks = [(-path.gb_per_s, path.kind) for path, _ in found if path.kind < PathKind.DIS]
        if not ranks:
            return []
        best = min(ranks)
        return [name for path, name in found if (-path.gb_per_s, path.kind) == best]

    def _cpu_of(self, gpu: str) -> str | None:
        near = self.nearest(gpu, self.cpus) if self._rules.widest_cpu else self.cpus
        near = [cpu for cpu in near if self.between(gpu, cpu).kind < PathKind.DIS]
        return min(near, key=lambda cpu: self.between(gpu, cpu).hops) if near else None

    def p2p_level(self) -> PathKind:
        if self._settings.p2p_level is not None:
            return self._settings.p2p_level
        first = self._graph.vertices[self.cpus[0]] if self.cpus else None
        if first is None:
            return PathKind.PXB
        is_x86 = first.arch == "x86_64"
        if self._rules.amd_pairs_only:
            pair = is_x86 and first.vendor == "AuthenticAMD" and len(self.gpus) <= 2
            return PathKind.SYS if pair else PathKind.PXB
        known = ("GenuineIntel", "CentaurHauls", "  Shanghai  ")
        kept = first.arch == "arm64" or (is_x86 and first.vendor in known)
        return PathKind.PXB if kept else PathKind.SYS

    def p2p(self, gpu: str, peer: str) -> bool:
        """Return whether NCCL uses P2P. The direct path decides, even if it has been replaced."""
        if gpu == peer:
            return True
        found = self._direct[peer].get(gpu)
        return found is not None and found.kind <= self.p2p_level()

    def _change_gpu_paths(self) -> None:
        level = self.p2p_level()
        for gpu in self.gpus:
            cpu = self._cpu_of(gpu)
            for peer in self.gpus:
                path = self.between(peer, gpu)
                if peer == gpu or path.kind <= level or cpu is None:
                    continue
                kind = path.kind.name if path.kind < PathKind.DIS else "no path"
                why = f"no P2P ({kind} is beyond {level.name}): through {cpu}"
                self._change(self._join(self.between(peer, cpu), self.between(cpu, gpu), why))

    def _mark_p2c(self) -> None:
        """Set the kind P2C for paths to NICs that use C2C to the CPU and PCIe from there."""
        for gpu in self.gpus:
            cpu = self._cpu_of(gpu)
            nearest = self._rules.p2c_nearest_only
            for net in self.nearest(gpu, self.nets) if nearest else self.nets:
                if cpu is None:
                    continue
                kinds = {self.between(gpu, cpu).kind, self.between(net, cpu).kind}
                if kinds != {PathKind.C2C, PathKind.PHB}:
                    continue
                for ends in ((gpu, net), (net, gpu)):
                    path = self.between(*ends)
                    if path.kind > PathKind.P2C:
                        why = "C2C to the CPU, PCIe from there"
                        self._change(msgspec.structs.replace(path, kind=PathKind.P2C, why=why))

    def _change_net_paths(self) -> None:
        for net in self.nets:
            for gpu in self.gpus:
                if self._settings.pxn:
                    self._try_pxn(gpu, net)
                is_far = self.between(gpu, net).kind >= PathKind.PHB
                if is_far and not self._rules.far_nics_bounce:
                    continue
                gdr = self.gdr(gpu, net, read=False)
                cpu = self._cpu_of(gpu)
                if gdr.allowed or cpu is None:
                    continue
                why = f"no GPUDirect RDMA ({gdr.why}): through {cpu}"
                for ends in ((net, gpu), (gpu, net)):
                    self._change(
                        self._join(self.between(ends[0], cpu), self.between(cpu, ends[1]), why)
                    )

    def _try_pxn(self, gpu: str, net: str) -> None:
        """Route a GPU to a NIC through the GPU beside that NIC, if this is better for sending."""
        peer = self._gpu_of(net)
        if peer is None or peer == gpu:
            return
        mine, theirs = self.between(gpu, net), self.between(peer, net)
        c2c = self._settings.pxn_c2c
        level = PathKind.P2C if (self._rules.pxn_c2c if c2c is None else c2c) else PathKind.PXB
        vertices = self._graph.vertices
        if (
            theirs.kind <= level
            and (not self._rules.pxn_needs_gdr or self.gdr(peer, net, read=True).allowed)
            and self.between(peer, gpu).kind <= PathKind.NVL
            and vertices[peer].node == vertices[gpu].node
            and (theirs.gb_per_s > mine.gb_per_s or mine.kind > PathKind.PXN)
        ):
            joined = self._join(self.between(gpu, peer), theirs, f"PXN: through {peer}")
            self._change(msgspec.structs.replace(joined, kind=PathKind.PXN))

    def _gpu_of(self, net: str) -> str | None:
        """Return the near GPU that has `net` among its own NICs (`ncclTopoGetLocalGpu`), if any."""
        if net not in self._owners:
            self._owners[net] = self._find_gpu_of(net)
        return self._owners[net]

    def _find_gpu_of(self, net: str) -> str | None:
        near = self.nearest(net, self.gpus)
        for channel in range(_MAX_CHANNELS):
            for gpu in near:
                if self._net_of(gpu, channel) == net:
                    return gpu
        return None

    def _net_of(self, gpu: str, channel: int) -> str | None:
        """Return the NIC that a GPU uses for a channel (`ncclTopoGetLocalNet`, default policy)."""
        nets = self.nearest(gpu, self.nets)
        if not nets:
            return None
        sharing = max(1, len(self.nearest(nets[0], self.gpus)))
        each = -(-len(nets) // sharing)
        start = self._graph.vertices[gpu].index or 0
        if self._rules.shares_by_rest:
            start %= sharing
        if len(nets) & (len(nets) - 1) == 0:
            start = _mirror(start, len(nets))
        return nets[(start + channel % each) % len(nets)]

    def gdr(self, gpu: str, net: str, *, read: bool) -> Gdr:
        vertices = self._graph.vertices
        for name in (net, gpu):
            if vertices[name].gdr is False:
                return Gdr(False, f"{name} does not support it")
        if read:
            off = self._read_off(gpu)
            if off is not None:
                return Gdr(False, off)
        path = self.between(gpu, net)
        if path.kind is PathKind.PXN:
            peer = next(name for name in path.stops[1:] if self._graph.is_a(name, NodeKind.GPU))
            path = self.between(peer, net)
        c2c = self._settings.gdr_c2c
        through_c2c = self._rules.gdr_c2c if c2c is None else c2c
        level = self._settings.gdr_level
        if level is None:
            level = PathKind.P2C if through_c2c else PathKind.PXB
        as_c2c = self._rules.p2c_as_c2c and through_c2c and path.kind is PathKind.P2C
        if path.kind > level and not (as_c2c and level >= PathKind.C2C):
            return Gdr(False, f"{path.kind.name} is beyond {level.name}")
        return Gdr(True, f"{path.kind.name} is within {level.name}")

    def _read_off(self, gpu: str) -> str | None:
        """Return why a NIC does not read from a GPU; None if it does."""
        if self._settings.gdr_read is not None:
            return None if self._settings.gdr_read else "NCCL_NET_GDR_READ=0"
        sm = self._graph.vertices[gpu].sm
        if (self._rules.read_from_sm80 and (sm is None or sm >= 80)) or len(self.gpus) == 1:
            return None
        if any(self.between(gpu, peer).kind is PathKind.NVL for peer in self.gpus if peer != gpu):
            return None
        known = f"sm{sm}" if sm is not None else "unknown compute capability"
        return f"reading is off by default without NVLink ({known})"


def _mirror(value: int, power: int) -> int:
    """Return the bits of `value`, below `power` of two, in reverse order."""
    mirrored = 0
    low, high = 1, power >> 1
    while low < power:
        if value & low:
            mirrored |= high
        low, high = low << 1, high >> 1
    return mirrored
