# SPDX-License-Identifier: Apache-2.0
"""Dumps of communicators by NCCLX (`ncclCommDump`): the calls that its CollTrace kept, in JSON.

A dump is an object of texts, of one communicator or of several by their hash. A count is that of
the NCCL call; times are between CUDA events around the kernel.
"""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from nccltune.model.errors import InputError
from nccltune.workload.call import CommCall, CommGroup, Recorded, Unread, total_bytes
from nccltune.workload.pytorch_names import operation_of, type_bytes

PAST = "CT_pastColls"
_MOST_BYTES = 64 << 20


def read_comm_dump(file: BinaryIO, name: str) -> Iterator[Recorded]:
    """Yield the calls of a dump. Raises InputError for a file that is cut off or too large."""
    data = file.read(_MOST_BYTES + 1)
    try:
        dump = json.loads(data)
    except (ValueError, RecursionError) as error:
        large = len(data) > _MOST_BYTES
        what = "is larger than 64 MiB" if large else "is no whole JSON document"
        raise InputError(f"{what}, as a dump is", hint="dump each rank to its file") from error
    for comm_hash, comm in [("", dump), *dump.items()]:
        if isinstance(comm, dict) and PAST in comm:
            yield from _of_communicator(comm, str(comm.get("commHash", comm_hash)), name)
    yield Unread("the trace keeps the last calls of each communicator only (CollTrace of NCCLX)")


def _of_communicator(comm: dict[str, Any], comm_hash: str, name: str) -> Iterator[Recorded]:
    ranks, nodes = _number(comm.get("nRanks")), _number(comm.get("nNodes"))
    group = CommGroup(str(comm.get("commDesc", "")), ranks, nodes)
    past = comm[PAST]
    try:
        calls = json.loads(past) if isinstance(past, str) else past
    except (ValueError, RecursionError):
        calls = None
    for call in calls if isinstance(calls, list) else [None]:
        fields = call if isinstance(call, dict) else {}
        operation = operation_of(str(fields.get("opName", "")))
        size, count = type_bytes(str(fields.get("dataType", ""))), fields.get("count")
        if operation is None or size is None or not isinstance(count, int) or count <= 0:
            yield Unread("a call without a size, or not a collective that is known")
        elif operation.collective.counts_per_rank and not ranks:
            yield Unread("a call whose communicator has no number of ranks (nRanks)")
        else:
            time_ms = fields.get("latencyMs")
            size = total_bytes(operation, count * size, ranks)
            time_us = None
            if isinstance(time_ms, int | float) and time_ms > 0:
                time_us = time_ms * 1000
            yield CommCall(name, comm_hash, group, operation, size, time_us=time_us)


def _number(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() else 0
