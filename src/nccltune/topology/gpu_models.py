# SPDX-License-Identifier: Apache-2.0
"""What a GPU is by its PCI device id (`gpu_models.toml`)."""

import functools
import tomllib
from importlib import resources

import msgspec

from nccltune.model.topology import Pci

NVIDIA = "0x10de"


class GpuModel(msgspec.Struct, frozen=True):
    """A kind of GPU: compute capability, and `links` NVLinks to where `nvlink` says (see the
    table)."""

    name: str
    ids: list[str]
    sm: int
    nvlink: str
    links: int = 0


@functools.cache
def gpu_models() -> list[GpuModel]:
    """Return every row of the table."""
    text = resources.files("nccltune.topology").joinpath("gpu_models.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text)["model"], list[GpuModel])


@functools.cache
def _by_id() -> dict[str, GpuModel]:
    return {number: model for model in gpu_models() for number in model.ids}


def model_of(device: Pci) -> GpuModel | None:
    """Return what a GPU is by its device id; None where that is missing or not known."""
    if (device.vendor or NVIDIA).lower() != NVIDIA or device.device is None:
        return None
    return _by_id().get(device.device.lower().removeprefix("0x"))
