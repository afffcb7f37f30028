# SPDX-License-Identifier: Apache-2.0
"""Files of nccltune's recorder (native/profiler/record_file.h). Times are those of a sample."""

import contextlib
from collections import Counter, defaultdict
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


class _Timed(msgspec.Struct):
    total_ns: _Natural
    bins: list[tuple[Annotated[int, msgspec.Meta(ge=0, lt=96)], _Natural]]


class _Row(msgspec.Struct):
    """Equal calls, or tasks of NCCL; without `bytes`, sizes from a power of two to the next."""

    function: str
    count: _Natural
    bytes: _Natural | None = None
    total_bytes: _Natural | None = None
    captured: bool = False
    timed: _Timed | None = None


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
    untimed: str = ""


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
    if record.untimed:
        yield Unread(f"times are missing: {record.untimed[:80]}")
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
        for key, row in _tasks(communicator):
            tasks[key] += row.count
        for key in +captured:
            counts[key] = max(counts[key], tasks[key])
        yield Unread(
            "of calls in CUDA graphs, only replays that use the network are counted",
            number=replayable,
        )
    yield from _timed(communicator, counts, recorder, group)


def _timed(
    communicator: _Communicator,
    counts: Counter[tuple[Operation, int]],
    recorder: str,
    group: CommGroup,
) -> Iterator[CommCall]:
    """Yield the calls, those that were timed apart from the others of their size."""
    total_us: Counter[tuple[Operation, int]] = Counter()
    bins: dict[tuple[Operation, int], Counter[int]] = defaultdict(Counter)
    for key, row in _tasks(communicator):
        if row.timed is not None:
            total_us[key] += row.timed.total_ns
            bins[key].update(dict(row.timed.bins))
    for key, calls in counts.items():
        size = total_bytes(*key, max(communicator.ranks, 1))
        call = CommCall(recorder, communicator.id, group, key[0], size, calls)
        timed = bins[key].total()
        if 0 < timed <= calls:
            sample = {"calls": timed, "time_us": total_us[key] / 1e3, "bins": (*bins[key].items(),)}
            yield msgspec.structs.replace(call, **sample)
            call = msgspec.structs.replace(call, calls=calls - timed)
        if call.calls:
            yield call


def _tasks(communicator: _Communicator) -> Iterator[tuple[tuple[Operation, int], _Row]]:
    """Yield the tasks of a known operation and size."""
    for row in _rows(communicator.tasks)[0]:
        if row.bytes is not None and (operation := operation_of(row.function)) is not None:
            yield (operation, row.bytes), row


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
