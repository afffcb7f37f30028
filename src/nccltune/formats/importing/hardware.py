# SPDX-License-Identifier: Apache-2.0
"""Read a node's hardware file (topology XML, nvidia-smi matrix) among the files of an import."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from nccltune.formats.reading.context import Context
from nccltune.formats.reading.file_report import FileKind
from nccltune.formats.reading.runs import RunSamples
from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.formats.topology.nvidia_smi_matrix import looks_like_matrix, read_matrix, smi_topology
from nccltune.formats.topology.xml_tree import MAX_BYTES
from nccltune.formats.tuner_config.csv_rules import config_hash

XML_NAME, MATRIX_NAME = "topology.xml", "topo.txt"
_HOST_HASH = re.compile(rb"\s+host_hash=\"[^\"]*\"")


def read_hardware(file: BinaryIO, context: Context) -> Iterator[RunSamples]:
    """Check a topology file; yield no samples. Raises InputError, with the line, if it is invalid.

    `file` is `NCCL_TOPO_DUMP_FILE`'s XML or the output of `nvidia-smi topo -m`.
    """
    data = file.read(MAX_BYTES + 1)
    context.report.kind = FileKind.TOPOLOGY
    if is_matrix(data):
        smi_topology(read_matrix(data, context.name))
    else:
        read_topology(data, context.name)
    yield from ()


def is_matrix(data: bytes) -> bool:
    """Return whether `data` is the output of `nvidia-smi topo -m`."""
    return looks_like_matrix(data[:MAX_BYTES].decode("utf-8", errors="replace"))


def kept(data: bytes) -> tuple[str, bytes]:
    """Return the name under which a study keeps the file, and the content to keep.

    In XML, the attribute with the hash of the host name is removed. A matrix is not changed.
    """
    if is_matrix(data):
        return MATRIX_NAME, data
    return XML_NAME, _HOST_HASH.sub(b"", data)


def hardware_hash(data: bytes) -> str:
    """Return the hash of a node's hardware, behind the kind of file that it is of.

    The same machine has the same hash after a restart. Hashes of two kinds of files cannot be
    compared. Raises InputError if `data` is neither XML nor a matrix of nvidia-smi.
    """
    if is_matrix(data):
        matrix = read_matrix(data, "nvidia-smi topo -m")
        numa = [device.numa for device in matrix.devices]
        return f"nvidia-smi {config_hash(repr((numa, matrix.cells)).encode())}"
    read_topology(data, XML_NAME)
    return f"xml {config_hash(b' '.join(_HOST_HASH.sub(b'', data).split()))}"
