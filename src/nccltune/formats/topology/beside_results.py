# SPDX-License-Identifier: Apache-2.0
"""Find the one topology in a text that has results, such as a post."""

import re
from itertools import islice

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.formats.topology.nvidia_smi_matrix import read_matrix, smi_topology
from nccltune.formats.topology.xml_tree import MAX_BYTES, dumps_in
from nccltune.model.errors import InputError

_MATRIX = re.compile(rb"^[ \t>]*GPU0[ \t][^\n]*\n(?:[^\n]*\n)?[ \t>]*GPU0[ \t]+X\b", re.M)
_PORTS = re.compile(
    rb"^[ \t>]*(?:(?:CA|Infiniband device) '|State:|Rate:)[^\n]{0,80}$", re.M | re.IGNORECASE
)
_AFTER = re.compile(rb"^(?:[ \t>]*(?:```|#|\$)|[^\n]*\bNCCL )", re.M)


def topology_beside_results(data: bytes) -> bytes | None:
    """Return the XML or the matrix of `nvidia-smi topo -m` in a text, with the NICs' rates.

    Return None if the text has none that can be read, or several: of two machines it is not known
    which one was measured.
    """
    if len(data) > MAX_BYTES:
        return None
    found = [data[start:end] for start, end in dumps_in(data) if b"<system" in data[start:end]]
    matrices = list(islice(_MATRIX.finditer(data), 2))
    if len(found) + len(matrices) != 1:
        return None
    try:
        if found:
            read_topology(found[0], "")
            return found[0]
        end = _AFTER.search(data, matrices[0].end())
        matrix = data[matrices[0].start() : end.start() if end else len(data)]
        smi_topology(read_matrix(matrix, ""))
    except InputError:
        return None
    return b"\n".join([matrix, *(one[0] for one in _PORTS.finditer(data, matrices[0].end()))])
