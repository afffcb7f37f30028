# SPDX-License-Identifier: Apache-2.0
"""What a run itself shows that can make it slow."""

import re
from collections.abc import Iterator, Mapping, Sequence

from nccltune.formats.reading.platform_facts import PlatformFacts
from nccltune.model.numbers import counted
from nccltune.model.sizes import format_bytes

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
_LIMITS = (
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MAX_CTAS",
    "NCCL_IB_HCA",
)
_BETWEEN_NODES = frozenset(
    {"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_IB_HCA"}
    | {"NCCL_PXN_DISABLE"}
)


def causes(
    facts: PlatformFacts,
    *,
    nodes: int | None,
    gpus: int,
    largest: int,
    label: str,
    doubts: Sequence[str],
    left_out: Mapping[str, int],
) -> list[str]:
    """Return sentences on what can make the run slow; no guesses, only what it shows.

    `label` is the choice that was measured, `largest` the largest size. `doubts` are remarks of the
    reader on the file, `left_out` counts timings without a valid result.
    """
    found: list[str] = []
    if nodes != 1:
        found += _network(facts, gpus if nodes is None else -(-gpus // nodes))
    for name, values in _OFF.items():
        value = facts.settings.get(name)
        if value in values and not (nodes == 1 and name in _BETWEEN_NODES):
            found.append(f"{name}={value} is set: it switches a fast path off")
    for name in _LIMITS:
        if name in facts.settings and not (nodes == 1 and name in _BETWEEN_NODES):
            found.append(f"{name}={facts.settings[name]} is set: it limits what NCCL may use")
    if label != "default":
        found.append(f"{label} was forced; the published figures are of NCCL's default")
    found += [f"measured with {condition}" for condition in facts.conditions or ()]
    found += [
        f"{counted(number, 'timing')} left out: {why}"
        for why, number in left_out.items()
        if why == "wrong results"
    ]
    if largest < LARGE_BYTES:
        found.append(
            f"the largest size is {format_bytes(largest)}: bandwidth is still rising there on most"
            " systems; measure up to 8 GiB"
        )
    return list(dict.fromkeys([*found, *doubts]))


def _network(facts: PlatformFacts, gpus_per_node: int) -> Iterator[str]:
    if (facts.network or "").lower() == "socket":
        yield "the log shows NET/Socket: TCP between the nodes, no RDMA"
        return
    counts = {len(_names(text)) for text in facts.nics}
    if counts and max(counts) < gpus_per_node:
        yield (
            f"NCCL found {counted(max(counts), 'NIC')} on a node with "
            f"{counted(gpus_per_node, 'GPU')}"
        )


def _names(text: str) -> list[str]:
    """Return the NIC names of one logged list, `IB mlx5_0 mlx5_1`."""
    return re.split(r"\s+", text.strip())[1:]
