# SPDX-License-Identifier: Apache-2.0
"""Read cells of several values, such as `0.9/1.2`, as columns or rows of their own.

| the parts are named by | becomes |
| --- | --- |
| the name of the column: `Ring/Tree (us)` | a column each: `Ring (us)`, `Tree (us)` |
| another cell of the row: `2/4/8` GPUs, `9/12/17` us | a row each |

Lists of statistics (`avg/min/max`) stay: one of the values is the mean.
"""

import re
from collections.abc import Iterable, Iterator

from nccltune.formats.reading.pairs import rows_of_pairs
from nccltune.formats.reading.table_header import (
    SEVERAL,
    Column,
    column_of,
    joined_cells,
    may_name_size,
    separates_runs,
)
from nccltune.formats.reading.tensor_shapes import with_sizes
from nccltune.formats.text.delimited import cells_of, separators_of

_NAMED = re.compile(r"(?<![\w/.])[\w.+-]{1,24}(?:\s?/\s?[\w.+-]{1,24}){1,15}(?![\w/])")
_LISTED = re.compile(r"[\w.+-]{1,24}(?:\s?/\s?[\w.+-]{1,24}){1,15}")
_UNITS = re.compile(r"[(\[][^)\]]*[)\]]|\b[GMK]i?[Bb](?:its?|ytes?)?/s(?:ec)?\b")
_ARROW = re.compile(r"\|[^|\n]{0,80}?(?:\u2192|-+>|=>)[^|\n]{0,80}\|")
_ARROWS = re.compile(r"(?<=[\w.)]) {0,3}(?:\u2192|-{1,2}>|=>) {0,3}(?=[\w.(])")
_LAST_UNIT = re.compile(
    r"(?<![\w.])(\d[\d.,]{0,15}) / (\d[\d.,]{0,15}) ?([munµμ]?s|[GMk]i?[Bb](?:/s|ps)|[GMk]?i?B)"
    r"(?=\s*(?:\||$))",
    re.MULTILINE,
)
_SLASH = re.compile(r"\s?/\s?")
_WIDTH = 4096
_BELOW = 4


def plain_rows(
    blocks: Iterable[tuple[int, list[str]]], head: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield blocks in which each value of a table has a cell; `head` is the start of the text."""
    blocks = with_sizes(rows_of_pairs(blocks, head), head)
    if _ARROW.search(head):
        # `20.2 \u2192 10.9 us` is `20.2 us / 10.9 us`, below names such as `off \u2192 on`.
        head = _with_slashes(head)
        blocks = ((number, [_with_slashes(line) for line in lines]) for number, lines in blocks)
    if not any(_lists(line[:_WIDTH]) for line in head.split("\n")):
        yield from blocks
        return
    table: _Table | None = None
    for number, lines in blocks:
        if table is None and len(lines) < 1 + _BELOW and not any(map(_lists, lines)):
            yield number, lines
            continue
        # A line stays in one block with those below it, as long as their numbers are consecutive.
        start, piece = 0, list[str]()
        for at, line in enumerate(lines):
            if table is None or not table.goes_on(line):
                table = _table_of(line, lines[at + 1 : at + 1 + _BELOW])
                piece.append(line if table is None else table.header)
                continue
            piece += (rows := table.rows(line))
            if len(rows) > 1:
                yield number + start, piece
                start, piece = at + 1, []
        if piece:
            yield number + start, piece


def _with_slashes(text: str) -> str:
    """Return lines of a Markdown table with lists of values instead of values with arrows."""
    lines = [
        _LAST_UNIT.sub(r"\1\3/\2\3", _ARROWS.sub(" / ", line)) if line.count("|") > 1 else line
        for line in text.split("\n")
    ]
    return "\n".join(lines)


def _lists(line: str) -> bool:
    return (
        "/" in line
        and " NCCL " not in line
        and any(map(SEVERAL.fullmatch, cells_of(line, separators_of(line)[0])))
    )


class _Table:
    """A table whose cells have several values: in `columns` those that become columns.

    `by_row` are the columns of lists that become rows.
    """

    def __init__(
        self, names: list[str], separator: str, columns: dict[int, list[str]], by_row: set[int]
    ) -> None:
        self._width = len(names)
        self._separator = separator
        self._columns = columns
        self._by_row = by_row
        cells = [part for at, name in enumerate(names) for part in columns.get(at, [name])]
        self.header = joined_cells(cells, separator)

    def goes_on(self, line: str) -> bool:
        """Return whether a line is a row of the table, or the rule below its names."""
        cells = cells_of(line, self._separator)
        return len(cells) == self._width or (not cells and self._separator in line)

    def rows(self, line: str) -> list[str]:
        """Return a row with a cell for each value, or a row for each."""
        cells = cells_of(line, self._separator)
        if not cells:
            return [joined_cells(["---"] * 2, self._separator)]
        parts = {at: _SLASH.split(cell) for at, cell in enumerate(cells)}
        lengths = {len(parts[at]) for at in self._by_row}
        number = lengths.pop() if len(lengths) == 1 else 1
        found = []
        for place in range(number):
            row: list[str] = []
            for at, cell in enumerate(cells):
                if at in self._columns:
                    width = len(self._columns[at])
                    row += parts[at] if len(parts[at]) == width else [cell] + [""] * (width - 1)
                else:
                    row.append(parts[at][place] if at in self._by_row and number > 1 else cell)
            found.append(joined_cells(row, self._separator))
        return found


def _table_of(line: str, below: list[str]) -> _Table | None:
    """Return the table whose names are on a line; None if none of its cells has to be divided."""
    if len(line) > _WIDTH or not may_name_size(line) or not any(map(_lists, below)):
        return None
    separator = separators_of(line)[0]
    names = cells_of(line, separator)
    row = next((cells_of(each, separator) for each in below if _lists(each)), [])
    if len(names) < 2 or len(row) != len(names) or any(map(SEVERAL.fullmatch, names)):
        return None
    columns, open_lists, keys = {}, set(), set()
    for at, (name, cell) in enumerate(zip(names, row, strict=True)):
        column, count = column_of(name), len(_SLASH.split(cell))
        if not _LISTED.fullmatch(cell) or column.part is not None:
            continue
        if SEVERAL.fullmatch(cell) and (named := _named_parts(name, count)):
            columns[at] = named
        elif SEVERAL.fullmatch(cell) and not _is_key(column):
            open_lists.add((at, count))
        elif _is_key(column):
            keys.add((at, count))
    by_row = {at for at, count in keys if any(other == count for _, other in open_lists)}
    by_row |= {at for at, count in open_lists if by_row and count == _count_of(keys, by_row)}
    return _Table(names, separator, columns, by_row) if columns or by_row else None


def _count_of(keys: set[tuple[int, int]], by_row: set[int]) -> int:
    return next(count for at, count in sorted(keys) if at in by_row)


def _is_key(column: Column) -> bool:
    """Return whether the values of a column say of which run a row is."""
    roles = {"nodes", "ranks", "per_node", "channels", "algorithm", "protocol", "choice"}
    return column.role in roles or (not column.role and separates_runs(column.name))


def _named_parts(name: str, count: int) -> list[str]:
    """Return the names of `count` columns that a name lists; empty if it lists no such number."""
    units = [match.span() for match in _UNITS.finditer(name)]
    for match in _NAMED.finditer(name):
        parts = _SLASH.split(match[0])
        inside = any(low <= match.start() < high for low, high in units)
        if not inside and len(parts) == count:
            return [f"{name[: match.start()]}{part}{name[match.end() :]}".strip() for part in parts]
    return []
