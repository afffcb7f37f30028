# SPDX-License-Identifier: Apache-2.0
"""Decide which reference systems are like a measured one."""

import functools
import re

import msgspec

from nccltune.model.collective import Collective
from nccltune.reference.curves import ReferenceCurve

_PRODUCT = re.compile(r"[A-Z]{1,2}\d{1,4}[A-Z]?|[2-5]0\d0")
_MAKERS = frozenset({"NVIDIA", "TESLA", "GEFORCE", "QUADRO", "HGX", "DGX", "AMD"})
_CARDS = {"PCIE": "PCIe", "NVL": "NVL", "SXM2": "SXM2", "SXM3": "SXM3"}
"""Forms of GPUs with other links than the usual board of that model."""
_HOPPER, _BLACKWELL, _RACK = "H100, H200 or H20", "B200 or B300", "GB200 or GB300"
_SAME_LINKS = {
    name: text for text in (_HOPPER, _BLACKWELL, _RACK) for name in re.findall(r"\w+\d+", text)
}
_WITH_NVLS = (_HOPPER, _BLACKWELL, _RACK)
_LIMITED = re.compile(r"NCCL_NVLS_ENABLE=0|NCCL_ALGO=")
RACK_GPUS = 72
"""Most GPUs that the NVSwitches of a rack join."""
_RATE_TOLERANCE = 0.1


class SystemShown(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a measured system. None: neither the run nor the user names it.

    `limited` states that settings keep NCCL from its default choice, such as `NCCL_ALGO=Ring`.
    """

    gpu: str | None = None
    nodes: int | None = None
    gpus: int | None = None
    nic_gbps_per_gpu: float | None = None
    limited: bool = False

    @property
    def gpus_per_node(self) -> float | None:
        """Return the number of GPUs of a node."""
        return None if self.nodes is None or self.gpus is None else self.gpus / self.nodes

    @property
    def one_fabric(self) -> bool:
        """Return whether NVLink alone may join all GPUs, so that the NICs do not matter."""
        return self.nodes == 1 or (self.is_rack and (self.gpus or 0) <= RACK_GPUS)

    @property
    def is_rack(self) -> bool:
        """Return whether NVLink joins nodes, so that those may exceed their NICs together."""
        return gpu_class(self.gpu) == _RACK

    @property
    def missing(self) -> list[str]:
        """Return the names of the facts without which no system can be called alike."""
        facts: dict[str, object] = {
            "gpu": gpu_class(self.gpu),
            "nodes": self.nodes,
            "ranks": self.gpus,
            "nics": 1.0 if self.one_fabric else self.nic_gbps_per_gpu,
        }
        return [name for name, value in facts.items() if value is None]


@functools.cache
def gpu_class(name: str | None) -> str | None:
    """Return the models that are alike to a GPU, by its name; None if the name is of no model.

    GPUs with the same NVLinks are alike to NCCL. Cards without NVSwitches are alike only if the
    model is the same.

    >>> gpu_class("NVIDIA H100 80GB HBM3") == gpu_class("H200")
    True
    >>> gpu_class("NVIDIA H100 PCIe") == gpu_class("H200")
    False
    """
    words = [word for word in re.split(r"[^A-Z0-9]+", (name or "").upper()) if word]
    known = [word for word in words if _PRODUCT.fullmatch(word)]
    card = next((text for word, text in _CARDS.items() if word in words), None)
    if not known:
        product = " ".join(word for word in words if word not in _MAKERS)
        return product if re.search(r"\d", product) else None
    return f"{known[0]} {card}" if card else _SAME_LINKS.get(known[0], known[0])


def node_range(nodes: int) -> tuple[int, int]:
    """Return the numbers of nodes that are alike: of one and two only these, else half to
    double."""
    return (nodes, nodes) if nodes <= 2 else (max(3, -(-nodes // 2)), 2 * nodes)


def unlike(system: SystemShown, collective: Collective, curve: ReferenceCurve) -> list[str]:
    """Return the names of the rules that a curve breaks by what is known; none if it is alike."""
    other = SystemShown(
        gpu=curve.gpu, nodes=curve.nodes, gpus=curve.gpus, nic_gbps_per_gpu=curve.nic_gbps_per_gpu
    )
    low, high = (0, 1 << 31) if system.nodes is None else node_range(system.nodes)
    own_class, each = gpu_class(system.gpu), system.gpus_per_node
    broken = {
        "collective": collective is not curve.collective,
        "GPU": own_class is not None and own_class != gpu_class(curve.gpu),
        "GPUs a node": each is not None and each != other.gpus_per_node,
        "nodes": not low <= curve.nodes <= high or system.one_fabric != other.one_fabric,
        "NIC rate": not system.one_fabric and not _same_rate(system, other),
        "settings": system.limited and _has_default_only(system, curve),
    }
    return [name for name, is_broken in broken.items() if is_broken]


def _has_default_only(system: SystemShown, curve: ReferenceCurve) -> bool:
    """Return whether NVLS, or trees on two nodes, exceed the rings' bandwidth in a curve."""
    if curve.settings is not None and _LIMITED.search(curve.settings):
        return False
    return system.nodes == 2 or gpu_class(system.gpu) in _WITH_NVLS


def _same_rate(system: SystemShown, other: SystemShown) -> bool:
    own, theirs = system.nic_gbps_per_gpu, other.nic_gbps_per_gpu
    if own is None:
        return True
    return theirs is not None and abs(theirs - own) <= _RATE_TOLERANCE * own


def rule_text(system: SystemShown, limits: str) -> str:
    """Return what systems must share to be alike, as far as the system is known."""
    parts = []
    if gpu_class(system.gpu) is not None:
        parts.append(f"GPU {gpu_class(system.gpu)}")
    if system.gpus_per_node is not None:
        parts.append(f"{system.gpus_per_node:g} a node")
    if system.nodes is not None:
        low, high = node_range(system.nodes)
        nodes = "1 node" if high == 1 else f"{high} nodes" if low == high else ""
        parts.append(nodes or f"{low} to {high} nodes")
    if not system.one_fabric and system.nic_gbps_per_gpu is not None:
        parts.append(f"NICs of {system.nic_gbps_per_gpu:g} Gbit/s for each GPU")
    parts += [f"limited by {limits}"] if system.limited else []
    return ", ".join(parts)
