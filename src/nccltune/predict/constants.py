# SPDX-License-Identifier: Apache-2.0
"""The constants and rules of NCCL's cost model by version (`constants.toml` has the sources)."""

import functools
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from importlib import resources
from typing import Any

import msgspec

from nccltune.model.choice import Algorithm, Protocol
from nccltune.model.errors import InputError
from nccltune.topology.hardware.bandwidth import Version

OLDEST: Version = (2, 19, 0)
NEWEST: Version = (2, 32, 3)
"""The newest version whose model is known. 2.32.6 has a new one, which is not public."""

Row = tuple[float, float, float]
"""Values for LL, LL128 and Simple, or for 1, 2 and more nodes."""
_ZERO: Row = (0.0, 0.0, 0.0)


class Link(StrEnum):
    """The kind of link of one step, as NCCL's latencies tell them apart (`NCCL_HW_*`)."""

    NVLINK = "nvlink"
    PCI = "pci"
    NET = "net"


class Generation(StrEnum):
    """The GPU generation of a row of caps (`NCCL_*_COMPCAP_IDX`)."""

    VOLTA = "volta"
    AMPERE = "ampere"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"


class Constants(msgspec.Struct, frozen=True):
    """The constants of one version. Latencies are in us, bandwidths in GB/s."""

    base: Mapping[Algorithm, Row]
    nvlink: Mapping[Algorithm, Row]
    pci: Mapping[Algorithm, Row]
    net: Mapping[Algorithm, Row]
    ll_max: Mapping[Generation, Row]
    ring_ll128: Mapping[Generation, Row]
    tree_ll128: Mapping[Generation, Row]
    tree: Mapping[Generation, Row]
    nvls_tree: Mapping[Generation, Row] = {}
    nvls_efficiency: Mapping[Generation, Row] = {}

    def base_us(self, algorithm: Algorithm, protocol: Protocol) -> float:
        """Return the latency that a collective has once."""
        return self.base.get(algorithm, _ZERO)[protocol.nccl_id]

    def step_us(self, link: Link, algorithm: Algorithm, protocol: Protocol) -> float:
        """Return the latency of one step over a link."""
        rows = {Link.NVLINK: self.nvlink, Link.PCI: self.pci, Link.NET: self.net}[link]
        return rows.get(algorithm, _ZERO)[protocol.nccl_id]

    def generation(self, sm: int) -> Generation:
        """Return the row of a compute capability. Blackwell has its own since 2.25."""
        if sm >= 100 and Generation.BLACKWELL in self.tree:
            return Generation.BLACKWELL
        if sm >= 90:
            return Generation.HOPPER
        return Generation.AMPERE if sm >= 80 else Generation.VOLTA


class ModelRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of the cost model that differ by version (`graph/tuning.cc`, `enqueue.cc`)."""

    ring_ll_shares: tuple[float, float]
    """The share of a ring's bandwidth with LL: in general, and for all-gather, reduce-scatter and
    broadcast on one node."""
    lonely_ring_ll128: float
    """The share of a ring's bandwidth with LL128 if each node has one GPU."""
    all_inter_steps: bool
    """Up to 2.22 a ring all-reduce has two steps between nodes more."""
    lonely_as_tree: bool
    """Since 2.23 a node with one GPU has the network latency of a tree, up to 2.30 with any
    algorithm, since 2.31 with rings only."""
    halved_scatter: bool
    """Up to 2.22 the bandwidth of NVLS is scaled to the bus in all-gather, reduce-scatter, too."""
    collnet_scatter: bool
    """Since 2.20 CollNet direct has all-gather and reduce-scatter."""
    pat_share: float | None
    """The share of bandwidth that PAT gets. None: there is no PAT."""
    multi_rank_pat: bool
    """Since 2.31 PAT exists with several GPUs a node, but has to be chosen by hand."""
    inter_of_blackwell: bool
    """Since 2.31 the speed between nodes counts at two nodes, too, with Blackwell."""
    nvls_scatter_share: float | None
    """The share of the graph's bwInter that NVLS gets in all-gather and reduce-scatter (2.27)."""
    nvls_arity: int | None
    """Since 2.25 the most GPUs a node with NVLS in all-gather and reduce-scatter."""
    least_nvls_gpus: int
    """NVLS is off with fewer GPUs a node."""
    ll128_capabilities: frozenset[int] | None
    """The compute capabilities with LL128. None: all from 7.0 on."""
    mixed_ll128: bool
    """Since 2.30.3 GPUs of different compute capability from 9.0 on may use LL128."""
    nvls_tree_factors: bool
    """Since 2.29.2 the correction of trees applies to NVLSTree with Blackwell."""
    plateau_on_one_node: bool
    """Since 2.31 the plateau of rings also exists on one node with Blackwell."""
    small_as_64: bool
    """Up to 2.21 sizes below 64 bytes are corrected as 64 bytes; then they are not corrected."""
    last_of_equals: bool
    """Since 2.31 the last of equally fast choices is taken; before, the first."""
    threads_by_speed: bool
    """Up to 2.30 a slow ring has 256 threads with Simple."""
    tree_threads: bool
    """Since 2.22 trees always have 640 threads."""
    capped_nvls: bool
    """Since 2.28 NVLS on several nodes has at most the channels of rings."""
    planned: bool
    """Since 2.22 the traffic decides how many of a call's channels are launched."""
    least_traffic: int
    """The least bytes of traffic for each channel."""
    ll_traffic: bool
    """Since 2.26 LL counts as four times the traffic."""
    least_by_call: bool
    """Since 2.29 only the whole call is raised to the least traffic, not each channel."""


@functools.cache
def constants_of(version: Version) -> Constants:
    """Return the constants of a version. Raises InputError for a version before 2.19."""
    if version < OLDEST:
        raise InputError(
            f"NCCL {version[0]}.{version[1]} is older than the oldest known model, that of 2.19",
            hint="name a version from 2.19 on",
        )
    merged: dict[str, dict[str, list[float]]] = {}
    for one in _sets():
        if one["since"] <= version:
            for name, rows in one.items():
                if name != "since":
                    merged.setdefault(name, {}).update(rows)
    return msgspec.convert(merged, Constants)


@functools.cache
def _sets() -> list[dict[str, Any]]:
    text = resources.files("nccltune.predict").joinpath("constants.toml").read_text("utf-8")
    sets: list[dict[str, Any]] = tomllib.loads(text)["set"]
    for one in sets:
        one["since"] = tuple(int(part) for part in one["since"].split("."))
    return sets


@functools.cache
def rules_of(version: Version) -> ModelRules:
    """Return the rules of a version."""
    ll128 = {70, 80, 90} | ({100, 120} if version >= (2, 25) else set())
    return ModelRules(
        ring_ll_shares=(0.25, 1 / 3) if version < (2, 21) else (0.5, 0.5),
        lonely_ring_ll128=0.7 if version < (2, 23) else 0.92,
        all_inter_steps=version < (2, 23),
        lonely_as_tree=version >= (2, 23),
        halved_scatter=version < (2, 23),
        collnet_scatter=version >= (2, 20),
        pat_share=None if version < (2, 23) else 0.85 if version < (2, 24) else 0.75,
        multi_rank_pat=version >= (2, 31),
        inter_of_blackwell=version >= (2, 31),
        nvls_scatter_share=0.9 if (2, 27) <= version < (2, 28) else None,
        nvls_arity=None if version < (2, 25) else 32,
        least_nvls_gpus=3 if version < (2, 29) else 2,
        ll128_capabilities=frozenset(ll128) if version < (2, 27) else None,
        mixed_ll128=version >= (2, 30, 3),
        nvls_tree_factors=version >= (2, 29, 2),
        plateau_on_one_node=version >= (2, 31),
        small_as_64=version < (2, 22),
        last_of_equals=version >= (2, 31),
        threads_by_speed=version < (2, 31),
        tree_threads=version >= (2, 22),
        capped_nvls=version >= (2, 28),
        planned=version >= (2, 22),
        least_traffic=512 if version < (2, 23) else 16 << 10 if version < (2, 29) else 32 << 10,
        ll_traffic=version >= (2, 23),
        least_by_call=version >= (2, 29),
    )
