# SPDX-License-Identifier: Apache-2.0
"""Find the format of each file by content, and read all files into one table."""

import contextlib
import gzip
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from nccltune.formats.importing.foreign_programs import foreign_program
from nccltune.formats.importing.inputs import InputFile, find_inputs
from nccltune.formats.nccl_log.calls import read_calls
from nccltune.formats.nccl_log.lines import find_log_line
from nccltune.formats.text.lines import check_text, encoding_of, line_blocks
from nccltune.model.errors import InputError
from nccltune.workload.call import CommCall, CommGroup, Recorded, Unread, total_bytes
from nccltune.workload.chakra import BARE, read_chakra, read_execution_trace
from nccltune.workload.comm_dump import PAST, read_comm_dump
from nccltune.workload.flight_recorder import PICKLE_STARTS, read_flight_recorder
from nccltune.workload.inspector import read_inspector
from nccltune.workload.jobs import RecordedProcess, newest_job
from nccltune.workload.kineto import UNSIZED, read_kineto
from nccltune.workload.pytorch_names import operation_of
from nccltune.workload.recorder import read_recorder, recorded_process
from nccltune.workload.table import RefusedFile, Workload, WorkloadTable

FORMATS = (
    "a log of NCCL (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL), a trace of the PyTorch profiler, "
    "a PyTorch execution trace in JSON, a Chakra trace, a Flight Recorder dump, "
    "JSON lines of NCCL's Inspector, a dump of NCCLX, or the folder of nccltune's recorder"
)
_HEAD_BYTES = 1 << 16
_SEARCHED_BYTES = 64 << 20
_GZIP = b"\x1f\x8b"
_CHAKRA = re.compile(rb"\n\x09(?:is_cpu_op|comm_type|comm_size)")
"""The name of an attribute, of 9 bytes, in Chakra's protobuf format."""
_CUT = "cut off"
_LOG_CALLS = "log the calls: NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL"
_AGAIN = "copy the whole file again, or record it anew"


def read_log(file: BinaryIO, name: str) -> Iterator[Recorded]:  # noqa: ARG001
    """Yield the calls of a log."""
    for line, call in read_calls(file):
        if isinstance(call, str):
            yield Unread("the line of a call is not as NCCL 2.18 to 2.32 writes it", line)
            continue
        operation = operation_of(call.function)
        if operation is None:
            yield Unread(f"{call.function} is not a collective that is known", line)
            continue
        size = total_bytes(operation, call.count * call.type_bytes, call.ranks)
        group = CommGroup("", call.ranks, call.nodes)
        yield CommCall(call.process, call.communicator, group, operation, size)


class _Format(NamedTuple):
    title: str
    read: Callable[[BinaryIO, str], Iterator[Recorded]]


_LOG = _Format("NCCL log", read_log)
_DUMP = _Format("Flight Recorder dump", read_flight_recorder)
_RECORD = re.compile(rb'"nccltune_record"\s*:')
_STUDY = re.compile(r'\{\s*"schema_version"\s*:\s*\d+,\s*"(?:study|name)"')
_JSON: tuple[tuple[re.Pattern[bytes], _Format], ...] = (
    (re.compile(rb'"%s"\s*:' % PAST.encode()), _Format("NCCLX dump", read_comm_dump)),
    (_RECORD, _Format("nccltune recorder", read_recorder)),
    (
        re.compile(rb'"(?:inspector_output_format_version|coll_perf|p2p_perf)"\s*:'),
        _Format("NCCL Inspector", read_inspector),
    ),
    (
        re.compile(rb'"(?:traceEvents|deviceProperties|distributedInfo)"\s*:'),
        _Format("PyTorch profiler trace", read_kineto),
    ),
    (re.compile(rb'"(?:pg_config|comm_lib_version|nccl_version|profiling_name)"\s*:'), _DUMP),
    (
        re.compile(rb'"(?:schema|nodes)"\s*:\s*["\[]'),
        _Format("PyTorch execution trace", read_execution_trace),
    ),
)


def read_workload(paths: Iterable[Path]) -> Workload:
    """Read recordings of one job: files, and all files in folders.

    A file that cannot be read is listed in the result. Of several jobs of the recorder, the newest
    is read, and a remark names all. Raises InputError if a name does not exist, or if no file has a
    call.
    """
    table = WorkloadTable()
    inputs = list(find_inputs(paths))
    processes = {
        str(item.path): process for item in inputs if (process := _process(item)) is not None
    }
    own, table.notes = newest_job(processes)
    others = processes.keys() - own
    for item in inputs:
        if str(item.path) in others:
            continue
        try:
            with _opened(item) as file:
                found = _format_of(file, item.name)
                if table.add(_to_end(found.read(file, str(item.path)), file), item.name):
                    table.formats[found.title] = table.formats.get(found.title, 0) + 1
                    continue
            reasons = [f"{found.title} without a call", *table.reasons(item.name)]
            hint = "record while the job communicates"
            if any(_CUT in reason for reason in reasons):
                hint = _AGAIN
            elif BARE in reasons:
                hint = f"record with PyTorch 2.2 or later, or {_LOG_CALLS}"
            elif UNSIZED in reasons:
                hint = f"record with PyTorch 2.2 or later and without CUDA graphs, or {_LOG_CALLS}"
            elif found is _LOG:
                hint = _LOG_CALLS
            refused = RefusedFile(item.name, "; ".join(reasons), hint)
        except InputError as error:
            refused = RefusedFile(item.name, error.message, error.hint)
        except OSError as error:
            reason = f"cannot be read: {error.strerror or error}"
            refused = RefusedFile(item.name, reason, "check this file")
        table.refused.append(refused)
    workload = table.workload()
    if not workload.rows:
        first = next(iter(table.refused), None)
        if first is None:
            raise InputError("no file to read", hint=f"name {FORMATS}")
        raise InputError(first.reason, where=first.file, hint=first.hint)
    return workload


def _process(item: InputFile) -> RecordedProcess | None:
    """Return what a file of the recorder with a communicator states about its job."""
    with contextlib.suppress(InputError, OSError), _opened(item) as file:
        head = file.read(_HEAD_BYTES)
        file.seek(0)
        if head.lstrip()[:1] == b"{" and _RECORD.search(head):
            process = recorded_process(file)
            return process if process.members else None
    return None


class _Unpacked(gzip.GzipFile):
    """A file of gzip that ends where it is cut off or damaged."""

    is_cut = False

    def read(self, size: int | None = -1) -> bytes:
        left = sys.maxsize if size is None or size < 0 else size
        parts = []
        try:
            while left > 0 and (part := self.read1(min(left, _HEAD_BYTES))):
                parts.append(part)
                left -= len(part)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.is_cut = True
        return b"".join(parts)


def _to_end(items: Iterable[Recorded], file: BinaryIO) -> Iterator[Recorded]:
    """Yield what a reader finds, and whether the file ended early."""
    try:
        yield from items
    except OSError as error:
        yield Unread(f"the file cannot be read to its end: {error.strerror or error}")
    if getattr(file, "is_cut", False):
        yield Unread("the compressed file is cut off or damaged")


@contextmanager
def _opened(item: InputFile) -> Iterator[BinaryIO]:
    """Open a file, unpacked if it is compressed by gzip."""
    if item.path is None or not item.path.is_file():
        raise InputError("is no regular file", hint="write it to a file first")
    with item.path.open("rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        if not packed:
            yield file
            return
        with _Unpacked(fileobj=file) as unpacked:
            yield cast(BinaryIO, unpacked)


def _format_of(file: BinaryIO, name: str) -> _Format:
    """Return the format of a file. Raises InputError for another one."""
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    if not head and getattr(file, "is_cut", False):
        raise InputError("is cut off or damaged", hint=_AGAIN)
    if not head:
        raise InputError("is empty", hint="record while the job communicates")
    if head[257:262] == b"ustar":
        raise InputError("is an archive (tar)", hint=f"unpack it first: tar -xf {name}")
    if head[:2] in PICKLE_STARTS:
        return _DUMP
    if _CHAKRA.search(head):
        return _Format("Chakra trace", read_chakra)
    check_text(head)
    start = head.decode(encoding_of(head[:4]), errors="replace").lstrip("\ufeff \r\n\t")
    if _STUDY.match(start):
        raise InputError(
            "is a file of a study, and no recording of a job",
            hint="nccltune tune STUDY --workload RECORDING shows what the study's rules are worth",
        )
    if start[:1] == "{":
        for pattern, found in _JSON:
            if pattern.search(head):
                return found
    for _, lines in line_blocks(file):
        if any(map(find_log_line, lines)):
            file.seek(0)
            return _LOG
        if file.tell() > _SEARCHED_BYTES:
            break
    foreign = foreign_program(start)
    what = f"is output of {foreign.name}, and" if foreign is not None else "is"
    raise InputError(f"{what} no recording of a job's communication", hint=f"name {FORMATS}")
