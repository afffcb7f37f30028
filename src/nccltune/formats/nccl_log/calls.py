# SPDX-License-Identifier: Apache-2.0
"""Read the calls in NCCL's log (NCCL_DEBUG_SUBSYS=COLL, `enqueue.cc`, 2.18 to 2.32).

NCCL logs a line for each call and rank. Only the lines of its start name the nodes of a
communicator. A call that a CUDA graph captures is logged once, when it is captured. RCCL also
names the buffer `acc`.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from nccltune.formats.nccl_log.lines import log_lines

TYPE_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""The size of an element by the number of its `ncclDataType_t`."""

_CALL = re.compile(
    r"(?P<function>\w{1,40}): opCount (?P<op>[0-9a-f]{1,16}) sendbuff \S{1,20} recvbuff \S{1,20} "
    r"(?:acc \S{1,20} )?count (?P<count>\d{1,19}) datatype (?P<type>\d{1,3}) op \d{1,10} "
    r"root -?\d{1,10} comm (?P<comm>\S{1,20}) \[nranks=(?P<ranks>\d{1,9})\]"
)
_COMM = re.compile(
    r"\bcomm (?P<comm>0x[0-9a-f]{1,16}) rank \d{1,9} n[rR]anks (?P<ranks>\d{1,9})\b"
    r"(?: nNodes (?P<nodes>\d{1,9})\b)?"
)
_COMM_ID = re.compile(r"\bcommId (?P<id>0x[0-9a-f]{1,16})")
_MOST_COMMUNICATORS = 1 << 16


class LoggedCall(msgspec.Struct, frozen=True):
    """A call of one rank.

    - `function`: as NCCL names it, such as `AllGather`
    - `count`: elements as the application passes them, for all-gather and reduce-scatter per rank
    - `communicator`: NCCL's id of the communicator, or its address in the process
    - `nodes`: 0 if the log has no line of the start of the communicator that names them
    - `process`: host, process id and device
    - `op`: NCCL's number of the call in its communicator; calls of a group have the same
    """

    function: str
    count: int
    type_bytes: int
    communicator: str
    ranks: int
    nodes: int
    process: str
    op: int = 0


def read_calls(file: BinaryIO) -> Iterator[tuple[int, LoggedCall | str]]:
    """Yield the calls of a log with their lines, and a sentence for a line that cannot be read."""
    ids: dict[tuple[str, str], str] = {}
    nodes: dict[tuple[str, str], int] = {}
    for number, line, match in log_lines(file):
        message = match.string[match.end() :]
        if "comm " not in message:
            continue
        process = f"{match['host']}:{match['pid']}"
        if "opCount" not in message:
            if (comm := _COMM.search(message)) and len(ids) + len(nodes) < _MOST_COMMUNICATORS:
                key = process, comm["comm"]
                if comm["nodes"]:
                    nodes[key] = int(comm["nodes"])
                if comm_id := _COMM_ID.search(message):
                    ids[key] = comm_id["id"]
            continue
        call = _CALL.match(message.lstrip())
        if call is None or int(call["type"]) >= len(TYPE_BYTES):
            yield number, f"a call that cannot be read: {line[:120]}"
            continue
        key = process, call["comm"]
        device = match[0].partition(" [")[2].partition("]")[0]
        yield (
            number,
            LoggedCall(
                call["function"],
                int(call["count"]),
                TYPE_BYTES[int(call["type"])],
                ids.get(key, f"{process}/{call['comm']}"),
                int(call["ranks"]),
                nodes.get(key, 0),
                f"{process} [{device}]" if device.isdigit() else process,
                int(call["op"], 16),
            ),
        )
