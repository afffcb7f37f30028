# SPDX-License-Identifier: Apache-2.0
"""Execution traces of PyTorch in JSON (ExecutionTraceObserver), also called Chakra host traces.

They have no durations.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from nccltune.formats.text.json_stream import JsonStream
from nccltune.workload.call import CommGroup, Recorded, Unread
from nccltune.workload.pytorch_names import call_of, group_sizes

_CALL, _GROUPS = b"record_param_comms", b"process_group:init"


class _Attribute(msgspec.Struct):
    name: str
    value: Any = None


class _Node(msgspec.Struct):
    name: str
    attrs: list[_Attribute] = []
    inputs: Any = None


def read_execution_trace(file: BinaryIO, name: str) -> Iterator[Recorded]:
    """Yield the calls of a trace."""
    ranks: dict[str, int] = {}
    stream = JsonStream(file, frozenset({"nodes"}))
    for item in stream:
        raw = item.raw or b""
        if item.key != "nodes" or not (_CALL in raw or _GROUPS in raw):
            continue
        try:
            node = msgspec.json.decode(raw, type=_Node)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            yield Unread("a node that is not one of an execution trace", item.line)
            continue
        if _GROUPS.decode() in node.name:
            with contextlib.suppress(msgspec.DecodeError, TypeError, LookupError, RecursionError):
                ranks |= group_sizes(msgspec.json.decode(node.inputs["values"][0]))
        elif node.name == _CALL.decode():
            values = {attribute.name: attribute.value for attribute in node.attrs}
            if "collective_name" not in values:
                reason = "calls without their attributes, as PyTorch wrote them before 2.2"
                yield Unread(reason, item.line)
                continue
            group = str(values.get("pg_name", ""))
            size = values.get("pg_size")
            size = size if isinstance(size, int) and size > 0 else ranks.get(group, 0)
            call = call_of(
                name,
                group,
                CommGroup(str(values.get("pg_desc", "")), size),
                str(values.get("collective_name", "")),
                values.get("in_msg_nelems"),
                values.get("out_msg_nelems"),
                str(values.get("dtype", "")),
            )
            if isinstance(call, Unread):
                yield msgspec.structs.replace(call, line=item.line)
            elif call is not None:
                yield call
    if not stream.complete:
        yield Unread("the file is cut off")
