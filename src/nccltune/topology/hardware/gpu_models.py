# SPDX-License-Identifier: Apache-2.0
"""The GPU models by PCI device id (`gpu_models.toml`)."""

import functools
import tomllib
from importlib import resources

import msgspec

from nccltune.model.topology import Pci

NVIDIA = "0x10de"


class GpuModel(msgspec.Struct, frozen=True):
    """A GPU model: its compute capability and number of NVLinks.

    The header of `gpu_models.toml` explains the values of `nvlink`.
    """

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


@functools.cache
def _by_id() -> dict[str, GpuModel]:
    return {number: model for model in gpu_models() for number in model.ids}


def model_of(device: Pci) -> GpuModel | None:
    """Return the GPU model by a device's id; None if the id is missing or unknown."""
    if (device.vendor or NVIDIA).lower() != NVIDIA or device.device is None:
        return None
    return _by_id().get(device.device.lower().removeprefix("0x"))
