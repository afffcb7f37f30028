# SPDX-License-Identifier: Apache-2.0
"""JSON lines of NCCL's Inspector (profiler plugin, output formats v4.0 to v4.4).

A line has a communicator and one call of it. Lines with `dump_stats` count what the ring dropped;
since v4.3 they alone name the communicator, for as many of the next lines as they state.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from nccltune.formats.text.lines import line_blocks
from nccltune.workload.call import CommCall, CommGroup, Operation, Recorded, Unread, total_bytes
from nccltune.workload.pytorch_names import operation_of

_TIMED = ("kernel_gpu", "kernel_cpu")
"""Sources of times of the kernel. `collective_cpu` is the time of the call on the host."""
LEAST_BYTES = 8192
"""Messages below this size are not recorded by default (NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES)."""


class _Header(msgspec.Struct):
    id: str = ""
    comm_name: str = ""
    rank: int = 0
    n_ranks: int = 0
    nnodes: int = 0


class _Metadata(msgspec.Struct):
    hostname: str = ""
    pid: int = 0


class _Dropped(msgspec.Struct):
    coll_dropped_since_last_dump: int = 0
    p2p_dropped_since_last_dump: int = 0
    coll_records: int = 0
    p2p_records: int = 0
    proxy_records: int = 0


class _Line(_Header):
    """A line. Older forms have the members of the header and the metadata at its top."""

    hostname: str = ""
    pid: int = 0
    header: _Header | None = None
    metadata: _Metadata | None = None
    coll_perf: dict[str, Any] | None = None
    p2p_perf: dict[str, Any] | None = None
    dump_stats: _Dropped | None = None


_DECODER = msgspec.json.Decoder(_Line, strict=False)


def read_inspector(file: BinaryIO, name: str) -> Iterator[Recorded]:
    """Yield the calls of a file, and what the Inspector dropped."""
    smallest: int | None = None
    marker, left = _Line(), 0
    for first, lines in line_blocks(file):
        for number, text in enumerate(lines, first):
            if not text.strip():
                continue
            try:
                line = _DECODER.decode(text)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                yield Unread("the line is not one of the Inspector, or is cut off", number)
                continue
            if line.dump_stats is not None:
                stats = line.dump_stats
                marker, left = line, stats.coll_records + stats.p2p_records + stats.proxy_records
            elif line.header is None and left > 0:
                left -= 1
                line.header, line.metadata = marker.header, marker.metadata
            elif line.header is None and line.n_ranks:
                line.header = line
            for found in _of_line(line, name, number):
                if isinstance(found, CommCall):
                    smallest = found.bytes if smallest is None else min(found.bytes, smallest)
                yield found
    if smallest is not None and smallest >= LEAST_BYTES:
        yield Unread(
            "no message is below 8 KiB: by default the Inspector does not record these "
            "(NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES=0 records all)"
        )


def _of_line(line: _Line, name: str, number: int) -> Iterator[Recorded]:
    metadata = line.metadata or _Metadata(line.hostname, line.pid)
    dropped = line.dump_stats
    if dropped is not None:
        lost = dropped.coll_dropped_since_last_dump + dropped.p2p_dropped_since_last_dump
        if lost:
            yield Unread("calls that the ring of the Inspector dropped are missing", number, lost)
    kind, perf = ("coll", line.coll_perf) if line.coll_perf else ("p2p", line.p2p_perf)
    if perf is None:
        return
    header = line.header
    if header is None:
        yield Unread(
            "the line that names the communicator of a call (dump_stats) is missing", number
        )
        return
    function, size = str(perf.get(kind, ""))[:40], perf.get(f"{kind}_msg_size_bytes")
    time_us, source = perf.get(f"{kind}_exec_time_us"), perf.get(f"{kind}_timing_source")
    operation = operation_of(function)
    if operation is None or not isinstance(size, int) or size < 0:
        yield Unread(f"{function} without a size, or not a collective that is known", number)
        return
    # Since NCCL 2.31 the times of the kernels of broadcasts may be those of other calls.
    is_timed = source in _TIMED and operation is not Operation.BROADCAST
    is_timed = is_timed and isinstance(time_us, int | float) and time_us > 0
    yield CommCall(
        f"{metadata.hostname}:{metadata.pid}/{header.rank}" if metadata.pid else name,
        header.id,
        CommGroup(
            "" if header.comm_name == "unknown" else header.comm_name,
            max(header.n_ranks, 0),
            max(header.nnodes, 0),
        ),
        operation,
        total_bytes(operation, size, max(header.n_ranks, 1)),
        time_us=time_us if is_timed else None,
    )
