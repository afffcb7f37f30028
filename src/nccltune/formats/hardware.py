# SPDX-License-Identifier: Apache-2.0
"""A node's hardware among the files of an import: checked, and kept as it is."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from nccltune.formats.context import Context
from nccltune.formats.nvidia_smi_topo import looks_like_matrix, read_matrix, smi_topology
from nccltune.formats.reading import FileKind
from nccltune.formats.runs import Batch
from nccltune.formats.topology_xml import read_topology
from nccltune.formats.xml_tree import MAX_BYTES

XML_NAME, MATRIX_NAME = "topology.xml", "topo.txt"
_HOST_HASH = re.compile(rb"\s+host_hash=\"[^\"]*\"")


def read_hardware(file: BinaryIO, context: Context) -> Iterator[Batch]:
    """Give no samples; raises InputError, with the line, where it is no topology."""
    data = file.read(MAX_BYTES + 1)
    context.report.kind = FileKind.TOPOLOGY
    if is_matrix(data):
        smi_topology(read_matrix(data, context.name))
    else:
        read_topology(data, context.name)
    yield from ()


def is_matrix(data: bytes) -> bool:
    """Whether it is what `nvidia-smi topo -m` prints."""
    return looks_like_matrix(data[:MAX_BYTES].decode("utf-8", errors="replace"))


def kept(data: bytes) -> tuple[str, bytes]:
    """Its name in a study, and its content without the hash of a host's name."""
    if is_matrix(data):
        return MATRIX_NAME, data
    return XML_NAME, _HOST_HASH.sub(b"", data)
