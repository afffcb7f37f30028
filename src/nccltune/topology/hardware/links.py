# SPDX-License-Identifier: Apache-2.0
"""The vertices and directed links of one or more nodes. Each link has its bandwidth."""

from enum import StrEnum

import msgspec

from nccltune.topology.hardware.bandwidth import UNKNOWN


class NodeKind(StrEnum):
    """The kind of a vertex, with NCCL's names (`graph/topo.h`)."""

    GPU = "GPU"
    PCI = "PCI"
    NVS = "NVS"
    CPU = "CPU"
    NIC = "NIC"
    NET = "NET"
    MEMORY = "MEM"
    """Host memory of a CPU. NCCL's search ignores it, but transfers through the host load it."""


class LinkKind(StrEnum):
    """The kind of a link."""

    PCI = "PCI"
    NVLINK = "NVL"
    C2C = "C2C"
    SWITCH_TO_SWITCH = "PCILINK"
    CPU_TO_CPU = "SYS"
    MEMORY = "MEM"
    NET = "NET"
    FABRIC = "FABRIC"


class Vertex(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a node.

    `name` is unique in its LinkGraph: `GPU0`, `PCI 0000:0a:00.0`, `CPU0`, `NET mlx5_0`. If there
    are several nodes, the name begins with the node: `node1/GPU0`.
    """

    name: str
    kind: NodeKind
    node: int = 0
    """The number of the host in the graph, from 0."""
    bus_id: str | None = None
    numa: int | None = None
    index: int | None = None
    sm: int | None = None
    """The compute capability of a GPU; 90 is 9.0."""
    gdr: bool | None = None
    """Whether the GPU or NIC port supports GPUDirect RDMA; None if unknown."""
    arch: str | None = None
    """`arch` and `vendor` of a CPU are spelled as in the file."""
    vendor: str | None = None


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a link.

    `how` is the derivation of the bandwidth: "Gen5 x16", "width 0 read as 16", "link_speed '' read
    as Gen3". `sure` is False if the bandwidth is a guess.
    """

    source: str
    target: str
    kind: LinkKind
    gb_per_s: float
    how: str
    sure: bool = True
    upper_bound: bool = False
    """Whether the bandwidth may be too high, because a width or a NIC speed is unknown."""
    wire_gb_per_s: float = UNKNOWN
    """The most that any transfer gets: the limit in ceilings. NCCL's search books `gb_per_s`."""

    @property
    def wire_is_sure(self) -> bool:
        """Return whether `wire_gb_per_s` is known; between CPUs and to memory it depends on
        much."""
        return self.sure and self.kind not in (LinkKind.CPU_TO_CPU, LinkKind.MEMORY)

    @property
    def wire_is_unknown(self) -> bool:
        """Return whether nothing is known of what the wires of the link carry."""
        return not self.wire_is_sure and self.wire_gb_per_s >= UNKNOWN

    @property
    def wire_how(self) -> str:
        """Return the derivation of `wire_gb_per_s`, or the reason why it is unknown."""
        if self.kind is not LinkKind.CPU_TO_CPU:
            return self.how
        books = f"NCCL's search books {self.gb_per_s:g} GB/s" if self.gb_per_s < UNKNOWN else ""
        return f"what the links between CPUs carry is unknown ({self.how}{books and '; '}{books})"

    @property
    def name(self) -> str:
        """Return a unique name, such as `GPU0 -> PCI 0000:0a:00.0`, or with ` (C2C)`."""
        kind = " (C2C)" if self.kind is LinkKind.C2C else ""
        return f"{self.source} -> {self.target}{kind}"


class LinkGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Vertices and directed links. For every link there is one in the opposite direction."""

    vertices: tuple[Vertex, ...]
    links: tuple[Link, ...]
