# SPDX-License-Identifier: Apache-2.0
"""Restore a pasted `nvidia-smi topo -m`: wrapped lines, lost tabs, colour codes, quotes."""

import re
from typing import NamedTuple

from nccltune.model.errors import InputError

_KINDS = r"X|PIX|PXB|PHB|NODE|SYS|SOC|NV\d{1,3}"
KIND = re.compile(_KINDS)
_P2P_STATUS = re.compile(r"OK|[CGT]?NS|DR|U")
_JOINED = re.compile(rf"(?P<cells>(?:{_KINDS})+)(?P<rest>\d.*)?")
_ESCAPE = re.compile(
    r"\x1b\[[0-9;]*[A-Za-z]|(?:\^\[|\u241b|\\(?:033|x1b|e)|(?<![\w\]]))\[[0-9;]{1,8}m"
)
_NAMES_JOINED = re.compile(r"((?:GPU|NIC)\d{1,4})(?=(?:GPU|NIC)\d)")
_TRAILING = re.compile(r"\s*(?:(CPU|NUMA)\s*(Affinity)|GPU\s*NUMA\s*ID)")
_FIRST_ROW = re.compile(rf"\s*GPU0(?:\s+|(?={_KINDS}))(?:{_KINDS})")
_NO_ROW = re.compile(r"\s*(?:$|[.…\[(]|Legend|NIC Legend|\S+\s*[:=])")
_MOST_PARTS = 16
_MOST_DEVICES = 200


class Cells(NamedTuple):
    """The cells of a row, the words after them, and the words that were split into cells."""

    cells: tuple[str, ...]
    rest: list[str]
    split: tuple[str, ...]


def plain_lines(text: str) -> list[str]:
    """Return the lines of a matrix without colour codes, each row in one line.

    A row that a terminal wrapped is joined into its first line. The other lines become empty, so
    the numbers of lines stay.
    """
    lines = [_unquoted(_ESCAPE.sub("", line)) for line in text.splitlines()]
    header = next((at for at, line in enumerate(lines) if _is_header(line)), None)
    if header is None:
        return lines
    rows = range(header + 1, min(len(lines), header + 1 + _MOST_PARTS))
    first = next((at for at in rows if _FIRST_ROW.match(lines[at])), None)
    if first is None:
        return lines
    _join(lines, header, first)
    lines[header] = _TRAILING.sub(_column, _NAMES_JOINED.sub(r"\1\t", lines[header]))
    devices = re.split("CPU Affinity|NUMA Affinity|GPU NUMA", lines[header])[0].split()
    if len(devices) > _MOST_DEVICES:
        return lines
    names = "|".join(re.escape(one) for one in sorted(devices, key=len)[::-1])
    name = re.compile(rf"\s*({names})(?:(?=\s)|(?=(?:{_KINDS})+(?:\s|$)))")
    at = first
    while at < len(lines) and not _NO_ROW.match(lines[at]):
        if (match := name.match(lines[at])) is None:
            break
        end = at + 1
        while end < len(lines) and not _NO_ROW.match(lines[end]) and not name.match(lines[end]):
            end += 1
        _join(lines, at, end)
        if not lines[at][match.end() : match.end() + 1].isspace():
            lines[at] = f"{match[1]}\t{lines[at][match.end() :]}"
        at = end
        while at < len(lines) and not lines[at].strip():
            at += 1
    return lines


def _unquoted(line: str) -> str:
    """Return a line of a reply (`> GPU0 X`) or a Markdown table (`| GPU0 | X |`) without marks."""
    if line.startswith(">"):
        line = line.lstrip("> ")
    if line.lstrip().startswith("|") or line.count("|") > 1:
        line = "" if set(line) <= set("|-: ") else line.replace("|", "\t")
    return line


def _column(match: re.Match[str]) -> str:
    """Return a column's name with its spaces, which a wrapped line may have lost."""
    return f"\t{match[1]} {match[2]}" if match[1] else "\tGPU NUMA ID"


def _is_header(line: str) -> bool:
    words = _NAMES_JOINED.sub(r"\1 ", line).split()
    return words[:1] == ["GPU0"] and not (len(words) > 1 and _JOINED.fullmatch(words[1]))


def _join(lines: list[str], first: int, end: int) -> None:
    """Join `lines[first:end]` into the first of them. A wrapped word has no space at the end."""
    lines[first] = "".join(lines[first:end])
    lines[first + 1 : end] = [""] * (end - first - 1)


def row_cells(words: list[str], count: int, name: str, where: str) -> Cells:
    """Return the `count` cells at the start of `words`, some of which may be joined.

    Raises InputError if the words are not exactly `count` kinds of connections.
    """
    cells: list[str] = []
    split: list[str] = []
    after: list[str] = []
    at = 0
    while at < len(words) and len(cells) < count:
        word = words[at]
        at += 1
        match = _JOINED.fullmatch(word)
        if match is None or (match["rest"] and match["cells"][-1].isdigit()):
            if not word:
                continue
            if _P2P_STATUS.fullmatch(word):
                raise InputError(
                    f"'{word}' is of nvidia-smi topo -p2p: whether P2P works, no connection",
                    where=where,
                    hint="nccltune doctor reads that; connections are in nvidia-smi topo -m",
                )
            if not word[0].isdigit() and word != "N/A":
                raise InputError(
                    f"'{_short(word)}' is no kind of connection",
                    where=where,
                    hint="known are X, NV1 to NV999, PIX, PXB, PHB, NODE and SYS",
                )
            break
        parts = KIND.findall(match["cells"])
        if len(parts) > 1 or match["rest"]:
            split.append(" ".join([*parts, match["rest"] or ""]).strip())
        cells += parts
        after = [match["rest"]] if match["rest"] else []
    if len(cells) != count:
        joined = f"; a tab is missing in {', '.join(map(_short, split))}" if split else ""
        raise InputError(
            f"row {name} has {len(cells)} cells for {count} devices{joined}",
            where=where,
            hint="a terminal or a paste may have cut it: nvidia-smi topo -m > FILE",
        )
    return Cells(tuple(cells), after + words[at:], tuple(split))


def _short(word: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in word[:20])
