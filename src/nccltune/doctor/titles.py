# SPDX-License-Identifier: Apache-2.0
"""Describe a node in one line: its GPUs, driver, NCCL, network and cloud, as far as known."""

from collections import Counter

from nccltune.doctor.facts import Facts
from nccltune.doctor.facts.cloud import CLOUD_MACHINE_TYPE, CLOUD_PROVIDER
from nccltune.doctor.facts.gpu import GPU_DRIVER, GPUS, NodeGpu
from nccltune.doctor.facts.log import LOG_RCCL
from nccltune.doctor.facts.network import HCAS, RdmaPortState
from nccltune.doctor.facts.node import NODE_VIRTUAL
from nccltune.doctor.facts.settings import NCCL_VERSION


def node_title(facts: Facts) -> str:
    """Return `8 x NVIDIA H200 · driver 570.86 · NCCL 2.28.9 · 8 x 400 Gb/s InfiniBand`."""
    parts = [_gpus(facts.value(GPUS))]
    library = "RCCL" if facts.value(LOG_RCCL) else "NCCL"
    for lead, fact in (("driver", GPU_DRIVER), (library, NCCL_VERSION)):
        version = facts.value(fact)
        if version:
            parts.append(f"{lead} {version}")
    parts += [_network(facts.value(HCAS)), _where(facts)]
    return " · ".join(part for part in parts if part)


def _gpus(gpus: list[NodeGpu] | None) -> str:
    if gpus is None:
        return ""
    if not gpus:
        return "no GPU"
    names = Counter(gpu.name or "GPU" for gpu in gpus)
    return " + ".join(f"{count} x {name}" for name, count in names.items())


def _network(hcas: list[RdmaPortState] | None) -> str:
    if not hcas:
        return ""
    kinds = Counter(
        (hca.rate_gbit_per_s, hca.link_layer or "RDMA") for hca in hcas if hca.state != "DOWN"
    )
    return " + ".join(
        f"{count} x {rate:g} Gb/s {layer}" if rate else f"{count} x {layer}"
        for (rate, layer), count in kinds.items()
    )


def _where(facts: Facts) -> str:
    provider = facts.value(CLOUD_PROVIDER)
    if provider and provider != "none":
        return " ".join(part for part in (provider, facts.value(CLOUD_MACHINE_TYPE)) if part)
    return "virtual machine" if facts.value(NODE_VIRTUAL) else ""
