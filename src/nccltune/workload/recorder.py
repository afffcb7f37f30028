# SPDX-License-Identifier: Apache-2.0
"""Files of nccltune's recorder (native/profiler/record_file.h). They have no durations."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, BinaryIO

import msgspec

from nccltune.model.errors import InputError
from nccltune.workload.call import CommCall, CommGroup, Operation, Recorded, Unread, total_bytes
from nccltune.workload.jobs import Member, RecordedProcess
from nccltune.workload.pytorch_names import operation_of

_VERSION = 1
_MOST_BYTES = 256 << 20
_FIRST_WITH_CALLS = 5
"""From this profiler interface on (NCCL 2.28), NCCL reports the program's calls."""


_Natural = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _Row(msgspec.Struct):
    """Equal calls, or tasks of NCCL; without `bytes`, sizes from a power of two to the next."""

    function: str
    count: _Natural
    bytes: _Natural | None = None
    total_bytes: _Natural | None = None
    captured: bool = False


_ROW = msgspec.json.Decoder(_Row)


class _Communicator(msgspec.Struct):
    name: str
    id: str
    ranks: int
    nodes: int
    interface: int
    calls: list[msgspec.Raw]
    tasks: list[msgspec.Raw]
    rank: int | None = None
    communicators: int = 1
    device: int | None = None
    lost_calls: int = 0


class _Record(msgspec.Struct):
    nccltune_record: int
    host: str
    pid: int
    ended: bool
    communicators: list[_Communicator]
    started: int = 0
    lost_calls: int = 0
    lost_communicators: int = 0


def recorded_process(file: BinaryIO) -> RecordedProcess:
    """Return what a file states about its job. Raises what `read_recorder` raises."""
    record = _read(file)
    members = [
        Member(item.id, item.name, item.ranks, item.rank, item.communicators)
        for item in record.communicators
    ]
    has_calls = any(item.calls or item.tasks for item in record.communicators)
    return RecordedProcess(record.started, members, not record.lost_communicators, has_calls)


def read_recorder(file: BinaryIO, name: str) -> Iterator[Recorded]:
    """Yield the calls of a file. Raises InputError if it is damaged or of another version."""
    record = _read(file)
    lost = record.lost_calls
    for communicator in record.communicators:
        lost += communicator.lost_calls
        yield from _calls(communicator, name)
    if lost:
        yield Unread("calls and tasks that had no place in the recorder are missing", number=lost)
    if not record.ended:
        yield Unread("the process had not ended: later calls may be missing")


def _read(file: BinaryIO) -> _Record:
    try:
        record = msgspec.json.decode(file.read(_MOST_BYTES), type=_Record)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InputError(
            f"is no whole file of the recorder: {error}", hint="let the job write it again"
        ) from None
    if record.nccltune_record != _VERSION:
        raise InputError(
            f"is of version {record.nccltune_record} of the recorder; this release reads version "
            f"{_VERSION}",
            hint="read it with the nccltune that recorded it",
        )
    return record


def _calls(communicator: _Communicator, name: str) -> Iterator[Recorded]:
    group = CommGroup(communicator.name, max(communicator.ranks, 0), max(communicator.nodes, 0))
    recorder = name if communicator.device is None else f"{name}/{communicator.device}"
    has_calls = communicator.interface >= _FIRST_WITH_CALLS
    counts: Counter[tuple[Operation, int]] = Counter()
    captured: Counter[tuple[Operation, int]] = Counter()
    rows, damaged = _rows(communicator.calls if has_calls else communicator.tasks)
    if damaged:
        yield Unread("rows whose function, count or bytes cannot be right", number=damaged)
    for row in rows:
        operation = operation_of(row.function)
        if operation is None:
            reason = f"{row.function[:40]} is not a collective that is known"
            yield Unread(reason, number=row.count)
        elif row.count > 0:
            counts[operation, _bytes(row)] += row.count
            captured[operation, _bytes(row)] += row.count * row.captured
            if row.bytes is None:
                yield Unread("calls have the mean of their sizes: too many sizes", number=row.count)
    if replayable := captured.total():
        # The tasks of a captured call are reported for each replay with network operations.
        tasks: Counter[tuple[Operation, int]] = Counter()
        for row in _rows(communicator.tasks)[0]:
            if row.bytes is not None and (operation := operation_of(row.function)) is not None:
                tasks[operation, row.bytes] += row.count
        for key in +captured:
            counts[key] = max(counts[key], tasks[key])
        yield Unread(
            "of calls in CUDA graphs, only replays that use the network are counted",
            number=replayable,
        )
    for (operation, per_rank), calls in counts.items():
        size = total_bytes(operation, per_rank, max(communicator.ranks, 1))
        yield CommCall(recorder, communicator.id, group, operation, size, calls)


def _rows(texts: list[msgspec.Raw]) -> tuple[list[_Row], int]:
    """Return the rows, and the number of those that cannot be right."""
    rows = []
    for text in texts:
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            row = _ROW.decode(text)
            if row.bytes is not None or row.total_bytes is not None:
                rows.append(row)
    return rows, len(texts) - len(rows)


def _bytes(row: _Row) -> int:
    return (row.total_bytes or 0) // row.count if row.bytes is None else row.bytes
