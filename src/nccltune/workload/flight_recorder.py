# SPDX-License-Identifier: Apache-2.0
"""Dumps of PyTorch's Flight Recorder (2.4 to 2.11): pickles of plain values, or JSON.

A dump holds the last calls of a rank. Durations need TORCH_NCCL_ENABLE_TIMING.
"""

import contextlib
import io
import pickle
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, ClassVar

import msgspec

from nccltune.formats.text.json_stream import JsonStream
from nccltune.model.errors import InputError
from nccltune.model.names import listed
from nccltune.workload.call import CommCall, CommGroup, LastCall, Recorded, Unread
from nccltune.workload.pytorch_names import call_of, elements_of, group_sizes

PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04")
_MOST_PICKLE_BYTES = 64 << 20
_MOST_SIZES = 100_000
"""Sizes of tensors in an entry. A pickle can name one list many times."""
_RANK = re.compile(r"(\d{1,7})(?:\.(?:json|pkl|pickle))?(?:\.gz)?$")
"""The rank at the end of a file's name, as PyTorch names dumps."""
_OPCODES = {
    getattr(pickle, name)[0]
    for name in listed("""
MARK STOP PROTO FRAME POP POP_MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT
BINUNICODE SHORT_BINUNICODE BINSTRING SHORT_BINSTRING EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM
SETITEMS DICT LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 BINPUT LONG_BINPUT BINGET LONG_BINGET
MEMOIZE
""")
}
_Interpreter: Any = pickle._Unpickler
"""The one in Python: its table of opcodes can be limited, and its memo is no array of the size that
the file asks for."""


class _PlainUnpickler(_Interpreter):  # type: ignore[misc]
    """Loads numbers, texts, lists, tuples and dicts. No opcode can name or call anything."""

    dispatch: ClassVar[dict[int, Any]] = {
        key: run for key, run in _Interpreter.dispatch.items() if key in _OPCODES
    }


class _Entry(msgspec.Struct):
    record_id: int = 0
    process_group: list[str] = []
    profiling_name: str = ""
    duration_ms: float | None = None
    input_sizes: list[list[int]] = []
    output_sizes: list[list[int]] = []
    input_dtypes: list[str] = []
    output_dtypes: list[str] = []
    state: str | None = None
    is_p2p: bool | None = None
    collective_seq_id: int | None = None


def read_flight_recorder(file: BinaryIO, name: str) -> Iterator[Recorded]:
    """Yield the calls of a dump. Raises InputError for a pickle with anything but plain values."""
    match = _RANK.search(name)
    recorder = name if match is None else f"rank {int(match[1])}"
    start = file.read(2)
    file.seek(0)
    config, entries = (_pickled if start in PICKLE_STARTS else _of_json)(file)
    ranks, left_out, last = group_sizes(config), 0, dict[str, LastCall]()
    for number, (line, entry) in enumerate(entries, 1):
        if entry is not None:
            left_out = max(left_out, entry.record_id + 1 - number)
            _follow(entry, recorder, config, last)
        if entry is None:
            yield Unread("an entry that is not one of the Flight Recorder, or is cut off", line)
        elif (found := _call(entry, recorder, ranks)) is not None:
            yield found
    if left_out > 0:
        yield Unread("calls that PyTorch recorded before are not in the dump", number=left_out)
    yield from last.values()


def _follow(entry: _Entry, recorder: str, config: object, last: dict[str, LastCall]) -> None:
    """Keep where the rank is in each process group whose ranks are known.

    The calls of a group end in order. PyTorch never sets the state of a call in a coalesced one.
    """
    name, title = [*entry.process_group, "", ""][:2]
    number, group = entry.collective_seq_id, config.get(name) if isinstance(config, dict) else None
    if entry.is_p2p or not number or not isinstance(group, dict) or not group.get("ranks"):
        return
    before = last.get(name) or LastCall(recorder, title or name, str(group["ranks"]), 0, 0)
    waits = 0 if entry.state == "completed" else before.waits or number
    last[name] = msgspec.structs.replace(before, called=number, waits=waits)


def _call(entry: _Entry, recorder: str, ranks: dict[str, int]) -> CommCall | Unread | None:
    name, description = [*entry.process_group, "", ""][:2]
    types = [*entry.input_dtypes, *entry.output_dtypes]
    is_sized = bool(entry.input_sizes or entry.output_sizes)
    found = call_of(
        recorder,
        name,
        CommGroup(description, ranks.get(name, 0)),
        entry.profiling_name,
        elements_of(entry.input_sizes) if is_sized else None,
        elements_of(entry.output_sizes),
        types[0] if types else "",
    )
    if isinstance(found, CommCall) and entry.duration_ms is not None and entry.duration_ms > 0:
        found = msgspec.structs.replace(found, time_us=1e3 * entry.duration_ms)
    return found


_Entries = Iterator[tuple[int, _Entry | None]]


def _of_json(file: BinaryIO) -> tuple[object, _Entries]:
    """Return the groups and the entries. PyTorch writes the groups after the entries."""
    config: object = None
    for item in JsonStream(file, frozenset({"entries"})):
        if item.key == "pg_config":
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                config = msgspec.json.decode(item.raw or b"")
    file.seek(0)
    return config, _entries(JsonStream(file, frozenset({"entries"})))


def _entries(stream: JsonStream) -> _Entries:
    for item in stream:
        if item.key == "entries":
            try:
                yield item.line, msgspec.json.decode(item.raw or b"", type=_Entry, strict=False)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                yield item.line, None
    if not stream.complete:
        yield 0, None


def _pickled(file: BinaryIO) -> tuple[object, _Entries]:
    data = file.read(_MOST_PICKLE_BYTES + 1)
    if len(data) > _MOST_PICKLE_BYTES:
        raise InputError("is a pickle of more than 64 MiB", hint="dump fewer entries, or as JSON")
    try:
        dump = _PlainUnpickler(io.BytesIO(data), encoding="utf-8", errors="replace").load()
    except Exception as error:  # damaged pickles raise any exception
        if not data.endswith(pickle.STOP):
            hint = "copy the whole file again, or record it anew"
            raise InputError("is a pickle that is cut off", hint=hint) from error
        raise InputError(
            "is a pickle that is damaged, or holds more than numbers, texts, lists and dicts; only "
            "dumps of PyTorch's Flight Recorder are read",
            hint="name the files that TORCH_FR_DUMP_TEMP_FILE or TORCH_NCCL_DEBUG_INFO_TEMP_FILE "
            "set",
        ) from error
    entries = dump.get("entries") if isinstance(dump, dict) else None
    if not isinstance(entries, list | tuple):
        raise InputError(
            "is a pickle without `entries`: no dump of PyTorch's Flight Recorder",
            hint="name a dump of the Flight Recorder",
        )
    return dump.get("pg_config"), map(_converted, entries)


def _converted(entry: object) -> tuple[int, _Entry | None]:
    lists = [x for x in entry.values() if isinstance(x, list)] if isinstance(entry, dict) else []
    if (
        sum(len(x) if isinstance(x, list | tuple) else 1 for own in lists for x in own)
        > _MOST_SIZES
    ):
        return 0, None
    try:
        return 0, msgspec.convert(entry, _Entry, strict=False)
    except (msgspec.ValidationError, RecursionError):
        return 0, None
