# SPDX-License-Identifier: Apache-2.0
"""Parse nvbandwidth (0.2 to 0.8): copies between host and each GPU, and between GPUs."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of, real
from nccltune.doctor.facts.gpu import GpuCopy

_RUNNING = re.compile(r"^Running (?P<test>\w+)\.")
_ROW = re.compile(r"^\s*(?P<row>\d+)(?P<cells>(?:\s+(?:N/A|\d+(?:\.\d+)?))+)\s*$")
_COLUMNS = re.compile(r"^\s*\d+(?:\s+\d+)*\s*$")
_TESTS = {
    "host_to_device_memcpy_ce": "h2d",
    "device_to_host_memcpy_ce": "d2h",
    "host_to_device_memcpy_sm": "h2d_sm",
    "device_to_host_memcpy_sm": "d2h_sm",
}
_PEER_TESTS = {
    "device_to_device_memcpy_read_ce": "read",
    "device_to_device_memcpy_write_ce": "write",
}
_MOST_PAIRS = 4096


class Copies(NamedTuple):
    """Rates in GB/s by GPU: host to device (`h2d`) and device to host (`d2h`).

    Rates of copies by the copy engine are preferred to those of copies by SMs. `peers` are copies
    between GPUs by the copy engine. `peers_line` is the number of the first line with such a copy,
    or 0.
    """

    h2d: dict[int, float]
    d2h: dict[int, float]
    peers: list[GpuCopy]
    peers_line: int


def parse_nvbandwidth(text: str) -> Copies:
    """Parse an output of nvbandwidth.

    A table of host copies may have a row for each NUMA node. The highest rate of a GPU is used.
    """
    found: dict[str, dict[int, float]] = {}
    peers: dict[tuple[int | None, int | None, str], GpuCopy] = {}
    peers_line = 0
    test = peer = ""
    columns: list[int] = []
    for number, line in lines_of(text):
        match = _RUNNING.match(line)
        if match is not None:
            test, peer = _TESTS.get(match["test"], ""), _PEER_TESTS.get(match["test"], "")
            columns = []
            continue
        if not test and not peer:
            continue
        if not columns and _COLUMNS.match(line):
            columns = [int(word) for word in line.split() if len(word) < 5]
            continue
        row = _ROW.match(line) if columns else None
        cells = row["cells"].split() if row else []
        if not cells or len(cells) != len(columns):
            continue
        if peer:
            peers_line = peers_line or number
            assert row is not None
            for copy in _peer_row(peer, row["row"], columns, cells):
                if len(peers) < _MOST_PAIRS:
                    peers[copy.a, copy.b, peer] = copy
        else:
            best = found.setdefault(test, {})
            for gpu, cell in zip(columns, cells, strict=True):
                rate = real(cell)
                if rate is not None:
                    best[gpu] = max(rate, best.get(gpu, 0.0))
    return Copies(
        found.get("h2d") or found.get("h2d_sm") or {},
        found.get("d2h") or found.get("d2h_sm") or {},
        list(peers.values()),
        peers_line,
    )


def _peer_row(kind: str, row: str, columns: list[int], cells: list[str]) -> Iterator[GpuCopy]:
    """Yield the copies of one row. The row's GPU reads from, or writes to, the column's GPU.

    This follows the code of nvbandwidth 0.2 to 0.8 (testcases_ce.cpp). The arrows that nvbandwidth
    prints above its tables point the other way.

    N/A means that two GPUs cannot access each other. The cell of a GPU with itself is N/A, or 0.00
    in nvbandwidth's README.
    """
    for column, cell in zip(columns, cells, strict=True):
        rate = real(cell)
        if rate is not None and len(row) < 5 and int(row) != column:
            yield GpuCopy(a=int(row), b=column, kind=kind, gb_per_s=rate)
