# SPDX-License-Identifier: Apache-2.0
"""Topo show: return a machine's topology as a graph with NCCL's paths, as NCCL sees it."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nccltune.model.topology import Topology
from nccltune.topology.files.load import load_topology
from nccltune.topology.flows.settings import check_name
from nccltune.topology.hardware.build import link_graph
from nccltune.topology.hardware.fill_in import filled, leaves_nvlink_out
from nccltune.topology.hardware.links import LinkGraph
from nccltune.topology.hardware.machine import this_machine
from nccltune.topology.nccl_model.paths import Paths, paths
from nccltune.topology.nccl_model.settings import parse_settings, parse_version, path_settings


class ShownTopology(NamedTuple):
    """The topology of a file, and the `whole` one, with what NCCL would detect; its graph."""

    topology: Topology
    whole: Topology
    graph: LinkGraph
    paths: Paths

    @property
    def leaves_nvlink_out(self) -> bool:
        """Return whether the file names no NVLink, so that NCCL detects NVLink itself."""
        return leaves_nvlink_out(self.topology)


def show_topology(
    path: Path | None = None, *, settings: Sequence[str] = (), nccl_version: str | None = None
) -> ShownTopology:
    """Return the topology of a file, a study, or this machine. Raises InputError.

    `settings` are NCCL settings (NAME=VALUE) that change paths.
    """
    version = parse_version(nccl_version) if nccl_version is not None else None
    chosen = parse_settings(settings)
    for name in chosen:
        check_name(name, others=True)
    topology = load_topology(path) if path is not None else this_machine()
    whole = filled(topology)
    graph = link_graph([whole], nccl_version=version)
    found = paths(graph, settings=path_settings(chosen), nccl_version=version)
    return ShownTopology(topology, whole, graph, found)
