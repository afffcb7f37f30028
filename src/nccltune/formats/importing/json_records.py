# SPDX-License-Identifier: Apache-2.0
"""Read records of timings in JSON of any program: lists, lines, or objects keyed by size.

Records become the rows of a table, whose columns are recognised as those of a CSV are. Scalars of
the objects around a record (`"world_size": 4`) are columns, too.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from nccltune.formats.importing.raw_csv import read_raw_blocks
from nccltune.formats.nccl_tests.text import read_blocks
from nccltune.formats.reading.collective_names import collective_of_title
from nccltune.formats.reading.context import Context
from nccltune.formats.reading.file_report import FileKind, FlagKind
from nccltune.formats.reading.runs import RunSamples
from nccltune.formats.reading.table_header import (
    MEASURED,
    Header,
    column_of,
    header_of,
    is_variant,
    variants_of,
)
from nccltune.formats.text.lines import encoding_of

MOST_BYTES = 64 << 20
_COMMENT = re.compile(r"(?<=[\s,{\[])//[^\n]*")
_MARK = re.compile(r'\\.|["{}\[\]]')
_CUT = re.compile(r"[\w\\+.-]{0,12}[`. \n]*")
"""The rest of a document that is cut off: at most a part of a word or a number."""
_FENCE = re.compile(r"^\s*```.*")
_FRACTION = re.compile(r"-?\d+\.(\d+)")
_MOST_DEPTH = 8
_DECODER = json.JSONDecoder()
_PIECE = 4096
_TOKEN = 16
"""Before the end of a piece, an error may come from a token that is cut there."""
_MOST_DEEP = 16
"""Lines that begin values of too many levels; text after so many is not looked at."""
_PER_ROW = frozenset({"nodes", "ranks", "algorithm", "protocol", "choice"})
_AROUND = _PER_ROW | {"collective", "op", "per_node", "type", "redop", "channels", "size"}
"""Roles that a scalar around the records may have."""
_KEYED = re.compile(
    r"(?:(?P<test>.{1,80})/)?(?P<collective>[a-z_]{4,20})_(?P<size>\d+)_(?P<what>time|algbw|busbw)"
    r"(?::\d+)?"
)
"""A key of SuperBench, which names what was measured: `nccl-bw:default/allreduce_8192_time:0`."""
_Fields = dict[str, str]
_Found = tuple[int, _Fields]


def json_documents(text: str, cut: list[int] | None = None) -> Iterator[tuple[int, int, object]]:
    """Yield the objects and lists that begin a line: first line, last line and value.

    The last one may be cut off: its whole parts are yielded, and its first line is added to `cut`.
    """
    if text.lstrip()[:1] in ("{", "["):
        text = _COMMENT.sub("", text)
    at, line, deep = 0, 1, 0
    while at < len(text) and deep < _MOST_DEEP:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        start = at + len(text[at:end]) - len(text[at:end].lstrip())
        if text[start : start + 1] in ("{", "["):
            value, after = None, start
            try:
                value, after, stopped = _decoded(text, start)
            except RecursionError:
                deep += 1
            else:
                if stopped is not None:
                    value, after = _whole_parts(text[start:stopped]), len(text)
                    if value and cut is not None:
                        cut.append(line)
            if value:
                last = line + text.count("\n", start, after)
                yield line, last, value
                end = text.find("\n", after)
                end = len(text) if end < 0 else end
                line = last
        at, line = end + 1, line + 1


def _decoded(text: str, start: int) -> tuple[object, int, int | None]:
    """Return the value that begins at `start` and where it ends; None and `start` without one.

    The third is where the text ends inside the value, else None. Raises RecursionError.
    """
    # Of a piece: the decoder's errors count all lines before them.
    size = _PIECE
    while True:
        piece = text[start : start + size]
        try:
            value, after = _DECODER.raw_decode(piece)
        except json.JSONDecodeError as error:
            # Only the end of the text leaves a string open: other lines have no `\n` in one.
            opened = "Unterminated" in error.msg
            if start + size >= len(text):
                cut = opened or _CUT.fullmatch(piece, error.pos)
                return None, start, start + error.pos if cut else None
            if not opened and error.pos < len(piece) - _TOKEN:
                return None, start, None
        else:
            return value, start + after, None
        size *= 16


def _whole_parts(text: str) -> object:
    """Return the value of a document that is cut off, without what is not whole; else None."""
    open_marks: list[str] = []
    end, marks, in_text = 0, "", False
    for match in _MARK.finditer(text):
        mark = match[0]
        if mark == '"':
            in_text = not in_text
        elif in_text or mark[0] == "\\":
            continue
        elif mark in "{[":
            open_marks.append("}" if mark == "{" else "]")
        elif open_marks:
            open_marks.pop()
            end, marks = match.end(), "".join(reversed(open_marks))
    try:
        return json.loads(text[:end] + marks) if end else None
    except (ValueError, RecursionError):
        return None


def records_of(value: object, line: int) -> Iterator[_Found]:
    """Yield the records in a JSON value, each with `line` and its fields as text."""
    for fields in _records(value, {}, 0):
        yield line, fields


def _records(value: object, around: _Fields, depth: int) -> Iterator[_Fields]:
    if depth > _MOST_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from _records(item, around, depth + 1)
    if not isinstance(value, dict):
        return
    fields = _flat(value)
    if keyed := _of_keys(fields):
        yield from ({**around, **record} for record in keyed)
        return
    if _is_timed(fields) or _is_timed({**around, **fields}):
        yield {**around, **fields}
        return
    columns = {name: column_of(name) for name in fields}
    kept = {
        name: text
        for name, text in fields.items()
        if columns[name].role in _AROUND or is_variant(columns[name])
    }
    for key, inner in value.items():
        if isinstance(inner, dict | list):
            named = {"collective": key} if collective_of_title(key) is not None else {}
            sized = {"size": key} if key.isdecimal() and isinstance(inner, dict) else {}
            yield from _records(inner, {**around, **kept, **named, **sized}, depth + 1)


def _of_keys(fields: _Fields) -> list[_Fields]:
    """Return the records that the keys of SuperBench's summary hold; its times are in us."""
    keys = {key: match for key in fields if (match := _KEYED.fullmatch(key))}
    keys = {key: match for key, match in keys.items() if collective_of_title(match["collective"])}
    tests = {match["test"] for match in keys.values()}
    node = {"node": fields["node"]} if "node" in fields else {}
    found: dict[tuple[str, ...], _Fields] = {}
    for key, match in keys.items():
        test = {"config": match["test"] or ""} if len(tests) > 1 else {}
        record = node | test | {"collective": match["collective"], "size": match["size"]}
        unit = "us" if match["what"] == "time" else "GB/s"
        found.setdefault(tuple(record.values()), record)[f"{match['what']} ({unit})"] = fields[key]
    return list(found.values())


def _is_timed(fields: _Fields) -> bool:
    header = header_of("\t".join(fields))
    return header is not None and bool(header.roles & MEASURED)


def _flat(value: dict[str, object]) -> _Fields:
    """Return the scalars of an object, and those of the objects of its placements."""
    found: _Fields = {}
    for key, item in value.items():
        name = " ".join(key.split())
        if isinstance(item, dict) and column_of(f"{name} x").placement:
            found |= {
                f"{name} {inner}": _text(each)
                for inner, each in item.items()
                if not isinstance(each, dict | list)
            }
        elif not isinstance(item, dict | list):
            found[name] = _text(item)
    return found


def _text(value: object) -> str:
    return "" if value is None else " ".join(str(value).split())


def is_records(text: str) -> bool:
    """Return whether a text has JSON with records of timings."""
    for line, _, value in json_documents(text):
        if next(records_of(value, line), None) is not None:
            return True
    return False


def read_json_records(file: BinaryIO, context: Context) -> Iterator[RunSamples]:
    """Yield the samples of JSON records (see `context.Reader`)."""
    data = file.read(MOST_BYTES)
    text = data.decode(encoding_of(data[:4]), errors="replace")
    lines = text.split("\n")
    tables: dict[tuple[int, tuple[str, ...]], list[_Found]] = {}
    taken: set[int] = set()
    part = end = 0
    cut: list[int] = []
    for first, last, value in json_documents(text, cut):
        # Text between two documents begins another run, as in a page that shows several.
        part += any(re.search(r"\w", _FENCE.sub("", line)) for line in lines[end : first - 1])
        for line, fields in records_of(value, first):
            tables.setdefault((part, tuple(fields)), []).append((line, fields))
        taken.update(range(first, last + 1))
        end = last
    others = [(at, [line]) for at, line in enumerate(lines, 1) if at not in taken]
    for found in map(_with_collective, tables.values()):
        _restore_zeros([fields for _, fields in found])
        names = tuple(found[0][1])
        header = header_of("\t".join(names))
        if header is None:
            continue
        if header.raw and header.roles & _PER_ROW:
            rows = [(found[0][0], ["\t".join(names)])]
            rows += [(line, ["\t".join(fields.values())]) for line, fields in found]
            yield from read_raw_blocks(rows, context)
        else:
            before = [block for block in others if block[0] < found[0][0]]
            yield from read_blocks([*before, *_as_copies(header, found)], context)
    for line in cut:
        context.report.flag(FlagKind.ABORTED, "JSON is cut off: its whole records are read", line)
    context.report.kind = FileKind.JSON_RECORDS


def _restore_zeros(records: list[_Fields]) -> None:
    """Write the numbers of a column with equal digits: JSON drops the zeros of `17.50`.

    The digits tell how exact a number is.
    """
    for name in records[0]:
        matches = [_FRACTION.fullmatch(fields.get(name, "")) for fields in records]
        digits = max((len(match[1]) for match in matches if match is not None), default=0)
        for fields, match in zip(records, matches, strict=True):
            if match is not None:
                fields[name] += "0" * (digits - len(match[1]))


def _with_collective(found: list[_Found]) -> list[_Found]:
    """Return records in which the field whose values are collectives is named for that."""
    names = list(found[0][1])
    if {"collective", "op"} & {column_of(name).role for name in names}:
        return found
    for name in names:
        if all(collective_of_title(fields[name]) is not None for _, fields in found):
            return [
                (line, {"collective" if key == name else key: each for key, each in item.items()})
                for line, item in found
            ]
    return found


def _as_copies(header: Header, found: list[_Found]) -> Iterable[tuple[int, list[str]]]:
    """Yield the lines of a copied table for each variant or machine, and each collective."""
    places = header.at("collective") or ([] if "type" in header.roles else header.at("op"))
    name = header.columns[places[0]].name if places else ""
    by_test: dict[tuple[str, str], list[_Found]] = {}
    for line, fields in found:
        variants = variants_of(header, list(fields.values()))
        variant = ", ".join(variants.values())
        for each in variants:
            del fields[each]
        by_test.setdefault((variant, fields.pop(name, "")), []).append((line, fields))
    several = len({variant for variant, _ in by_test}) > 1
    for (variant, collective), rows in by_test.items():
        if several and variant:
            yield rows[0][0], [f"## {variant}"]
        if collective and (named := collective_of_title(collective)) is not None:
            yield rows[0][0], [f"# Collective test starting: {named.value}_perf"]
        yield rows[0][0], ["\t".join(rows[0][1])]
        yield from ((line, ["\t".join(fields.values())]) for line, fields in rows)
        yield rows[-1][0], [""]
