# SPDX-License-Identifier: Apache-2.0
"""Fill in the GPUs and NVLinks that a file leaves to detection.

Clouds ship files for `NCCL_TOPO_FILE` that contain the PCI tree alone. If such a file has no
compute capability and no NVLinks for a GPU, NCCL asks NVML for them (`ncclTopoGetXmlFromGpu`). So
the machine may have NVLinks that the file does not list. This module guesses most of them from
device ids, or from the shape of the cloud instance: its numbers of GPUs, NICs and switches. The
guesses are marked as assumed, because no file and no driver confirms them.
"""

import functools
import tomllib
from collections import Counter
from importlib import resources
from itertools import combinations

import msgspec

from nccltune.formats.topology.nvidia_smi_matrix import PCI_ONLY
from nccltune.model.topology import Dialect, Gpu, Net, NvLink, Pci, Topology
from nccltune.topology.hardware import bandwidth
from nccltune.topology.hardware.change import devices_of, rebuilt
from nccltune.topology.hardware.classify import (
    NVIDIA,
    GpuModel,
    PciKind,
    gpu_models,
    model_of,
    pci_kind,
)

SWITCH = "fffffff:ffff:ff"
"""NCCL's name for an NVSwitch that is not visible on the machine."""
_NO_ID = (None, "", "0x0000", "0xffff")
"""Values that files use for an unknown device id."""
_SWITCH_CLASS, _GPU_CLASS = "0x068000", "0x030200"
CUBE = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2,
    (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
    (0, 4): 2, (1, 5): 2, (2, 6): 1, (3, 7): 1,
}  # fmt: skip
"""NVLinks between the 8 V100 GPUs of a DGX-1, in the order of nvidia-smi."""


class _Shape(msgspec.Struct, frozen=True):
    name: str
    model: str
    gpus: int
    nics: int
    switches: int
    generation: int
    cpu: tuple[str, int, int] | None = None
    nic_gbit: int | None = None


@functools.cache
def _shapes() -> list[_Shape]:
    text = (
        resources.files("nccltune.topology.hardware")
        .joinpath("node_shapes.toml")
        .read_text("utf-8")
    )
    return msgspec.convert(tomllib.loads(text)["shape"], list[_Shape])


def leaves_nvlink_out(topology: Topology) -> bool:
    """Return whether a file says nothing of NVLink, unlike NCCL's own and `nvidia-smi`'s."""
    if topology.dialect is Dialect.SMI:
        return PCI_ONLY in topology.unread
    gpus = [one.gpu or Gpu() for one in _gpus(topology)]
    if any(gpu.nvlinks or gpu.c2c for gpu in gpus):
        return False
    return bool(gpus) and all(gpu.sm is None and gpu.name is None for gpu in gpus)


def nvlink_is_unknown(topology: Topology) -> bool:
    """Return whether the machine may have NVLinks that the file does not list."""
    return bool(topology.assumed) or leaves_nvlink_out(topology)


def filled(topology: Topology) -> Topology:
    """Return the topology with the GPUs and NVLinks that its file leaves to detection.

    `assumed` of the result says from what. GPUs of an unknown model only get a number.
    """
    if not leaves_nvlink_out(topology):
        return topology
    gpus = _gpus(topology)
    shape = _shape(topology, gpus)
    named = [model_of(one) for one in gpus]
    model = named[0]
    source = "by their device id"
    usual = next((one for one in gpu_models() if shape and one.name == shape.model), None)
    if shape is not None and all(one.device in _NO_ID for one in gpus):
        model = usual
        source = f"the file has the shape of {shape.name}"
    elif any(one is not model for one in named):
        model = None
    links = _links(model, [one.bus_id for one in gpus]) if model is not None else None
    if model is None or links is None:
        return _with_gpus(topology, gpus, {}, None, ())
    filled_in = _with_gpus(topology, gpus, links, model, _sentences(model, len(gpus), source))
    is_usual = usual is not None and (usual.sm, usual.links) == (model.sm, model.links)
    return _with_ports(filled_in, shape if is_usual else None)


def _with_gpus(
    topology: Topology,
    gpus: list[Pci],
    links: dict[str, tuple[NvLink, ...]],
    model: GpuModel | None,
    assumed: tuple[str, ...],
) -> Topology:
    places = {one.bus_id: place for place, one in enumerate(gpus)}

    def device(one: Pci) -> Pci:
        if one.bus_id not in places:
            return one
        gpu = one.gpu or Gpu()
        gpu = msgspec.structs.replace(
            gpu,
            index=places[one.bus_id] if gpu.index is None else gpu.index,
            sm=model.sm if model is not None else gpu.sm,
            nvlinks=links.get(one.bus_id, ()),
            detected=topology.dialect is Dialect.NCCL,
            assumed=bool(assumed),
        )
        return msgspec.structs.replace(one, gpu=gpu)

    return msgspec.structs.replace(rebuilt(topology, device), assumed=assumed)


def _with_ports(topology: Topology, shape: _Shape | None) -> Topology:
    """Give each NIC without a port one, with the NIC speed of the instance `shape`, if known."""
    if shape is None or shape.nic_gbit is None:
        return topology
    words, speed = f"as {shape.name} has", shape.nic_gbit * 1000

    def device(one: Pci) -> Pci:
        if not _has_no_port(one):
            return one
        port = Net(name=one.bus_id, mbit_per_s=speed, assumed=words)
        return msgspec.structs.replace(one, nets=(port,))

    return rebuilt(topology, device)


def _sentences(model: GpuModel, gpus: int, source: str) -> tuple[str, ...]:
    which = f"GPUs are taken as {model.name} ({source})"
    if model.nvlink == "none":
        # The GPU model has no NVLink, so nothing is assumed about links.
        return ()
    if model.nvlink == "bridge":
        return (f"{which} without NVLink bridges, which the file leaves to detection",)
    where = {
        "switch": "to NVSwitches" if gpus != 4 else "between the 4 of them",
        "rack": "to NVSwitches of the rack",
        "cube": "in a hybrid cube mesh, in the file's order",
    }[model.nvlink]
    links = f"{model.links} NVLinks each {where}"
    return (f"{which} with {links}; the file leaves NVLink to detection",)


def _links(model: GpuModel, bus_ids: list[str]) -> dict[str, tuple[NvLink, ...]] | None:
    """Return the NVLinks of each GPU by bus id; None for a number that no board has.

    Empty for a single GPU and for models whose boards have no fixed NVLinks.
    """
    count = len(bus_ids)
    if model.nvlink in ("none", "bridge") or count < 2:
        return {}
    if model.nvlink == "cube":
        if count > 8:
            return None
        pairs = {pair: links for pair, links in CUBE.items() if max(pair) < count}
    elif count == 4 and model.nvlink == "switch":
        pairs = dict.fromkeys(combinations(range(4), 2), model.links // 3)
    else:
        link = NvLink(target=SWITCH, count=model.links, target_class=_SWITCH_CLASS)
        return dict.fromkeys(bus_ids, (link,))
    return {
        bus_id: tuple(
            NvLink(target=bus_ids[sum(pair) - one], count=links, target_class=_GPU_CLASS)
            for pair, links in pairs.items()
            if one in pair
        )
        for one, bus_id in enumerate(bus_ids)
    }


def _gpus(topology: Topology) -> list[Pci]:
    """Return the GPUs in the order of the file: those it describes, else by class or id."""
    devices = list(devices_of(topology))
    named = any(one.gpu is not None and one.gpu.sm is not None for one in devices)
    return [one for one in devices if pci_kind(one, named) is PciKind.GPU]


def _has_no_port(device: Pci) -> bool:
    return pci_kind(device, False) is PciKind.NIC and not device.nets


def _shape(topology: Topology, gpus: list[Pci]) -> _Shape | None:
    """Return the row of `node_shapes.toml` with the PCI tree of a file of NVIDIA's GPUs, if any."""
    ids = {one.bus_id for one in gpus}
    if not all((one.class_code or "").startswith("0x0302") for one in gpus):
        return None
    if not all(one.vendor in (None, NVIDIA) for one in gpus):
        return None
    devices = list(devices_of(topology))
    nics = sum(pci_kind(one, False) is PciKind.NIC for one in devices)
    switches = sum(any(child.bus_id in ids for child in one.children) for one in devices)
    generations = Counter(bandwidth.pci_generation(one.speed) for one in gpus)
    cpus = {(cpu.vendor, cpu.family, cpu.model) for cpu in topology.cpus}
    for shape in _shapes():
        if (
            (shape.gpus, shape.nics, shape.switches) == (len(gpus), nics, switches)
            and set(generations) == {shape.generation}
            and (shape.cpu is None or cpus == {shape.cpu})
        ):
            return shape
    return None
