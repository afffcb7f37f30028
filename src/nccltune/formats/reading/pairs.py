# SPDX-License-Identifier: Apache-2.0
"""Read lines such as `Size: 1024, time_us: 20.1` as rows of a table."""

import re
from collections.abc import Iterable, Iterator

from nccltune.formats.reading.table_header import header_of

_PAIR = re.compile(
    r"(?<![\w/#-])(?P<name>(?:(?<=[,;|])|(?<=[,;|] ))[A-Za-z][\w/#-]*(?: [A-Za-z][\w/#-]*){1,2}"
    r"(?=\s?=)|[A-Za-z][\w/#-]*(?=\s?=)|[A-Za-z][\w/#-]*(?: [A-Za-z][\w/#-]*){0,4}"
    r"(?: ?[(\[][^()\[\]]{1,24}[)\]])?(?=\s?:))\s?[:=]\s{0,8}(?P<value>[\w.+-]+"
    r"(?: ?(?:[KMGT]i?B(?:/s)?|B|bytes|[mnu\u00b5\u03bc]s|sec|s|Gbps|Gb/s))?)(?=[\s,;|]|$)(?!\s?=)"
)
_UNIT = re.compile(r"(?<=[\d.])[mnu\u00b5\u03bc]s$")
_BETWEEN = re.compile(r"[\s,;|]*")
_LEAST = 2
_WIDTH = 1024
_HINT = re.compile(r"size|bytes|payload", re.IGNORECASE)
_HEADING = re.compile(r"#{1,6} |(?:NCCL_)?(?:ALGO|PROTO)\w*\s?[=:]", re.IGNORECASE)
_MEASURED = re.compile(r"time|lat|bw|bandw|dur|elapsed|(?:\b|_|\d)[mnu\u00b5\u03bc]?s\b|bps", re.I)


def pairs_of(line: str) -> tuple[str, list[str], list[str]] | None:
    """Return the words before the pairs of a line, their names and their values.

    None for a line that does not end with pairs, or whose pairs are not the cells of a table.
    """
    if len(line) > _WIDTH or " NCCL " in line or _HINT.search(line) is None:
        return None
    if _HEADING.match(line) and _MEASURED.search(line) is None:
        return None  # `### ALGO=Ring size=1G` is the title of rows
    found = list(_PAIR.finditer(line))
    if len(found) < _LEAST or not any(match["value"][:1].isdigit() for match in found):
        return None
    ends = [*(match.start() for match in found[1:]), len(line)]
    if not all(
        _BETWEEN.fullmatch(line, match.end(), end) for match, end in zip(found, ends, strict=True)
    ):
        return None
    names, values = [match["name"] for match in found], [match["value"] for match in found]
    if header_of(",".join(names)) is None:
        # The unit tells that `ours time` is one: `ours time = 0.01ms`.
        units = [_UNIT.search(value) for value in values]
        names = [
            f"{name} ({unit[0]})" if unit else name for name, unit in zip(names, units, strict=True)
        ]
        values = [
            value[: unit.start()] if unit else value
            for value, unit in zip(values, units, strict=True)
        ]
        if header_of(",".join(names)) is None:
            return None
    return line[: found[0].start()], names, values


def rows_of_pairs(
    blocks: Iterable[tuple[int, list[str]]], head: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield blocks with the lines of pairs as rows, below their names where those change.

    `head` is the start of the text. Without such a line in it, the blocks are yielded as they are.
    """
    if not any(map(pairs_of, head.split("\n"))):
        yield from blocks
        return
    last: list[str] = []
    for number, lines in blocks:
        for at, line in enumerate(lines, number):
            found = pairs_of(line)
            if found is None:
                last = []
                yield at, [line]
                continue
            words, names, values = found
            if names != last:
                last = names
                yield (
                    at,
                    [words.strip(" :,-"), ",".join(names)] if words.strip() else [",".join(names)],
                )
            yield at, [",".join(values)]
