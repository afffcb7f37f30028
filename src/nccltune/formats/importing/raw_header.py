# SPDX-License-Identifier: Apache-2.0
"""Recognise the rows of a raw CSV by their values: a missing header, an unnamed collective."""

import re

from nccltune.formats.reading.table_header import Header
from nccltune.formats.text.cells import CellError
from nccltune.formats.text.delimited import cells_of, separators_of
from nccltune.model.choice import ALGORITHMS, DEFAULT, PROTOCOLS
from nccltune.model.collective import Collective

COLLECTIVES = [item.value for item in Collective]
ALGORITHM_NAMES = [item.value for item in ALGORITHMS] + [DEFAULT]
PROTOCOL_NAMES = [item.value for item in PROTOCOLS]
_LEAST_CELLS = 5

_GPUS = re.compile(r"(?:n|num|total|number of)?[ _]?gpus?(?: count)?", re.IGNORECASE)


def is_row(line: str) -> bool:
    """Return whether `line` is a row of a raw CSV: it has a collective and an algorithm."""
    for separator in separators_of(line)[:-1]:
        cells = cells_of(line, separator)
        if any(cell[:1] in ("[", "(") for cell in cells):
            return False  # ranges of NCCLX's rules
        if len(cells) >= _LEAST_CELLS and _meanings(cells) >= {"collective", "algorithm"}:
            return True
    return False


def _meanings(cells: list[str]) -> set[str]:
    return {meaning for cell in cells if (meaning := _meaning(cell))}


def _meaning(cell: str) -> str:
    """Return which column a cell can only belong to; empty if its value does not show it."""
    for name, words in (("algorithm", ALGORITHM_NAMES), ("protocol", PROTOCOL_NAMES)):
        if cell.lower() in words and cell.lower() != DEFAULT:
            return name
    return "collective" if plain_collective(cell) in COLLECTIVES else ""


def plain_collective(cell: str) -> str:
    """Return the name of a collective in a cell without what programs add to it."""
    return re.sub(r"[^a-z]", "", cell.lower().partition("_perf")[0].removeprefix("nccl"))


def with_collective(header: Header, rows: list[str]) -> Header:
    """Return a header in which a column of the first row's collective is the collective.

    It may be called `test` or `name`. A header that names the collective is returned as it is.
    """
    if {"collective", "op"} & header.roles:
        return header
    columns = list(header.columns)
    for cells in (cells_of(row, header.separator) for row in rows):
        for at, (cell, column) in enumerate(zip(cells, columns, strict=False)):
            if not column.role and plain_collective(cell) in COLLECTIVES:
                columns[at] = column._replace(role="collective")
                return header._replace(columns=tuple(columns))
    return header


def with_gpus(header: Header, rows: list[str]) -> Header:
    """Return a header in which a column `GPUs` is the ranks or those of a node, as rows show.

    They do where the numbers of nodes differ: the ranks grow with them, those of a node do not.
    """
    places = [at for at, column in enumerate(header.columns) if _GPUS.fullmatch(column.name)]
    if len(places) != 1 or len(header.at("nodes")) != 1 or header.roles & {"ranks", "per_node"}:
        return header
    scales = set()
    for cells in (cells_of(row, header.separator) for row in rows):
        own = [cells[at] for at in (header.at("nodes")[0], places[0])] if len(cells) > 1 else []
        if len(cells) == len(header.columns) and all(cell.isdecimal() for cell in own):
            scales.add((int(own[0]) or 1, int(own[1])))
    if len({nodes for nodes, _ in scales}) < 2:
        return header
    constant = len({gpus for _, gpus in scales}) == 1
    grows = len({gpus / nodes for nodes, gpus in scales}) == 1
    columns = list(header.columns)
    if constant or grows:
        columns[places[0]] = columns[places[0]]._replace(role="per_node" if constant else "ranks")
    return header._replace(columns=tuple(columns))


def no_header(line: str) -> CellError:
    """Return the error of a first row without names above it; the hint has the known names."""
    separator = separators_of(line)[0]
    names = [_meaning(cell) or "?" for cell in cells_of(line, separator)]
    return CellError(
        "a row, and no line before it names the columns: which one is the size, the time, the nodes"
        " is unknown",
        f"put the names before it, with size_bytes, nodes, ranks and latency_us in place of ?:"
        f" {separator.join(names)}",
    )
