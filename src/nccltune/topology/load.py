# SPDX-License-Identifier: Apache-2.0
"""A file of any kind that tells of a node's hardware."""

import re
from pathlib import Path

from nccltune.formats.graph_xml import Graphs, read_graphs
from nccltune.formats.nvidia_smi_topo import looks_like_matrix, read_matrix, smi_topology
from nccltune.formats.topology_xml import read_topology
from nccltune.formats.xml_tree import MAX_BYTES, blank_comments
from nccltune.model.errors import InputError
from nccltune.model.study import TOPOLOGY_FILES
from nccltune.model.topology import Topology

_HEAD = 1 << 16
_HOW = "NCCL writes one: NCCL_TOPO_DUMP_FILE=topo.xml; or nvidia-smi topo -m > topo.txt"


def read_file(path: Path) -> bytes:
    """A file's bytes, and one more than the most that is read. Raises InputError."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), hint=_HOW) from None


def load(data: bytes, source: str) -> Topology | Graphs:
    """A topology (NCCL's, RCCL's or FlagCX's XML, the matrix of `nvidia-smi`) or NCCL's graphs.
    Raises InputError where it is neither."""
    head = data[:_HEAD].decode("utf-8", errors="replace")
    if looks_like_matrix(head):
        return smi_topology(read_matrix(data, source))
    if re.search(r"<graphs[\s>/]", blank_comments(head)):
        return read_graphs(data, source)
    return read_topology(data, source)


def load_topology(path: Path) -> Topology:
    """The topology in a file, or that of a study folder. Raises InputError."""
    if path.is_dir():
        for name in TOPOLOGY_FILES:
            if (path / name).is_file():
                return load_topology(path / name)
        *others, last = TOPOLOGY_FILES
        raise InputError(f"has no {', '.join(others)} or {last}", where=str(path), hint=_HOW)
    found = load(read_file(path), str(path))
    if isinstance(found, Graphs):
        raise InputError(
            "is a graph file: it has channels and no hardware", where=str(path), hint=_HOW
        )
    return found
