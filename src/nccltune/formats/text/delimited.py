# SPDX-License-Identifier: Apache-2.0
"""Split the lines of tables into cells: Markdown, box drawings, CSV, TSV and aligned columns."""

import csv
import html
import re

BLANKS = " "
_LEAST_CELLS = 2
_BARS = str.maketrans(dict.fromkeys("│┃║❘", "|"))
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_TAG = re.compile(r"</?(?:b|i|em|strong|code|sup|sub|span)\b[^>]{0,64}>", re.IGNORECASE)
_RULE = re.compile(r"[\s|:=+\-\u2500-\u257f]*")
_ALIGNED = re.compile(r"[ \t]{2,}")
_EMPHASIS = "*`_~\"'"


def separators_of(line: str) -> list[str]:
    """Return the separators that may divide `line` into cells, the most likely one first."""
    marks = [mark for mark in ("|", "\t", ";", ",") if mark in line.translate(_BARS)]
    return [*marks, BLANKS]


def cells_of(line: str, separator: str) -> list[str]:
    """Return the cells of a line, without blanks, emphasis and quotes around them.

    Empty for a line that does not have the separator, and for the rule of a drawn table.
    """
    line = line.translate(_BARS)
    # The first cell of `  | b | c` is empty.
    unnamed = line[:1].isspace() and line.lstrip()[:1] == "|" and line.rstrip()[-1:] != "|"
    line = line.strip(" \r\n" if separator == "\t" else None)
    if separator == BLANKS:
        cells = re.split(r"\s{2,}", line)
        return cells if len(cells) > _LEAST_CELLS else line.split()
    if separator not in line or _RULE.fullmatch(line):
        return []
    if separator == "|":
        cells = (line if unnamed else line.removeprefix("|")).removesuffix("|").split("|")
        if line[0] != "|":
            # Bars may divide groups of aligned columns.
            cells = [each for cell in cells for each in _ALIGNED.split(cell.strip())]
    elif '"' in line:
        # csv takes a lone \r as the end of a line, and refuses what follows.
        row = [line.replace("\r", " ")]
        cells = next(csv.reader(row, delimiter=separator, skipinitialspace=True), [])
    else:
        cells = line.split(separator)
    return [_plain(cell) for cell in cells]


def _plain(cell: str) -> str:
    if "<" in cell:
        cell = _TAG.sub("", _BREAK.sub(" ", cell))
    if "&" in cell:
        cell = html.unescape(cell)
    return cell.strip().strip(_EMPHASIS).strip()
