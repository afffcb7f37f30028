# SPDX-License-Identifier: Apache-2.0
"""Calls in NCCL's log. They have no durations."""

from collections.abc import Iterator
from typing import BinaryIO

from nccltune.formats.nccl_log.calls import read_calls
from nccltune.workload.call import CommCall, CommGroup, Recorded, Unread, total_bytes
from nccltune.workload.pytorch_names import operation_of


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
