# SPDX-License-Identifier: Apache-2.0
"""Classify a PCI device as NCCL does, from its class and ids (`graph/topo.cc`)."""

from enum import StrEnum

from nccltune.model.topology import NvLink, Pci
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.hardware.gpu_models import model_of
from nccltune.topology.hardware.links import NodeKind

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
    if chip == 0xC010 and sub_vendor == 0x1000 and page == 0xA000:
        return 4
    gen5 = version is None or version >= (2, 20, 0)
    if gen5 and chip == 0xC030 and sub_vendor == 0x1000 and page == level * 0x1000:
        return 5
    return 0


def _hex(text: str | None) -> int | None:
    try:
        return int(text, 16) if text is not None else None
    except ValueError:
        return None
