# SPDX-License-Identifier: Apache-2.0
"""What a PCI device is to NCCL, by its class and identity (`graph/topo.cc`)."""

from enum import StrEnum

from nccltune.model.topology import NvLink, Pci
from nccltune.topology.bandwidth import Version
from nccltune.topology.gpu_models import model_of
from nccltune.topology.links import NodeKind

_GPU_CLASSES = ("0x03", "0x1200")
_GPU_VENDORS = (None, "0x10de", "0x1002")


class Device(StrEnum):
    """`OTHER` is what NCCL leaves out."""

    SWITCH = "switch"
    GPU = "GPU"
    NIC = "NIC"
    OTHER = "other"


def device_of(device: Pci, has_gpus: bool) -> Device:
    """What a device is; `has_gpus` says that the file names GPUs itself (a dump): others of their
    class are left out then, as NCCL does with GPUs that it does not use."""
    if device.gpu is not None:
        return Device.GPU
    if device.nets:
        return Device.NIC
    code = device.class_code or ""
    if code.startswith(_GPU_CLASSES):
        # RCCL also drives class 0x1200, processing accelerators.
        is_gpu = not has_gpus and device.vendor in _GPU_VENDORS
        return Device.GPU if is_gpu else Device.OTHER
    if code.startswith("0x02"):
        # In a dump a NIC without a port is one that NCCL does not use.
        return Device.OTHER if has_gpus else Device.NIC
    if code.startswith("0x0680"):
        return Device.OTHER
    if not code and not device.children:
        # NCCL asks the machine, which says what the device id says.
        if model_of(device) is not None:
            return Device.OTHER if has_gpus else Device.GPU
        if _is_nic(device):
            return Device.OTHER if has_gpus else Device.NIC
    # Without a class NCCL asks the machine; what has no class that it knows counts as a switch.
    return Device.SWITCH


def _is_nic(device: Pci) -> bool:
    """Whether a device id is one of an RDMA NIC: NVIDIA's (Mellanox's) or AWS's EFA."""
    vendor, number = (device.vendor or "").lower(), (device.device or "").lower()
    return vendor == "0x15b3" or (vendor == "0x1d0f" and number.startswith("0xefa"))


def kind_of_target(link: NvLink, is_gpu: bool) -> NodeKind:
    """What an NVLink leads to. Without a class: a GPU where one has the target's bus id, else a
    switch (NCCL asks the machine, and takes what it does not see for a switch)."""
    code = link.target_class
    if code is None:
        return NodeKind.GPU if is_gpu else NodeKind.NVS
    if code.startswith(_GPU_CLASSES):
        return NodeKind.GPU
    return NodeKind.CPU if code.startswith("0x068001") else NodeKind.NVS


def broadcom_level(device: Pci, level: int, version: Version | None = None) -> int:
    """Generation of a Broadcom switch that shows itself as two levels of bridges, where `device`
    can be its upper (0) or lower (1) level; 0 where it is none (`getBcmGen`)."""
    ids = [
        _hex(text)
        for text in (
            device.vendor, device.device, device.subsystem_vendor, device.subsystem_device
        )
    ]  # fmt: skip
    if any(value is None for value in ids) or device_of(device, True) is not Device.SWITCH:
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
