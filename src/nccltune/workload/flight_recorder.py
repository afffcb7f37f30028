# SPDX-License-Identifier: Apache-2.0
"""Dumps of PyTorch's Flight Recorder (2.4 to 2.11): pickles of plain values, or JSON.

A dump holds the last calls of a rank. Durations need TORCH_NCCL_ENABLE_TIMING.
"""

import io
import json
import pickle
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, ClassVar

import msgspec

from nccltune.formats.text.json_stream import JsonStream
from nccltune.model.errors import InputError
from nccltune.workload.call import CommCall, CommGroup, Recorded, Unread
from nccltune.workload.pytorch_names import (
    NO_CALL,
    elements_of,
    moved_elements,
    operation_of,
    plain_name,
    type_bytes,
)

PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04")
_MOST_PICKLE_BYTES = 512 << 20
_OPCODES = {
    value[0]
    for name, value in vars(pickle).items()
    if isinstance(value, bytes)
    and len(value) == 1
    and name
    in {
        "MARK", "STOP", "PROTO", "FRAME", "POP", "POP_MARK",
        "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
        "BINUNICODE", "SHORT_BINUNICODE", "BINSTRING", "SHORT_BINSTRING",
        "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS", "DICT", "LIST",
        "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
        "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "MEMOIZE",
    }
}  # fmt: skip
_Interpreter: Any = pickle._Unpickler  # type: ignore[attr-defined]
"""The one in Python: its table of opcodes can be limited, and its memo is no array of the size that
the file asks for."""


class _PlainUnpickler(_Interpreter):
    """Loads numbers, texts, lists, tuples and dicts. No opcode can name or call anything."""

    dispatch: ClassVar[dict[int, Any]] = {
        key: run for key, run in _Interpreter.dispatch.items() if key in _OPCODES
    }


class _Entry(msgspec.Struct):
    process_group: list[str] = []
    profiling_name: str = ""
    duration_ms: float | None = None
    input_sizes: list[list[int]] = []
    output_sizes: list[list[int]] = []
    input_dtypes: list[str] | str = []
    output_dtypes: list[str] | str = []


def read_flight_recorder(file: BinaryIO, name: str) -> Iterator[Recorded]:
    """Yield the calls of a dump. Raises InputError for a pickle with anything but plain values."""
    ranks: dict[str, int] = {}
    found: dict[tuple[str, str, _Key], list[float]] = {}
    start = file.read(2)
    file.seek(0)
    entries = _pickled(file, ranks) if start in PICKLE_STARTS else _of_json(file, ranks)
    for line, entry in entries:
        if entry is None:
            yield Unread("an entry that is not one of the Flight Recorder", line)
            continue
        _add(found, entry)
    for (group_name, description, key), (calls, timed, time_ms) in found.items():
        if key.words is not None:
            yield Unread(key.words, number=int(calls))
            continue
        size = ranks.get(group_name, 0)
        operation = operation_of(key.operation)
        assert operation is not None
        elements = moved_elements(operation, key.inputs, key.outputs, max(size, 1))
        yield CommCall(
            _rank_of(name),
            group_name,
            CommGroup(description, size),
            operation,
            elements * key.type_bytes,
            int(calls),
            1e3 * time_ms * calls / timed if timed else None,
        )


class _Key(msgspec.Struct, frozen=True):
    """Calls that are alike. `words` is why they cannot be read; None for those that can be."""

    operation: str = ""
    inputs: int = 0
    outputs: int = 0
    type_bytes: int = 0
    words: str | None = None


def _add(found: dict[tuple[str, str, _Key], list[float]], entry: _Entry) -> None:
    if plain_name(entry.profiling_name) in NO_CALL:
        return
    name, description = [*entry.process_group, "", ""][:2]
    types = [
        item
        for both in (entry.input_dtypes, entry.output_dtypes)
        for item in ([both] if isinstance(both, str) else both)
    ]
    operation = operation_of(entry.profiling_name)
    each = type_bytes(types[0]) if types else None
    sizes = elements_of(entry.input_sizes), elements_of(entry.output_sizes)
    if operation is None:
        key = _Key(words=f"{entry.profiling_name[:40]!r} is not a collective that is known")
    elif each is None or min(sizes) < 0 or not (entry.input_sizes or entry.output_sizes):
        key = _Key(words=f"{operation.prose} without sizes, or of an unknown type")
    else:
        key = _Key(operation.value, sizes[0], sizes[1], each)
    cell = found.setdefault((name, description, key), [0, 0, 0.0])
    cell[0] += 1
    if entry.duration_ms is not None and entry.duration_ms > 0:
        cell[1] += 1
        cell[2] += entry.duration_ms


def _of_json(file: BinaryIO, ranks: dict[str, int]) -> Iterator[tuple[int, _Entry | None]]:
    stream = JsonStream(file, frozenset({"entries"}))
    for item in stream:
        if item.key == "entries":
            try:
                yield item.line, msgspec.json.decode(item.raw or b"", type=_Entry, strict=False)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                yield item.line, None
        elif item.key == "pg_config" and item.raw is not None:
            try:
                ranks |= group_sizes(msgspec.json.decode(item.raw))
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                yield item.line, None
    if not stream.complete:
        yield 0, None


def _pickled(file: BinaryIO, ranks: dict[str, int]) -> Iterator[tuple[int, _Entry | None]]:
    data = file.read(_MOST_PICKLE_BYTES + 1)
    if len(data) > _MOST_PICKLE_BYTES:
        raise InputError("is a pickle of more than 512 MiB", hint="dump fewer entries, or as JSON")
    try:
        dump = _PlainUnpickler(io.BytesIO(data), encoding="utf-8", errors="replace").load()
    except Exception as error:  # damaged pickles raise any exception
        raise InputError(
            "is a pickle that is damaged, or holds more than numbers, texts, lists and dicts; only "
            "dumps of PyTorch's Flight Recorder are read",
            hint="name the files that TORCH_FR_DUMP_TEMP_FILE or TORCH_NCCL_DEBUG_INFO_TEMP_FILE "
            "set",
        ) from error
    entries = dump.get("entries") if isinstance(dump, dict) else None
    if not isinstance(entries, list | tuple):
        raise InputError("is a pickle without `entries`: no dump of PyTorch's Flight Recorder")
    ranks |= group_sizes(dump.get("pg_config"))
    for entry in entries:
        try:
            yield 0, msgspec.convert(entry, _Entry, strict=False)
        except (msgspec.ValidationError, RecursionError):
            yield 0, None


def group_sizes(config: object) -> dict[str, int]:
    """Return the number of ranks of each process group in PyTorch's description of them."""
    listed = config.values() if isinstance(config, dict) else config
    found = {}
    for item in listed if hasattr(listed, "__iter__") and not isinstance(listed, str) else ():
        if isinstance(item, dict):
            name, size = item.get("pg_name", item.get("name")), item.get("pg_size")
            size = size or item.get("group_size") or len(rank_list(item.get("ranks")))
            if isinstance(size, int) and size > 0:
                found[str(name)] = size
    return found


def rank_list(ranks: object) -> list[int]:
    """Return the ranks of a list, or of its text such as `[0, 1]`; empty for anything else."""
    if isinstance(ranks, str):
        # PyTorch shortens the text of a long list, which is then no JSON.
        try:
            ranks = json.loads(ranks)
        except (ValueError, RecursionError):
            return []
    if isinstance(ranks, list | tuple) and all(isinstance(rank, int) for rank in ranks):
        return list(ranks)
    return []


def _rank_of(name: str) -> str:
    """Return the rank at the end of a file's name, as PyTorch names dumps; else the name."""
    match = re.search(r"(\d{1,7})(?:\.(?:json|pkl|pickle))?(?:\.gz)?$", name)
    return f"rank {int(match[1])}" if match is not None else name
