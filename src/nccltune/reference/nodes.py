# SPDX-License-Identifier: Apache-2.0
"""The usual node of a GPU model: what is assumed where a measurement has no topology."""

import re

import msgspec

from nccltune.model.errors import InputError
from nccltune.model.numbers import counted
from nccltune.model.topology import C2c, Cpu, Dialect, Gpu, Net, NvLink, Pci, Topology
from nccltune.topology.hardware.classify import NVIDIA, GpuModel, gpu_models
from nccltune.topology.hardware.fill_in import filled

_SPEEDS = {70: "8.0 GT/s PCIe", 80: "16.0 GT/s PCIe", 90: "32.0 GT/s PCIe", 100: "64.0 GT/s PCIe"}
"""PCIe of boards by the compute capability from which on they have it."""
_C2C = C2c(mb_per_s=44712, count=5)
_SUPERCHIP = "16.0 GT/s PCIe"


def usual_node(gpu: str, *, gpus: int, nics: int, gbit_per_s: float) -> Topology:
    """Return a node of `gpus` GPUs on NVSwitches with `nics` NICs, evenly below PCIe switches.

    GPUs are joined as on the boards of that model: by NVSwitches, 4 of them and GH200 directly.
    Raises InputError for a model without such a board, and NICs that cannot be shared evenly.

    >>> usual_node("NVIDIA H100 80GB HBM3", gpus=8, nics=8, gbit_per_s=400).source
    'the usual node of 8 x H100-SXM5 with 8 NICs of 400 Gbit/s'
    """
    groups = min(gpus, nics) or gpus
    if gpus % groups or nics % groups:
        raise InputError(f"{nics} NICs cannot be shared evenly by {gpus} GPUs", where="--nics")
    words = set(re.split(r"[^A-Z0-9]+", gpu.upper()))
    model = next((one for one in gpu_models() if _is(one, words)), None)
    if "GH200" in words and gpus == 4:
        cpus, name = _superchips(gpus, nics, gbit_per_s), "GH200"
    elif model is not None:
        cpus, name = _board(model, gpus, nics, gbit_per_s, groups), model.name
    else:
        raise InputError(
            f"no usual node of {gpus} x {gpu} is known",
            hint="name the machine's file: --topology topo.xml (NCCL_TOPO_DUMP_FILE)",
        )
    ports = f" with {counted(nics, 'NIC')} of {gbit_per_s:g} Gbit/s" if nics else ""
    source = f"the usual node of {gpus} x {name}{ports}"
    node = filled(Topology(source=source, dialect=Dialect.NCCL, cpus=cpus))
    return msgspec.structs.replace(node, assumed=())


def is_whole_board(gpu: str, gpus: float) -> bool:
    """Return whether a run on `gpus` GPUs of a node has all of its usual board: 8, of GH200 4.

    4 of other GPUs may be a board of their own, or a half of one with NVSwitches.
    """
    return gpus == (4 if "GH200" in gpu.upper() else 8)


def _is(model: GpuModel, words: set[str]) -> bool:
    card = {"PCIE", "NVL"} & words
    return model.nvlink == "switch" and not card and model.name.split("-")[0] in words


def _nic(index: int, gbit_per_s: float, speed: str) -> Pci:
    port = Net(
        name=f"nic{index}",
        index=index,
        mbit_per_s=round(gbit_per_s * 1000),
        port=1,
        guid=f"0x{index + 1:x}",
        latency_us=0.0,
        gdr=True,
    )
    return Pci(
        bus_id=f"{0x100 + index:04x}:00:00.0",
        class_code="0x020000",
        speed=speed,
        width=16,
        nets=(port,),
    )


def _board(
    model: GpuModel, gpus: int, nics: int, gbit_per_s: float, groups: int
) -> tuple[Cpu, ...]:
    speed = _SPEEDS[max(least for least in _SPEEDS if least <= model.sm)]
    if model.sm < 90:
        # On boards of V100 and A100, two GPUs share a switch.
        groups = min(groups, max(1, gpus // 2))
    switches = []
    for group in range(groups):
        below = [
            Pci(
                bus_id=f"0000:{index + 1:02x}:00.0",
                class_code="0x030200",
                vendor=NVIDIA,
                device=f"0x{model.ids[0]}",
                speed=speed,
                width=16,
            )
            for index in range(group * gpus // groups, (group + 1) * gpus // groups)
        ]
        shared = range(group * nics // groups, (group + 1) * nics // groups)
        below += [_nic(index, gbit_per_s, speed) for index in shared]
        switches.append(
            Pci(
                bus_id=f"0000:{0x80 + group:02x}:00.0",
                class_code="0x060400",
                vendor="0x104c",
                device="0x8000",
                speed=speed,
                width=16,
                children=tuple(below),
            )
        )
    half = -(-groups // 2)
    return tuple(
        Cpu(
            numa=numa,
            arch="x86_64",
            vendor="GenuineIntel",
            family=6,
            model=143,
            host_hash="0x1",
            devices=tuple(part),
        )
        for numa, part in enumerate((switches[:half], switches[half:]))
        if part
    )


def _superchips(gpus: int, nics: int, gbit_per_s: float) -> tuple[Cpu, ...]:
    """Return CPUs with a GPU on C2C each; the GPUs are joined directly."""
    names = [f"{8 + index:04x}:01:00.0" for index in range(gpus)]
    cpus = []
    for index, name in enumerate(names):
        links = tuple(
            NvLink(target=other, count=18 // (gpus - 1), target_class="0x030200")
            for other in names
            if other != name
        )
        device = Pci(
            bus_id=name,
            class_code="0x030200",
            vendor=NVIDIA,
            device="0x2342",
            speed=_SUPERCHIP,
            width=1,
            gpu=Gpu(index=index, rank=index, sm=90, gdr=True, nvlinks=links, c2c=(_C2C,)),
        )
        mine = range(index * nics // gpus, (index + 1) * nics // gpus)
        ports = tuple(_nic(number, gbit_per_s, _SUPERCHIP) for number in mine)
        cpus.append(Cpu(numa=index, arch="arm64", host_hash="0x1", devices=(device, *ports)))
    return tuple(cpus)
