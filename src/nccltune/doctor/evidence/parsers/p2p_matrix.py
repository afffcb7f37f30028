# SPDX-License-Identifier: Apache-2.0
"""Parse `nvidia-smi topo -p2p r|w|n|a|p`: the driver's status of peer access between two GPUs."""

import re

from nccltune.doctor.evidence.parsers.text import Parsed, lines_of
from nccltune.doctor.facts.gpu import PeerStatus

STATUSES = frozenset({"OK", "NS", "CNS", "GNS", "TNS", "DR", "U"})
_NAME = re.compile(r"GPU(\d{1,4})")
_LEGEND = re.compile(r"^Legend:")


def parse_p2p_matrix(text: str) -> Parsed[PeerStatus]:
    """Parse one matrix. The header gives the order of the columns.

    The text does not state the kind of access (read, write, ...), so the records have no `kind`.
    """
    columns: list[int] = []
    pairs: list[PeerStatus] = []
    unread = 0
    for _, line in lines_of(text):
        if _LEGEND.match(line):
            break
        words = line.split()
        names = [_NAME.fullmatch(word) for word in words]
        if all(names):
            columns = [int(name[1]) for name in names if name]
            continue
        row = names[0]
        cells = words[1:]
        if row is None or not columns or len(cells) != len(columns):
            unread += 1
            continue
        a = int(row[1])
        for b, cell in zip(columns, cells, strict=True):
            if cell in STATUSES:
                pairs.append(PeerStatus(a=a, b=b, status=cell))
            elif cell != "X":
                unread += 1
    return Parsed(pairs, unread)
