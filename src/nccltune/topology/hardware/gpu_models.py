# SPDX-License-Identifier: Apache-2.0
"""The GPU models by PCI device id (`gpu_models.toml`)."""

import functools
import re
import tomllib
from importlib import resources

import msgspec

from nccltune.model.topology import Dialect, Pci, Topology
from nccltune.topology.hardware.rebuild import rebuilt

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
