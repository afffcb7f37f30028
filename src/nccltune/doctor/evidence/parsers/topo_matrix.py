# SPDX-License-Identifier: Apache-2.0
"""Parse `nvidia-smi topo -m` (drivers 384 to 580), `rocm-smi --showtopo` and `amd-smi topology`.

Names of NICs are those of the legend (`NIC0: mlx5_0`). Older drivers print these names as column
names.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import LONGEST_LINE, bus_id
from nccltune.formats.topology.cpu_list import cpus_of
from nccltune.formats.topology.nvidia_smi_matrix import (
    find_header,
    looks_like_matrix,
    nic_names,
    read_row,
    shows_pci_only,
)
from nccltune.formats.topology.pasted_matrix import plain_lines
from nccltune.model.errors import InputError

_GPU = re.compile(r"^GPU(\d{1,4})$")
_ROCM_KINDS = ("XGMI", "PCIE")
_MOST_ROWS = 64
_ROCM = re.compile(r"^[= ]*(?:Link Type between two GPUs|LINK TYPE TABLE:)", re.M)


class Cell(NamedTuple):
    """Path from device `a` to device `b`. The names are `GPU0` or `mlx5_0`.

    `kind` is NVL for NVLink, else the word of nvidia-smi (PIX, SYS) or rocm-smi (XGMI, PCIE). The
    old word SOC is replaced by SYS. `links` is the number of NVLinks, or 0.
    """

    a: str
    b: str
    kind: str
    links: int


class TopoMatrix(NamedTuple):
    """Cells of all pairs of different devices.

    `cpus` has the CPU affinity by GPU, if the output has that column. `unread` counts rows that
    could not be parsed.
    """

    cells: tuple[Cell, ...]
    cpus: dict[int, list[int]]
    unread: int


@lru_cache(maxsize=4096)
def gpu_number(name: str) -> int | None:
    """Return the number of a GPU from its name (3 for `GPU3`), or None for a NIC."""
    match = _GPU.match(name)
    return int(match[1]) if match else None


def parse_topo_matrix(text: str) -> TopoMatrix:
    """Parse the matrix. Its cells may be separated by tabs or spaces.

    A row that is cut or damaged is skipped and counted in `unread`. If the text has no header of a
    matrix, the result has no cells. `topo -mp` shows no NVLink: its pairs of GPUs are left out.
    """
    if (match := _ROCM.search(text)) is not None:
        return _rocm_links(text[match.end() :])
    lines = plain_lines("\n".join(line[:LONGEST_LINE] for line in text.split("\n")))
    try:
        at, columns, trailing = find_header(lines, "topo")
    except InputError:
        return TopoMatrix((), {}, int(looks_like_matrix(text)))
    names = nic_names(lines)
    is_pci = shows_pci_only(lines, at)
    end = next((n for n, line in enumerate(lines) if n > at and "topo -" in line), None)
    if is_pci and (later := parse_topo_matrix("\n".join(lines[at + 1 :]))).cells:
        return later
    found: list[Cell] = []
    cpus: dict[int, list[int]] = {}
    unread = 0
    for line in lines[at + 1 : end]:
        words = line.split(None, 1)
        if not words or words[0] not in columns:
            continue
        row = words[0]
        try:
            cells, rest, _ = read_row(line, columns, trailing, "topo")
        except InputError:
            unread += 1
            continue
        index = gpu_number(row)
        if index is not None and (listed := cpus_of(rest.get("CPU Affinity", ""))):
            cpus[index] = listed
        for column, kind in zip(columns, cells, strict=True):
            if kind == "X" or (is_pci and index is not None and gpu_number(column) is not None):
                continue
            links = int(kind[2:]) if kind.startswith("NV") else 0
            plain = "NVL" if links else {"SOC": "SYS"}.get(kind, kind)
            found.append(Cell(names.get(row, row), names.get(column, column), plain, links))
    return TopoMatrix(tuple(found), cpus, unread)


def _rocm_links(text: str) -> TopoMatrix:
    columns: list[str] = []
    found = []
    for line in text.split("\n")[1 : 2 + _MOST_ROWS]:
        name, *words = line[:LONGEST_LINE].split() or [""]
        named = gpu_number(name) is not None or bus_id(name) is not None
        if not columns:
            columns = [name, *words] if named else []
        elif not named or name not in columns:
            break
        else:
            row = f"GPU{columns.index(name)}"
            found += [
                Cell(row, f"GPU{place}", kind, 0)
                for place, kind in enumerate(words[: len(columns)])
                if kind in _ROCM_KINDS
            ]
    return TopoMatrix(tuple(found), {}, 0)
