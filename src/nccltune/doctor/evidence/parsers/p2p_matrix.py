# SPDX-License-Identifier: Apache-2.0
"""Parse `nvidia-smi topo -p2p r|w|n|a|p`: the driver's status of peer access between two GPUs."""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of

STATUSES = frozenset({"OK", "NS", "CNS", "GNS", "TNS", "DR", "U"})
_NAME = re.compile(r"GPU(\d{1,4})")
_LEGEND = re.compile(r"^Legend:")


class GpuPair(NamedTuple):
    """Status of peer access from GPU `a` to GPU `b`."""

    a: int
    b: int
    status: str
    line: int


class Matrix(NamedTuple):
    """All pairs of a matrix. `unread` counts unknown lines and cells."""

    pairs: tuple[GpuPair, ...]
    unread: int


def parse_p2p_matrix(text: str) -> Matrix:
    """Parse one matrix. The columns are those of the header, in its order."""
    columns: list[int] = []
    pairs: list[GpuPair] = []
    unread = 0
    for number, line in lines_of(text):
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
                pairs.append(GpuPair(a, b, cell, number))
            elif cell != "X":
                unread += 1
    return Matrix(tuple(pairs), unread)
