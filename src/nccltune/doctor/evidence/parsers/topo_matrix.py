# SPDX-License-Identifier: Apache-2.0
"""The cells of `nvidia-smi topo -m`: how GPUs and NICs reach each other (drivers 384 to 580).

Names of NICs are those of the legend (`NIC0: mlx5_0`), or the columns' own in older drivers.
"""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import cpu_list, lines_of

_CELL = re.compile(r"^(?:X|SYS|NODE|PHB|PXB|PIX|SOC|NV\d{1,3})$")
_LEGEND = re.compile(r"^\s*(?P<nic>NIC\d{1,4}): (?P<name>[\w.-]{1,64})\s*$")
_DEVICE = re.compile(r"^(?:GPU\d{1,4}|NIC\d{1,4}|[a-z][\w.-]{1,63})$")
_GPU = re.compile(r"^GPU(\d{1,4})$")


class Cell(NamedTuple):
    """How `a` reaches `b`: names as in the header, NICs by their own."""

    a: str
    b: str
    kind: str
    links: int
    line: int


class TopoMatrix(NamedTuple):
    """All cells of different devices; `cpus` has the CPU affinity by GPU where there is one."""

    cells: tuple[Cell, ...]
    cpus: dict[int, list[int]]
    unread: int


def gpu_number(name: str) -> int | None:
    """3 for `GPU3`, None for a NIC."""
    match = _GPU.match(name)
    return int(match[1]) if match else None


def parse_topo_matrix(text: str) -> TopoMatrix:
    """Read the matrix, whether its cells are parted by tabs or spaces."""
    columns: list[str] = []
    rows: list[tuple[int, str, list[str], str]] = []
    names: dict[str, str] = {}
    unread = 0
    for number, line in lines_of(text):
        words = line.split()
        if not columns:
            if words[0].startswith("GPU") and len(words) > 1 and not _CELL.match(words[1]):
                columns = _columns(words)
            elif words == ["GPU0"]:
                columns = words
            continue
        legend = _LEGEND.match(line)
        if legend is not None:
            names[legend["nic"]] = legend["name"]
            continue
        cells = words[1 : 1 + len(columns)]
        is_row = _DEVICE.match(words[0]) and len(cells) == len(columns)
        if is_row and all(_CELL.match(cell) for cell in cells):
            rest = words[1 + len(columns) :]
            rows.append((number, words[0], cells, rest[0] if rest else ""))
        elif _GPU.match(words[0]) and "=" not in line:
            unread += 1
    found, cpus = [], {}
    for number, row, cells, affinity in rows:
        index = gpu_number(row)
        if index is not None and (listed := cpu_list(affinity)) is not None and affinity:
            cpus[index] = listed
        for column, kind in zip(columns, cells, strict=True):
            if kind == "X":
                continue
            links = int(kind[2:]) if kind.startswith("NV") else 0
            plain = "NVL" if links else {"SOC": "SYS"}.get(kind, kind)
            found.append(Cell(names.get(row, row), names.get(column, column), plain, links, number))
    return TopoMatrix(tuple(found), cpus, unread)


def _columns(words: list[str]) -> list[str]:
    """The header up to the words of `CPU Affinity`."""
    found = []
    for word in words:
        if word in ("CPU", "NUMA", "GPU"):
            break
        found.append(word)
    return found
