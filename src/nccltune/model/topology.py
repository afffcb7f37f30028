# SPDX-License-Identifier: Apache-2.0
"""A node's hardware as its files describe it: devices and connections, without bandwidths.

The structure is that of NCCL's topology XML (`graph/xml.cc`, NCCL 2.30). Readers of other formats
fill the same structure. A value that the source does not have is None. Texts are kept unchanged,
because `nccltune lint` looks for errors in them.
"""

from enum import StrEnum

import msgspec


class Dialect(StrEnum):
    """The format of the source: `smi` is `nvidia-smi topo -m`, `sysfs` the running machine."""

    NCCL = "nccl"
    RCCL = "rccl"
    FLAGCX = "flagcx"
    SMI = "smi"
    SYSFS = "sysfs"


class NvLink(msgspec.Struct, frozen=True, kw_only=True):
    """`count` NVLinks of a GPU to `target`: a bus id, or NCCL's name of a hidden NVSwitch."""

    target: str
    count: int
    target_class: str | None = None


class C2c(msgspec.Struct, frozen=True, kw_only=True):
    """NVLink-C2C from a GPU to its CPU: `count` links of `mb_per_s` each."""

    mb_per_s: int
    count: int


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU; `index` is NVML's, `sm` is 90 for 9.0, `gdr` whether it supports GPUDirect RDMA.

    `detected`: `sm` and `nvlinks` are predictions of what NCCL will detect. `assumed` may be wrong.
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
    """A port of a NIC; `gdr`: it accesses GPU memory, `assumed`: where the speed is from."""

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
    """A PCI device or bridge. `speed` ("16.0 GT/s PCIe") and `width` describe its upstream link.

    `switch_links` are switches that it reaches without the CPU (`pcilink`).
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
    """The line in the source, for messages."""


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA node, which is a root of the tree. `nets` are NICs that are not PCI devices.

    `is_guess`: no number of a NUMA node was told, or another one has it: `numa` is made up.
    """

    numa: int | None = None
    is_guess: bool = False
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
    """The hardware of one node, from a file or place `source`.

    `unread` lists what was skipped, `assumed` what was added for detection.
    """

    source: str
    dialect: Dialect
    cpus: tuple[Cpu, ...]
    version: str | None = None
    name: str | None = None
    unread: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
