# SPDX-License-Identifier: Apache-2.0
"""Topo show: return a machine's topology as a graph with NCCL's paths, as NCCL sees it."""

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
    """A topology, its link graph and NCCL's paths.

    `topology` has the content of the file. `whole` also has the GPUs and NVLinks that NCCL would
    detect, as far as they can be assumed. The graph and the paths are those of `whole`.
    """

    topology: Topology
    whole: Topology
    graph: LinkGraph
    paths: Paths

    @property
    def leaves_nvlink_out(self) -> bool:
        """Return whether the file names no NVLink, so that NCCL detects NVLink itself."""
        return leaves_nvlink_out(self.topology)


def show_topology(
    path: Path | None = None,
    *,
    settings: Sequence[str] = (),
    nccl_version: str | None = None,
    picture: Path | None = None,
) -> ShownTopology:
    """Return the topology of a file or a study, or of this machine if `path` is None.

    `settings` are NCCL settings (NAME=VALUE) that change paths. An SVG file is written to `picture`
    if given. Raises InputError for an unreadable topology, an invalid setting or version, and if
    the picture cannot be written.
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
