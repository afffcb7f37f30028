# SPDX-License-Identifier: Apache-2.0
"""Topo show: a machine as NCCL sees it, as a graph with NCCL's paths."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nccltune.model.errors import InputError
from nccltune.model.topology import Topology
from nccltune.topology.files.load import load_topology
from nccltune.topology.files.picture import svg
from nccltune.topology.hardware.build import link_graph
from nccltune.topology.hardware.fill_in import filled, leaves_nvlink_out, nvlink_is_unknown
from nccltune.topology.hardware.links import LinkGraph
from nccltune.topology.hardware.machine import this_machine
from nccltune.topology.nccl_model.paths import Paths, paths
from nccltune.topology.nccl_model.settings import parse_settings, parse_version, path_settings


class ShownTopology(NamedTuple):
    """A topology as its file has it, and `whole`, with what the file leaves to detection; the graph
    and the paths are those of `whole`."""

    topology: Topology
    whole: Topology
    graph: LinkGraph
    paths: Paths

    @property
    def leaves_nvlink_out(self) -> bool:
        """Whether the file leaves NVLink to detection."""
        return leaves_nvlink_out(self.topology)


def show_topology(
    path: Path | None = None,
    *,
    settings: Sequence[str] = (),
    nccl_version: str | None = None,
    picture: Path | None = None,
) -> ShownTopology:
    """Return the topology of a file, a study, or this machine; write a `picture` (SVG) of it.

    `settings` are NAME=VALUE of NCCL that change paths. Raises InputError for what cannot be read,
    no setting or no version, and for a picture that cannot be written.
    """
    version = parse_version(nccl_version) if nccl_version is not None else None
    chosen = parse_settings(settings)
    topology = load_topology(path) if path is not None else this_machine()
    whole = filled(topology)
    graph = link_graph([whole], nccl_version=version)
    found = paths(graph, settings=path_settings(chosen), nccl_version=version)
    if picture is not None:
        _write_picture(picture, whole, graph)
    return ShownTopology(topology, whole, graph, found)


def _write_picture(path: Path, topology: Topology, graph: LinkGraph) -> None:
    title = topology.name or topology.source
    drawn = svg(graph, title=title, detected=nvlink_is_unknown(topology))
    try:
        path.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", where=str(path), hint="name another file"
        ) from None
