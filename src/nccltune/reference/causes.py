# SPDX-License-Identifier: Apache-2.0
"""What a run itself shows that can make it slow."""

import re
from collections.abc import Iterator

from nccltune.formats.reading.platform_facts import PlatformFacts
from nccltune.model.numbers import counted

LARGE_BYTES = 256 << 20
"""Bus bandwidth below this size is no peak on most systems."""
_OFF = {
    "NCCL_IB_DISABLE": ("1",),
    "NCCL_P2P_DISABLE": ("1",),
    "NCCL_SHM_DISABLE": ("1",),
    "NCCL_NET": ("Socket",),
    "NCCL_NET_GDR_LEVEL": ("0", "LOC"),
    "NCCL_P2P_LEVEL": ("0", "LOC"),
    "NCCL_NVLS_ENABLE": ("0",),
    "NCCL_PXN_DISABLE": ("1",),
    "NCCL_NET_GDR_READ": ("0",),
}
"""Settings that switch a fast path off, with the values that do it."""
_DEVICE = re.compile(r"[a-z]\w*_\d+(?::\d+)?")
"""The name of one device. A shorter name stands for all devices that begin with it."""
_LIMITS = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS")
_BETWEEN_NODES = frozenset(
    {"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_PXN_DISABLE"}
)
_WITHIN_NODES = frozenset({"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE"})


def limiting_settings(facts: PlatformFacts, label: str) -> str:
    """Return the settings, or the choice, that keep NCCL from its default for large sizes."""
    limits = {name: facts.settings.get(name, "") for name in ("NCCL_ALGO", "NCCL_NVLS_ENABLE")}
    if label != "default":
        limits["NCCL_ALGO"] = label.removeprefix("NCCL_ALGO=").partition("/")[0]
    if not limits["NCCL_ALGO"] or "nvls" in limits["NCCL_ALGO"].lower():
        del limits["NCCL_ALGO"]
    if limits["NCCL_NVLS_ENABLE"] != "0":
        del limits["NCCL_NVLS_ENABLE"]
    return " ".join(f"{name}={value}" for name, value in limits.items())


def causes(facts: PlatformFacts, *, nodes: int | None, gpus: int, label: str) -> list[str]:
    """Return sentences on what can make the run slow; no guesses, only what it shows."""
    found: list[str] = []
    if nodes != 1:
        found += network_causes(facts, gpus if nodes is None else -(-gpus // nodes))
    for name, values in _OFF.items():
        value = facts.settings.get(name)
        unused = _BETWEEN_NODES if nodes == 1 else _WITHIN_NODES if nodes == gpus else ()
        if value in values and name not in unused:
            found.append(f"{name}={value} is set: it switches a fast path off")
    for name in _LIMITS:
        if name in facts.settings:
            what = f"{name}={facts.settings[name]} is set"
            if facts.settings_by == "heading":
                what = f"the heading names {facts.settings[name]}"
            found.append(f"{what}: it limits what NCCL may use")
    if label != "default":
        found.append(f"{label} was forced; the published figures are of NCCL's default")
    found += [f"measured with {condition}" for condition in facts.conditions or ()]
    return list(dict.fromkeys(found))


def network_causes(facts: PlatformFacts, gpus_per_node: int) -> Iterator[str]:
    """Yield what makes the network between nodes slow: TCP, or fewer NICs than GPUs."""
    if (facts.network or "").lower() == "socket":
        yield "the network is NET/Socket: TCP between the nodes, no RDMA"
        return
    # A logged list is `IB mlx5_0 mlx5_1`.
    found = max((len(text.split()) - 1 for text in facts.nics), default=0)
    listed = facts.settings.get("NCCL_IB_HCA", "")
    names = [name for name in listed.removeprefix("=").split(",") if name]
    if 0 < found < gpus_per_node:
        yield (f"NCCL found {counted(found, 'NIC')} on a node with {counted(gpus_per_node, 'GPU')}")
    elif not found and 0 < len(names) < gpus_per_node and all(map(_DEVICE.fullmatch, names)):
        yield (
            f"NCCL_IB_HCA={listed} is set: it names {counted(len(names), 'NIC')} for "
            f"{counted(gpus_per_node, 'GPU')} of a node"
        )
