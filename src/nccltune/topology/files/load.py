# SPDX-License-Identifier: Apache-2.0
"""Read a topology or graph file of any supported format."""

import re
from pathlib import Path

from nccltune.formats.topology.graph_xml import Graphs, read_graphs
from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.formats.topology.nvidia_smi_matrix import looks_like_matrix, read_matrix, smi_topology
from nccltune.formats.topology.xml_tree import MAX_BYTES, blank_comments, cut_out, dumps_in
from nccltune.model.errors import InputError
from nccltune.model.topology import Topology
from nccltune.study.files import TOPOLOGY_FILES
from nccltune.topology.hardware.classify import with_named_gpus

_HEAD = 1 << 16
_HOW = "NCCL writes one: NCCL_TOPO_DUMP_FILE=topo.xml; or nvidia-smi topo -m > topo.txt"


def read_file(path: Path) -> bytes:
    """Return the content of a file, cut one byte after `MAX_BYTES`, which shows. Raises
    InputError."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), hint=_HOW) from None


def load(data: bytes, source: str) -> Topology | Graphs:
    """Return the topology (XML, or `nvidia-smi topo -m`) or NCCL's graphs; else InputError."""
    head = data[:_HEAD].decode("utf-8", errors="replace")
    if "Link Type between two GPUs" in head or "Hops between two GPUs" in head:
        raise InputError(
            "is rocm-smi's, which shows no PCIe tree and no speeds",
            where=source,
            hint="RCCL writes the whole machine: NCCL_TOPO_DUMP_FILE=topo.xml",
        )
    is_xml = head.lstrip("\ufeff \t\r\n").startswith("<")
    if looks_like_matrix(head if is_xml else data.decode("utf-8", errors="replace")):
        matrix = read_matrix(data, source)
        return with_named_gpus(smi_topology(matrix), matrix.gpu)
    if "<" not in head and not re.search(r"[\x00-\x08\x0e-\x1a\ufffd]", head):
        what = "is neither XML nor the matrix of nvidia-smi topo -m"
        raise InputError("is empty" if not head.strip() else what, where=source, hint=_HOW)
    if head.lstrip("\ufeff \t\r\n")[:1] not in ("<", "") and len(data) <= MAX_BYTES:
        if (count := len(dumps_in(data))) > 1:
            hint = "give each as a file of its own"
            raise InputError(f"has {count} topologies or graphs", where=source, hint=hint)
        data = cut_out(data)
    if re.search(r"<graphs[\s>/]", blank_comments(head)):
        return read_graphs(data, source)
    return read_topology(data, source)


def load_topology(path: Path) -> Topology:
    """Return the topology in a file or in a study folder.

    Raises InputError if there is none or it cannot be read.

    >>> from nccltune.examples import example
    >>> topology = load_topology(example("h200x4-1-node"))
    >>> topology.dialect.value
    'nccl'
    """
    if path.is_dir():
        for name in TOPOLOGY_FILES:
            if (path / name).is_file():
                return load_topology(path / name)
        *others, last = TOPOLOGY_FILES
        raise InputError(f"has no {', '.join(others)} or {last}", where=str(path), hint=_HOW)
    found = load(read_file(path), str(path))
    if isinstance(found, Graphs):
        raise InputError(
            "is a graph file: it has channels but no hardware", where=str(path), hint=_HOW
        )
    return found
