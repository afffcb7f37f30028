# SPDX-License-Identifier: Apache-2.0
"""The directed links of one or more nodes, each with its bandwidth and where that comes from."""

from enum import StrEnum

import msgspec


class NodeKind(StrEnum):
    """What a vertex is; NCCL's names (`graph/topo.h`)."""

    GPU = "GPU"
    PCI = "PCI"
    NVS = "NVS"
    CPU = "CPU"
    NIC = "NIC"
    NET = "NET"
    MEMORY = "MEM"
    """Host memory of a CPU. NCCL's search does not book it; a bounce over the host does."""


class LinkKind(StrEnum):
    """What carries the bytes."""

    PCI = "PCI"
    NVLINK = "NVL"
    C2C = "C2C"
    SWITCH_TO_SWITCH = "PCILINK"
    CPU_TO_CPU = "SYS"
    MEMORY = "MEM"
    NET = "NET"
    FABRIC = "FABRIC"


class Vertex(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is unique in its LinkGraph and fit to be read by people: `GPU0`, `PCI 0000:0a:00.0`,
    `CPU0`, `NET mlx5_0`; with several nodes `node1/GPU0`."""

    name: str
    kind: NodeKind
    node: int = 0
    """Which of the graph's hosts it belongs to, from 0."""
    bus_id: str | None = None
    numa: int | None = None
    index: int | None = None
    sm: int | None = None
    """A GPU's compute capability: 90 is 9.0."""
    gdr: bool | None = None
    """Whether a GPU, or a NIC's port, does GPUDirect RDMA; None where nobody said."""
    arch: str | None = None
    """A CPU's architecture and vendor, as its files spell them."""
    vendor: str | None = None


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a link. `how` says in words how the bandwidth was derived ("Gen5 x16",
    "width 0 read as 16", "link_speed '' read as Gen3"); `sure` is False where NCCL guesses."""

    source: str
    target: str
    kind: LinkKind
    gb_per_s: float
    how: str
    sure: bool = True
    upper_bound: bool = False
    """Not sure, and the link may be slower: a width or a NIC's speed that is not known."""

    @property
    def name(self) -> str:
        """`GPU0 -> PCI 0000:0a:00.0`; unique in its graph: C2C is beside a PCI link and says so."""
        kind = " (C2C)" if self.kind is LinkKind.C2C else ""
        return f"{self.source} -> {self.target}{kind}"


class LinkGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Vertices and directed links; every link has its twin in the other direction."""

    vertices: tuple[Vertex, ...]
    links: tuple[Link, ...]
