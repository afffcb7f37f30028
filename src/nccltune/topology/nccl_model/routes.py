# SPDX-License-Identifier: Apache-2.0
"""The routes from each GPU to its peers and NICs, as NCCL plans them and as the bytes travel.

NCCL's search *books* bandwidth: it subtracts the speed of a channel from each link of a path. The
paths are those of `topology.nccl_model.paths`. The bytes travel over a list of legs; each leg has
one kind of flow. Path and legs differ if GPUDirect reads are off. A send then goes through host
memory to the NIC, but the search still books the direct path (`transport/net.cc` decides after the
search; NCCL 2.19 to 2.30).
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from nccltune.model.errors import InputError
from nccltune.model.topology import Net, Topology
from nccltune.topology.hardware.bandwidth import Version, known_sm, nvlink
from nccltune.topology.hardware.build import link_graph
from nccltune.topology.hardware.change import devices_of, nets_of
from nccltune.topology.hardware.classify import lacks_p2p
from nccltune.topology.hardware.links import Link, LinkGraph, LinkKind, NodeKind, Vertex
from nccltune.topology.nccl_model.paths import Path, Paths, paths
from nccltune.topology.nccl_model.settings import PathKind, PathSettings


class FlowKind(StrEnum):
    """A kind of flow. Its value is its name in files and JSON."""

    NVLINK = "nvlink"
    NVLS = "nvls"
    NVLS_BLACKWELL = "nvls_blackwell"
    P2P_WRITE = "p2p_write"
    INTER_SOCKET = "inter_socket"
    GDR_READ = "gdr_read"
    GDR_WRITE = "gdr_write"
    GPU_TO_HOST = "gpu_to_host"
    HOST_TO_GPU = "host_to_gpu"
    HOST_TO_NIC = "host_to_nic"
    NIC_TO_HOST = "nic_to_host"
    NETWORK = "network"
    READ_REQUEST = "read_request"
    """Read requests, which travel opposite to the data. They are part of a read."""

    @property
    def prose(self) -> str:
        """Return a description for people, such as "NIC reads GPU"."""
        return _PROSE[self]

    @property
    def is_read(self) -> bool:
        """Return whether the flow is a read: its requests travel opposite to its data."""
        return self in _READS


_PROSE = {
    FlowKind.NVLINK: "GPU to GPU over NVLink",
    FlowKind.NVLS: "GPU to NVSwitch, reduced there",
    FlowKind.NVLS_BLACKWELL: "GPU to NVSwitch, reduced there",
    FlowKind.P2P_WRITE: "GPU writes GPU",
    FlowKind.INTER_SOCKET: "GPU writes GPU across sockets",
    FlowKind.GDR_READ: "NIC reads GPU",
    FlowKind.GDR_WRITE: "NIC writes GPU",
    FlowKind.GPU_TO_HOST: "GPU writes host memory",
    FlowKind.HOST_TO_GPU: "GPU reads host memory",
    FlowKind.HOST_TO_NIC: "NIC reads host memory",
    FlowKind.NIC_TO_HOST: "NIC writes host memory",
    FlowKind.NETWORK: "network",
    FlowKind.READ_REQUEST: "read requests",
}
_READS = frozenset({FlowKind.GDR_READ, FlowKind.HOST_TO_GPU, FlowKind.HOST_TO_NIC})


_UNKNOWN_SM = 80


class Leg(NamedTuple):
    """A section of a route with one kind of flow, on `links` of `NodeRoutes`.

    An Intel root complex splits P2P into small packets (`through_intel`).
    """

    kind: FlowKind
    links: tuple[int, ...]
    through_intel: bool = False


class Route(NamedTuple):
    """A route: the path on which the search books, and the `legs` over which bytes travel."""

    kind: PathKind
    gb_per_s: float
    links: tuple[int, ...]
    legs: tuple[Leg, ...]


class GpuSpot(msgspec.Struct, frozen=True):
    """A GPU that takes part in the job."""

    name: str
    index: int
    sm: int
    own_nvlink_gb_per_s: float = 0.0
    """Bandwidth of NVLinks back to this GPU in some clouds' files: unusable, but in `totalBw`."""


class NetSpot(msgspec.Struct, frozen=True):
    """A port of a NIC; `asic` tells NICs apart under `NCCL_CROSS_NIC=0`, `coll` is CollNet."""

    name: str
    label: str
    index: int
    gb_per_s: float
    asic: str
    port: int
    coll: bool = False
    latency_us: float = 0.0


class NodeRoutes(msgspec.Struct, frozen=True):
    """All routes of a node: `gpu_gpu[a][b]`, `gpu_net[g][n]`, `net_gpu[n][g]`, in NCCL's order.

    GPUs and NICs are in the order of the file, as NCCL numbers them.

    `links` are all directed links of the node. `intel` and `amd` are True if a CPU is of that
    vendor. `power` names the CPUs of POWER. `to_switch` and `from_switch` are the routes between
    each GPU and the NVSwitches, if there are NVSwitches. `notes` lists the assumptions made.
    """

    gpus: tuple[GpuSpot, ...]
    nets: tuple[NetSpot, ...]
    links: tuple[Link, ...]
    gpu_gpu: tuple[tuple[Route, ...], ...]
    gpu_net: tuple[tuple[Route, ...], ...]
    net_gpu: tuple[tuple[Route, ...], ...]
    to_switch: tuple[Route, ...]
    from_switch: tuple[Route, ...]
    intel: bool
    amd: bool
    power: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def nvswitch(self) -> bool:
        """Return whether the node has NVSwitches."""
        return bool(self.to_switch)


def node_routes(
    topology: Topology, settings: PathSettings | None = None, *, version: Version | None = None
) -> NodeRoutes:
    """Return the routes between all GPUs and NICs of a node. Raises InputError.

    To use fewer devices, apply `topology.hardware.subset` first.
    """
    settings = settings or PathSettings()
    no_p2p = lacks_p2p(topology) and settings.p2p_level is not PathKind.LOC
    if no_p2p and settings.p2p_level is None:
        settings = msgspec.structs.replace(settings, p2p_level=PathKind.LOC)
    graph = link_graph([topology], nccl_version=version)
    found = paths(graph, settings=settings, nccl_version=version)
    finder = _RouteFinder(topology, graph, found, version)
    if no_p2p:
        why = "assumed: NVIDIA's driver has no P2P for GeForce RTX 40 and 50, unless it is patched"
        finder.notes.append(why)
    return finder.node_routes()


def twins(links: Sequence[Link]) -> list[int]:
    """Return the index of each link's reverse link; the link's own index if it has none."""
    place = {_key(link): number for number, link in enumerate(links)}
    return [
        place.get((link.target, link.source, link.kind), number)
        for number, link in enumerate(links)
    ]


class _RouteFinder:
    def __init__(
        self, topology: Topology, graph: LinkGraph, found: Paths, version: Version | None
    ) -> None:
        self.topology = topology
        self.version = version
        self.graph = graph
        self.paths = found
        self.place = {_key(link): number for number, link in enumerate(graph.links)}
        self.kinds = {vertex.name: vertex.kind for vertex in graph.vertices}
        self.memory = {
            link.source: link for link in graph.links if self.kinds[link.target] is NodeKind.MEMORY
        }
        self.notes: list[str] = [f"assumed: {words}" for words in topology.assumed]
        vendors = {vertex.vendor for vertex in self._vertices(NodeKind.CPU)}
        self.intel = "GenuineIntel" in vendors
        self.amd = "AuthenticAMD" in vendors
        cpus = self._vertices(NodeKind.CPU)
        self.power = frozenset(cpu.name for cpu in cpus if cpu.arch == "ppc64")
        self.gpus = self._gpus()
        self.nets = self._nets()
        self.home = {gpu.name: self._home(gpu.name) for gpu in self.gpus}

    def node_routes(self) -> NodeRoutes:
        switch = [
            (self.paths.between(gpu.name, nvs.name), self.paths.between(nvs.name, gpu.name))
            for nvs in self._vertices(NodeKind.NVS)[:1]
            for gpu in self.gpus
        ]
        return NodeRoutes(
            gpus=self.gpus,
            nets=self.nets,
            links=self.graph.links,
            gpu_gpu=tuple(tuple(self._to_gpu(a, b) for b in self.gpus) for a in self.gpus),
            gpu_net=tuple(tuple(self._to_net(g, n) for n in self.nets) for g in self.gpus),
            net_gpu=tuple(tuple(self._from_net(n, g) for g in self.gpus) for n in self.nets),
            to_switch=tuple(self._route(route) for route, _ in switch),
            from_switch=tuple(self._route(route) for _, route in switch),
            intel=self.intel,
            amd=self.amd,
            power=self.power,
            notes=tuple(self.notes),
        )

    def _vertices(self, kind: NodeKind) -> list[Vertex]:
        return [vertex for vertex in self.graph.vertices if vertex.kind is kind]

    def _gpus(self) -> tuple[GpuSpot, ...]:
        found = []
        loops = {
            device.bus_id: sum(
                link.count * nvlink(device.gpu, self.version).gb_per_s
                for link in device.gpu.nvlinks
                if link.target == device.bus_id and link.count > 0
            )
            for device in devices_of(self.topology)
            if device.gpu is not None
        }
        taken = {
            device.bus_id: known_sm(device.gpu)
            for device in devices_of(self.topology)
            if device.gpu is not None
        }
        unknown = [vertex for vertex in self._vertices(NodeKind.GPU) if not _sm(vertex)]
        if unknown:
            sm = taken.get(unknown[0].bus_id or "", _UNKNOWN_SM)
            self.notes.append(
                f"the file names no compute capability of {unknown[0].name}"
                + (f" (and {len(unknown) - 1} more)" if unknown[1:] else "")
                + f": taken as {sm / 10:.1f}"
            )
        for number, vertex in enumerate(self._vertices(NodeKind.GPU)):
            index = number if vertex.index is None else vertex.index
            own = loops.get(vertex.bus_id or "", 0.0)
            found.append(
                GpuSpot(
                    vertex.name,
                    index,
                    _sm(vertex) or taken.get(vertex.bus_id or "", _UNKNOWN_SM),
                    own,
                )
            )
        if not found:
            raise InputError(
                "names no GPU, so nothing can send",
                where=self.topology.source,
                hint="use a dump of NCCL: NCCL_TOPO_DUMP_FILE=topo.xml",
            )
        return tuple(found)

    def _nets(self) -> tuple[NetSpot, ...]:
        by_name = {net.name: net for net in nets_of(self.topology)}
        spots = []
        for number, vertex in enumerate(self._vertices(NodeKind.NET)):
            label = vertex.name.removeprefix("NET ")
            net = by_name.get(label, Net())
            speed = max(
                (link.gb_per_s for link in self.graph.links if link.source == vertex.name),
                default=0.0,
            )
            index = number if vertex.index is None else vertex.index
            known = net.guid is not None and net.guid.strip("0x") != ""
            asic = str(net.guid) if known else vertex.name
            port = net.port or 0
            coll, latency = bool(net.coll), net.latency_us or 0.0
            spots.append(NetSpot(vertex.name, label, index, speed, asic, port, coll, latency))
        return tuple(spots)

    def _home(self, gpu: str) -> str:
        """Return the CPU of a GPU, which is the CPU with the fewest hops (`ncclGetLocalCpu`)."""
        routes = [self.paths.between(gpu, cpu.name) for cpu in self._vertices(NodeKind.CPU)]
        near = [route for route in routes if route.kind < PathKind.NET and route.links]
        if not near:
            raise InputError(f"{gpu} is attached to no CPU", where=self.topology.source)
        return min(near, key=lambda route: len(route.links)).target

    def _places(self, links: Sequence[Link]) -> tuple[int, ...]:
        return tuple(self.place[_key(link)] for link in links)

    def _into_memory(self, source: str, cpu: str) -> tuple[int, ...]:
        return self._places(self.paths.between(source, self.memory[cpu].target).links)

    def _out_of_memory(self, cpu: str, target: str) -> tuple[int, ...]:
        return self._places(self.paths.between(self.memory[cpu].target, target).links)

    def _route(self, path: Path, *legs: Leg) -> Route:
        return Route(path.kind, path.gb_per_s, self._places(path.links), legs)

    def _to_gpu(self, a: GpuSpot, b: GpuSpot) -> Route:
        if a == b:
            return Route(PathKind.LOC, float("inf"), (), ())
        path = self.paths.between(a.name, b.name)
        if not self.paths.p2p(a.name, b.name):
            cpu = self.home[b.name]
            up = Leg(FlowKind.GPU_TO_HOST, self._into_memory(a.name, cpu))
            down = Leg(FlowKind.HOST_TO_GPU, self._out_of_memory(cpu, b.name))
            return self._route(path, up, down)
        kinds = {link.kind for link in path.links}
        if kinds <= {LinkKind.NVLINK}:
            return self._route(path, Leg(FlowKind.NVLINK, self._places(path.links)))
        flow = FlowKind.INTER_SOCKET if LinkKind.CPU_TO_CPU in kinds else FlowKind.P2P_WRITE
        return self._route(path, Leg(flow, self._places(path.links), self._through_intel(path)))

    def _through_intel(self, path: Path) -> bool:
        return self.intel and any(self.kinds[stop] is NodeKind.CPU for stop in path.stops[1:-1])

    def _to_net(self, gpu: GpuSpot, net: NetSpot) -> Route:
        path = self.paths.between(gpu.name, net.name)
        sender = self._sender(path)
        first: tuple[Leg, ...] = ()
        last = path
        if sender != gpu.name:
            hop = self.paths.between(gpu.name, sender)
            first = (Leg(FlowKind.NVLINK, self._places(hop.links)),)
            last = self.paths.between(sender, net.name)
        if self.paths.gdr(sender, net.name, read=True).allowed:
            legs = self._split(FlowKind.GDR_READ, last.links, self._through_intel(last))
        else:
            cpu = self.home[sender]
            up = Leg(FlowKind.GPU_TO_HOST, self._into_memory(sender, cpu))
            out = self.paths.between(self.memory[cpu].target, net.name)
            legs = (up, *self._split(FlowKind.HOST_TO_NIC, out.links))
        return self._route(path, *first, *legs)

    def _sender(self, path: Path) -> str:
        """Return the GPU from which the NIC reads. With PXN it is not the source of the path."""
        if path.kind is not PathKind.PXN:
            return path.source
        return next(stop for stop in path.stops[1:] if self.kinds[stop] is NodeKind.GPU)

    def _from_net(self, net: NetSpot, gpu: GpuSpot) -> Route:
        path = self.paths.between(net.name, gpu.name)
        if self.paths.gdr(gpu.name, net.name, read=False).allowed:
            through = self._through_intel(path)
            return self._route(path, *self._split(FlowKind.GDR_WRITE, path.links, through))
        cpu = self.home[gpu.name]
        into = self.paths.between(net.name, self.memory[cpu].target)
        up = Leg(FlowKind.HOST_TO_GPU, self._out_of_memory(cpu, gpu.name))
        return self._route(path, *self._split(FlowKind.NIC_TO_HOST, into.links), up)

    def _split(
        self, kind: FlowKind, links: Sequence[Link], through_intel: bool = False
    ) -> tuple[Leg, ...]:
        """Return two legs: the links inside the node, and the network link."""
        wire = [link for link in links if link.kind is LinkKind.NET]
        inside = [link for link in links if link.kind is not LinkKind.NET]
        return (
            Leg(kind, self._places(inside), through_intel),
            Leg(FlowKind.NETWORK, self._places(wire)),
        )


def _sm(vertex: Vertex) -> int | None:
    """Return the compute capability of a GPU; None also for the 0 or -1 of some files."""
    return vertex.sm if vertex.sm is not None and vertex.sm > 0 else None


def _key(link: Link) -> tuple[str, str, LinkKind]:
    return link.source, link.target, link.kind
