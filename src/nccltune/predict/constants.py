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


class ModelRules:
    """The rules of the cost model that differ by version (`graph/tuning.cc`, `enqueue.cc`)."""

    def __init__(self, version: Version) -> None:  # noqa: PLR0915 (one line a rule)
        self.ring_ll_shares = (0.25, 1 / 3) if version < (2, 21) else (0.5, 0.5)
        """The share of a ring's bandwidth with LL: in general; for all-gather, reduce-scatter and
        broadcast on one node."""
        self.lonely_ring_ll128 = 0.7 if version < (2, 23) else 0.92
        """The share of a ring's bandwidth with LL128 if each node has one GPU."""
        self.all_inter_steps = version < (2, 23)
        """A ring all-reduce has two steps between nodes more."""
        self.lonely_as_tree = version >= (2, 23)
        """A node with one GPU has a tree's network latency, since 2.31 with rings only."""
        self.halved_scatter = version < (2, 23)
        """The bandwidth of NVLS is scaled to the bus in all-gather and reduce-scatter, too."""
        self.collnet_scatter = version >= (2, 20)
        """CollNet direct has all-gather and reduce-scatter."""
        self.pat_share = None if version < (2, 23) else 0.85 if version < (2, 24) else 0.75
        """The share of bandwidth that PAT gets. None: there is no PAT."""
        self.multi_rank_pat = version >= (2, 31)
        """PAT exists with several GPUs a node, but has to be chosen by hand."""
        self.inter_of_blackwell = version >= (2, 31)
        """The speed between nodes counts at two nodes, too, with Blackwell."""
        self.nvls_scatter_share = 0.9 if (2, 27) <= version < (2, 28) else None
        """The share of the graph's bwInter that NVLS gets in all-gather and reduce-scatter."""
        self.nvls_arity = None if version < (2, 25) else 32
        """The most GPUs a node with NVLS in all-gather and reduce-scatter."""
        self.least_nvls_gpus = 3 if version < (2, 29) else 2
        """NVLS is off with fewer GPUs a node."""
        ll128 = frozenset({70, 80, 90} | ({100, 120} if version >= (2, 25) else set()))
        self.ll128_capabilities = ll128 if version < (2, 27) else None
        """The compute capabilities with LL128. None: all from 7.0 on."""
        self.mixed_ll128 = version >= (2, 30, 3)
        """GPUs of different compute capability from 9.0 on may use LL128."""
        self.nvls_tree_factors = version >= (2, 29, 2)
        """The correction of trees applies to NVLSTree with Blackwell."""
        self.plateau_on_one_node = version >= (2, 31)
        """The plateau of rings also exists on one node with Blackwell."""
        self.small_as_64 = version < (2, 22)
        """Sizes below 64 bytes are corrected as 64 bytes; since 2.22 they are not corrected."""
        self.last_of_equals = version >= (2, 31)
        """The last of equally fast choices is taken; before, the first."""
        self.threads_by_speed = version < (2, 31)
        """A slow ring has 256 threads with Simple."""
        self.tree_threads = version >= (2, 22)
        """Trees always have 640 threads."""
        self.capped_nvls = version >= (2, 28)
        """NVLS on several nodes has at most the channels of rings."""
        self.planned = version >= (2, 22)
        """The traffic decides how many of a call's channels are launched."""
        self.least_traffic = (
            512 if version < (2, 23) else 16 << 10 if version < (2, 29) else 32 << 10
        )
        """The least bytes of traffic for each channel."""
        self.ll_traffic = version >= (2, 23)
        """LL counts as four times the traffic."""
        self.least_by_call = version >= (2, 29)
        """Only the whole call is raised to the least traffic, not each channel."""


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
    return ModelRules(version)
