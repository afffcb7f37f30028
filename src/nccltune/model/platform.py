# SPDX-License-Identifier: Apache-2.0
"""A platform: the machine on which the measurements were made, its software and settings."""

import msgspec

from nccltune.model.sample import SCHEMA_VERSION


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """The machine on which the measurements were made. None or an empty value means unknown.

    `settings` holds the `NCCL_*` variables that were set. `line_rate_gb_per_s` is the highest bus
    bandwidth that the links can carry. `emulated_nodes` states that one host acted as several
    nodes, through different values of `NCCL_HOSTID`. `ranks_per_gpu` is the number of ranks that
    shared each GPU; `mps` states that they shared it through NVIDIA's MPS daemon. `replay` names
    the recording from which the timings were drawn. `nvlink_domains` is into how many domains
    NVLink joins the run's nodes (MNNVL: one fabric and clique each), 0 if it joins none.
    `topology_hash` is the hash of a node's hardware, behind the source that it is of.
    """

    schema_version: int = SCHEMA_VERSION
    name: str
    gpu: str | None = None
    gpus: int | None = None
    link: str | None = None
    network: str | None = None
    nodes: int | None = None
    nvlink_domains: int | None = None
    emulated_nodes: bool = False
    ranks_per_gpu: int = 1
    mps: bool = False
    nccl_version: str | None = None
    driver_version: str | None = None
    topology_hash: str | None = None
    settings: dict[str, str] = {}
    line_rate_gb_per_s: float | None = None
    recorded_at: str | None = None
    replay: str | None = None
    notes: list[str] = []

    @property
    def stand_in(self) -> str | None:
        """Return how it differs from real nodes: `in a replay of h200x4, with 4 emulated nodes`."""
        parts = [f"in a replay of {self.replay}"] if self.replay else []
        parts += [f"with {self.nodes} emulated nodes"] if self.emulated_nodes else []
        many = self.ranks_per_gpu
        parts += [f"with {many} ranks on each GPU"] if many > 1 else []
        return ", ".join(parts) or None

    @property
    def title(self) -> str:
        """Return the platform in one line: GPUs, link, NCCL, network."""
        parts = []
        if self.gpu:
            parts.append(f"{self.gpus} x {self.gpu}" if self.gpus else self.gpu)
        if self.ranks_per_gpu > 1:
            where = "it" if self.gpus == 1 else "each"
            daemon = "MPS" if self.mps else "without MPS"
            parts.append(f"{self.ranks_per_gpu} ranks on {where}, {daemon}")
        if self.link:
            parts.append(self.link)
        if self.nodes:
            noun = "node" if self.nodes == 1 else "nodes"
            parts.append(f"{self.nodes} {noun}" + (" (emulated)" if self.emulated_nodes else ""))
        if self.nccl_version:
            parts.append(f"{'RCCL' if 'AMD' in (self.gpu or '') else 'NCCL'} {self.nccl_version}")
        if self.network:
            parts.append(f"net {self.network}")
        return " · ".join(parts) or self.name
