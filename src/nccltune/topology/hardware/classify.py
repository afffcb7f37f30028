# SPDX-License-Identifier: Apache-2.0
"""Classify a PCI device as NCCL does (`graph/topo.cc`), and know the models of GPUs."""

import functools
import re
import tomllib
from enum import StrEnum
from importlib import resources

import msgspec

from nccltune.model.topology import Dialect, NvLink, Pci, Topology
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.hardware.change import devices_of, rebuilt
from nccltune.topology.hardware.links import NodeKind

NVIDIA = "0x10de"


class GpuModel(msgspec.Struct, frozen=True):
    """A GPU model; the header of `gpu_models.toml` explains `nvlink`."""

    name: str
    ids: list[str]
    sm: int
    nvlink: str
    links: int = 0


@functools.cache
def gpu_models() -> list[GpuModel]:
    """Return every row of `gpu_models.toml`."""
    text = (
        resources.files("nccltune.topology.hardware").joinpath("gpu_models.toml").read_text("utf-8")
    )
    return msgspec.convert(tomllib.loads(text)["model"], list[GpuModel])


def with_named_gpus(topology: Topology, name: str | None) -> Topology:
    """Return a matrix of nvidia-smi with the compute capability of `name`, if known."""
    sm = None if name is None else _sm_of_name(name)
    if topology.dialect is not Dialect.SMI or sm is None:
        return topology

    def device(one: Pci) -> Pci:
        if one.gpu is None:
            return one
        return msgspec.structs.replace(one, gpu=msgspec.structs.replace(one.gpu, sm=sm))

    return rebuilt(topology, device)


_PRODUCT = re.compile(r"[A-Z]{1,2}\d{1,4}[A-Z]?|[2-5]0\d0")


def _sm_of_name(name: str) -> int | None:
    words = set(re.split(r"[^A-Za-z0-9]+", name))
    for model in gpu_models():
        if words & set(_PRODUCT.findall(model.name)):
            return model.sm
    return None


@functools.cache
def _by_id() -> dict[str, GpuModel]:
    return {number: model for model in gpu_models() for number in model.ids}


def model_of(device: Pci) -> GpuModel | None:
    """Return the GPU model by a device's id; None if the id is missing or unknown."""
    if (device.vendor or NVIDIA).lower() != NVIDIA or device.device is None:
        return None
    return _by_id().get(device.device.lower().removeprefix("0x"))


_GEFORCE = re.compile(r"(?:0x)?(?:268|27[08]|28[08]|2b8|2c0|2d[08]|2f0)[0-9a-f]")
"""Device ids of GeForce RTX 40 and 50 of desktops, without those of workstations and servers."""


def lacks_p2p(topology: Topology) -> bool:
    """Return whether NVIDIA's driver refuses P2P: two or more GPUs, all GeForce RTX 40 or 50."""
    gpus = [one.device or "" for one in devices_of(topology) if one.gpu is not None]
    return len(gpus) > 1 and all(_GEFORCE.fullmatch(one.lower()) for one in gpus)


_GPU_CLASSES = ("0x03", "0x1200")
_GPU_VENDORS = (None, "0x10de", "0x1002")


class PciKind(StrEnum):
    """The kind of a PCI device. NCCL ignores devices of kind `OTHER`."""

    SWITCH = "switch"
    GPU = "GPU"
    NIC = "NIC"
    OTHER = "other"


def pci_kind(device: Pci, has_gpus: bool) -> PciKind:
    """Return the kind of a device.

    A device of a GPU's class that a file with GPUs (`has_gpus`) does not name is none of NCCL's.
    """
    if device.gpu is not None:
        return PciKind.GPU
    if device.nets:
        return PciKind.NIC
    code = device.class_code or ""
    if code.startswith(_GPU_CLASSES):
        # RCCL also uses devices of class 0x1200 (processing accelerators) as GPUs.
        is_gpu = not has_gpus and device.vendor in _GPU_VENDORS
        return PciKind.GPU if is_gpu else PciKind.OTHER
    if code.startswith("0x02"):
        # In a file written by NCCL, a NIC without a port is one that NCCL does not use.
        return PciKind.OTHER if has_gpus else PciKind.NIC
    if code.startswith("0x0680"):
        return PciKind.OTHER
    if not code and not device.children:
        # NCCL asks the machine for a missing class. Here the device id is used instead.
        if model_of(device) is not None:
            return PciKind.OTHER if has_gpus else PciKind.GPU
        if _is_nic(device):
            return PciKind.OTHER if has_gpus else PciKind.NIC
    # NCCL treats a device of unknown class as a switch.
    return PciKind.SWITCH


def _is_nic(device: Pci) -> bool:
    vendor, number = (device.vendor or "").lower(), (device.device or "").lower()
    return vendor == "0x15b3" or (vendor == "0x1d0f" and number.startswith("0xefa"))


def kind_of_target(link: NvLink, is_gpu: bool) -> NodeKind:
    """Return the kind of device at the other end of an NVLink: without a class, by bus id.

    NCCL asks the machine, and takes what it does not find for a switch.
    """
    code = link.target_class
    if code is None:
        return NodeKind.GPU if is_gpu else NodeKind.NVS
    if code.startswith(_GPU_CLASSES):
        return NodeKind.GPU
    return NodeKind.CPU if code.startswith("0x068001") else NodeKind.NVS


def broadcom_generation(device: Pci, level: int, version: Version | None = None) -> int:
    """Return the generation of a Broadcom switch of two levels, at `level` 0 or 1; else 0
    (`getBcmGen`)."""
    ids = [
        _hex(text)
        for text in (
            device.vendor, device.device, device.subsystem_vendor, device.subsystem_device
        )
    ]  # fmt: skip
    if any(value is None for value in ids) or pci_kind(device, True) is not PciKind.SWITCH:
        return 0
    vendor, chip, sub_vendor, sub_device = (value or 0 for value in ids)
    if vendor != 0x1000:
        return 0
    page = sub_device & 0xF000
    newest = version or (99, 0, 0)
    if newest >= (2, 9, 6) and chip == 0xC010 and sub_vendor == 0x1000 and page == 0xA000:
        return 4
    gen5 = newest >= (2, 20, 0)
    if gen5 and chip == 0xC030 and sub_vendor == 0x1000 and page == level * 0x1000:
        return 5
    return 0


def _hex(text: str | None) -> int | None:
    try:
        return int(text, 16) if text is not None else None
    except ValueError:
        return None
