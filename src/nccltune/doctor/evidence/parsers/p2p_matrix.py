# SPDX-License-Identifier: Apache-2.0
"""Parse `nvidia-smi topo -p2p r|w|n|a|p`: the driver's status of peer access between two GPUs."""

import re

from nccltune.doctor.evidence.parsers.text import Parsed, lines_of
from nccltune.doctor.facts.gpu import PeerStatus

STATUSES = frozenset({"OK", "NS", "CNS", "GNS", "TNS", "DR", "U"})
_NAME = re.compile(r"GPU(\d{1,4})")
_LEGEND = re.compile(r"^\s*Legend:")
_ASKED = re.compile(r"\btopo +-p2p +([rwnap])")
KINDS = {"r": "read", "w": "write", "n": "nvlink", "a": "atomics", "p": "pcie"}


def parse_p2p_matrix(text: str) -> Parsed[PeerStatus]:
    """Parse matrices. The header of each gives the order of its columns.

    A matrix does not state its kind of access (read, write, ...). If the command is above it, that
    does; else its records have no `kind`.
    """
    columns: list[int] = []
    pairs: list[PeerStatus] = []
    unread = 0
    kind = None
    in_legend = False
    for _, line in lines_of(text):
        if (asked := _ASKED.search(line)) is not None:
            kind, columns = KINDS[asked[1]], []
            continue
        in_legend = in_legend or _LEGEND.match(line) is not None
        words = line.split()
        names = [_NAME.fullmatch(word) for word in words]
        if all(names):
            columns = [int(name[1]) for name in names if name]
            in_legend = in_legend and not columns
            continue
        if in_legend:
            continue
        row = names[0]
        cells = words[1:]
        if row is None or not columns or len(cells) != len(columns):
            unread += 1
            continue
        a = int(row[1])
        for b, cell in zip(columns, cells, strict=True):
            if cell in STATUSES:
                pairs.append(PeerStatus(a=a, b=b, kind=kind, status=cell))
            elif cell != "X":
                unread += 1
    return Parsed(pairs, unread)
