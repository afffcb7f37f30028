# SPDX-License-Identifier: Apache-2.0
"""A node in one line: its GPUs, driver, NCCL, network and cloud, as far as they are known."""

from collections import Counter
from typing import Any

from nccltune.doctor.facts import Facts


def node_title(facts: Facts) -> str:
    """`8 x NVIDIA H200 · driver 570.86 · NCCL 2.28.9 · 8 x 400 Gb/s InfiniBand`."""
    parts = [_gpus(facts.value("gpus"))]
    for lead, name in (("driver", "gpu.driver"), ("NCCL", "nccl.version")):
        if facts.value(name):
            parts.append(f"{lead} {facts.value(name)}")
    parts += [_network(facts.value("hcas")), _where(facts)]
    return " · ".join(part for part in parts if part)


def _gpus(gpus: Any) -> str:
    if gpus is None:
        return ""
    if not gpus:
        return "no GPU"
    names = Counter(gpu.get("name") or "GPU" for gpu in gpus)
    return " + ".join(f"{count} x {name}" for name, count in names.items())


def _network(hcas: Any) -> str:
    if not hcas:
        return ""
    kinds = Counter(
        (hca.get("rate_gbit_per_s"), hca.get("link_layer") or "RDMA")
        for hca in hcas
        if hca.get("state") != "DOWN"
    )
    return " + ".join(
        f"{count} x {rate:g} Gb/s {layer}" if rate else f"{count} x {layer}"
        for (rate, layer), count in kinds.items()
    )


def _where(facts: Facts) -> str:
    provider = facts.value("cloud.provider")
    if provider and provider != "none":
        return " ".join(part for part in (provider, facts.value("cloud.machine_type")) if part)
    return "virtual machine" if facts.value("node.virtual") else ""
