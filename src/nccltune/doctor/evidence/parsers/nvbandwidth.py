# SPDX-License-Identifier: Apache-2.0
"""nvbandwidth (0.2 to 0.8): copies between host and each GPU, by copy engine or SM."""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of, real

_RUNNING = re.compile(r"^Running (?P<test>\w+)\.")
_ROW = re.compile(r"^\s*\d+(?P<cells>(?:\s+(?:N/A|\d+(?:\.\d+)?))+)\s*$")
_COLUMNS = re.compile(r"^\s*\d+(?:\s+\d+)*\s*$")
_TESTS = {
    "host_to_device_memcpy_ce": "h2d",
    "device_to_host_memcpy_ce": "d2h",
    "host_to_device_memcpy_sm": "h2d_sm",
    "device_to_host_memcpy_sm": "d2h_sm",
}


class Copies(NamedTuple):
    """GB/s by GPU, host to device and back; the copy engine's where both were measured."""

    h2d: dict[int, float]
    d2h: dict[int, float]
    lines: dict[str, int]


def parse_nvbandwidth(text: str) -> Copies:
    """Read an output. Of several rows (host memory of several NUMA nodes) the best counts."""
    found: dict[str, dict[int, float]] = {}
    lines: dict[str, int] = {}
    test = ""
    columns: list[int] = []
    for number, line in lines_of(text):
        match = _RUNNING.match(line)
        if match is not None:
            test, columns = _TESTS.get(match["test"], ""), []
            continue
        if not test:
            continue
        if not columns and _COLUMNS.match(line):
            columns = [int(word) for word in line.split() if len(word) < 5]
            continue
        row = _ROW.match(line) if columns else None
        cells = row["cells"].split() if row else []
        if cells and len(cells) == len(columns):
            best = found.setdefault(test, {})
            lines.setdefault(test, number)
            for gpu, cell in zip(columns, cells, strict=True):
                rate = real(cell)
                if rate is not None:
                    best[gpu] = max(rate, best.get(gpu, 0.0))
    return Copies(
        found.get("h2d") or found.get("h2d_sm") or {},
        found.get("d2h") or found.get("d2h_sm") or {},
        lines,
    )
