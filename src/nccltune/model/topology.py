# SPDX-License-Identifier: Apache-2.0
"""A node's hardware as its files describe it: what is attached to what. No judgement, no bandwidth.

NCCL's topology XML gives the shape (`graph/xml.cc`, NCCL 2.30); other readers fill the same one. A
value that the source does not give is None, and a text is kept as it stood there, because what is
wrong with it is what `nccltune lint` looks for.
"""

from enum import StrEnum

import msgspec


class Dialect(StrEnum):
    """Whose file it was; `smi` is `nvidia-smi topo -m`, `sysfs` the running machine."""

    NCCL = "nccl"
    RCCL = "rccl"
    FLAGCX = "flagcx"
    SMI = "smi"
    SYSFS = "sysfs"


class NvLink(msgspec.Struct, frozen=True, kw_only=True):
    """`count` links of a GPU to `target`: a bus id, or NCCL's name of a hidden switch."""

    target: str
    count: int
    target_class: str | None = None


class C2c(msgspec.Struct, frozen=True, kw_only=True):
    """NVLink-C2C to the CPU: `count` links of `mb_per_s` each."""

    mb_per_s: int
    count: int


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU; `index` is NVML's, `sm` its compute capability (90 is 9.0), `gdr` GPUDirect RDMA.

    `detected`: `sm` and `nvlinks` are not the file's but what detection should find,
    `assumed` that they may be others.
    """

    index: int | None = None
    sm: int | None = None
    rank: int | None = None
    gdr: bool | None = None
    nvlinks: tuple[NvLink, ...] = ()
    c2c: tuple[C2c, ...] = ()
    name: str | None = None
    detected: bool = False
    assumed: bool = False


class Net(msgspec.Struct, frozen=True, kw_only=True):
    """A port of a NIC; `mbit_per_s` is its speed, `gdr` is whether it reads and writes
    GPUs. `assumed` names where the speed is from, if not from the file."""

    name: str | None = None
    index: int | None = None
    mbit_per_s: int | None = None
    port: int | None = None
    guid: str | None = None
    latency_us: float | None = None
    max_connections: int | None = None
    gdr: bool | None = None
    coll: bool | None = None
    rail: int | None = None
    plane: int | None = None
    assumed: str | None = None


class Pci(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI device or bridge; `speed` ("16.0 GT/s PCIe") and `width` are of its upstream link.

    `switch_links` are bus ids of switches that this one reaches without the CPU (`pcilink`).
    """

    bus_id: str
    class_code: str | None = None
    vendor: str | None = None
    device: str | None = None
    subsystem_vendor: str | None = None
    subsystem_device: str | None = None
    speed: str | None = None
    width: int | None = None
    gpu: Gpu | None = None
    nets: tuple[Net, ...] = ()
    children: tuple["Pci", ...] = ()
    switch_links: tuple[str, ...] = ()
    line: int | None = None
    """The line of the source, for messages."""


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA node (a root of the tree); `nets` are NICs that are no PCI devices."""

    numa: int | None = None
    affinity: str | None = None
    arch: str | None = None
    vendor: str | None = None
    family: int | None = None
    model: int | None = None
    host_hash: str | None = None
    devices: tuple[Pci, ...] = ()
    nets: tuple[Net, ...] = ()
    line: int | None = None


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """One node. `source` is the file's name, or where it was read; `unread` what was skipped,
    `assumed` what was added that the file leaves to detection."""

    source: str
    dialect: Dialect
    cpus: tuple[Cpu, ...]
    version: str | None = None
    name: str | None = None
    unread: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
