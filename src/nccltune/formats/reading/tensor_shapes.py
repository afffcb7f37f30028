# SPDX-License-Identifier: Apache-2.0
"""Give tables of all-reduces by the shape of a tensor their sizes: `num_tokens`, `hidden`."""

import re
from collections.abc import Iterable, Iterator
from math import prod
from typing import NamedTuple

from nccltune.formats.reading.collective_names import collective_of_text
from nccltune.formats.reading.table_header import column_of, joined_cells
from nccltune.formats.text.delimited import cells_of, separators_of
from nccltune.model.collective import Collective

# Narrower types are mostly of the weights: what is reduced has 2 bytes there, too.
_WIDTHS = {
    2: re.compile(r"(?<![a-z\d])(?:bf16|bfloat16|fp16|float16|f16|half)(?![a-z\d])", re.IGNORECASE),
    4: re.compile(r"(?<![a-z\d])(?:fp32|float32|f32)(?![a-z\d])", re.IGNORECASE),
}
_TOKENS = frozenset({"numtokens", "numtoken", "tokens", "ntokens", "ntok", "rows", "numrows", "m"})
_HIDDEN = frozenset({"hidden", "hiddensize", "hiddendim", "hdim", "dim", "cols", "n"})
_SHAPE = frozenset({"shape", "tensorshape", "inputshape"})
# `(64, 4096)`, `1x8x4096`, and those of XLA with the type: `bf16[8,128]`.
_DIMS = re.compile(
    r"(?:b?f\d\d)?[(\[]?\s?(\d{1,9}(?:\s?[,x\u00d7*]\s?\d{1,9}){1,3}|(?<=\d\[)\d{1,9})\s?[)\]]?"
)
_SIZE = "size (bytes)"
_LEAST_CELLS = 3
_MOST_CHARACTERS = 4096


class _Table(NamedTuple):
    """What separates the cells of a table, their number, and those that give the shape."""

    separator: str
    cells: int
    places: tuple[int, ...]


def bytes_of_element(head: str) -> int:
    """Return the bytes of the only type that a text about all-reduces names; 0 without one."""
    widths = [width for width, pattern in _WIDTHS.items() if pattern.search(head)]
    one = len(widths) == 1 and collective_of_text(head) is Collective.ALLREDUCE
    return widths[0] if one and any(map(_table_of, head.split("\n"))) else 0


def with_sizes(
    blocks: Iterable[tuple[int, list[str]]], head: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield blocks in which such tables have a column of sizes; `head` is the start of the text."""
    width = bytes_of_element(head)
    if not width:
        yield from blocks
        return
    table: _Table | None = None
    for number, lines in blocks:
        sized = []
        for line in lines:
            found = _table_of(line)
            table = found or table
            own = cells_of(line, table.separator) if table is not None else []
            size = _SIZE if found is not None else ""
            if table is not None and not found and len(own) == table.cells:
                size = str(prod(_dims(own, table)) * width) if _dims(own, table) else ""
            if table is None or (own and not size):
                table = None
                sized.append(line)
            elif own:
                sized.append(joined_cells([size, *own], table.separator))
            else:
                sized.append(f"|---{line.strip()}" if "|" in line else line)
        yield number, sized


def _table_of(line: str) -> _Table | None:
    if len(line) > _MOST_CHARACTERS:
        return None
    separator = separators_of(line)[0]
    cells = cells_of(line, separator)
    if len(cells) < _LEAST_CELLS or any(column_of(cell).role == "size" for cell in cells):
        return None
    names = [re.sub(r"[^a-z]", "", cell.lower()) for cell in cells]
    places = [
        tuple(at for at, name in enumerate(names) if name in known)
        for known in (_SHAPE, _TOKENS, _HIDDEN)
    ]
    if len(places[0]) == 1:
        return _Table(separator, len(cells), places[0])
    both = len(places[1]) == len(places[2]) == 1
    return _Table(separator, len(cells), places[1] + places[2]) if both else None


def _dims(cells: list[str], table: _Table) -> list[int]:
    own = [cells[at] for at in table.places]
    if len(own) == 1:
        match = _DIMS.fullmatch(own[0])
        return [int(part) for part in re.findall(r"\d+", match[1])] if match is not None else []
    return [int(cell) for cell in own] if all(cell.isdecimal() for cell in own) else []
