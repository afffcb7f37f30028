# SPDX-License-Identifier: Apache-2.0
"""Chakra traces: in protobuf (`.et`), and as JSON, the execution traces of PyTorch.

A `.et` has messages behind their lengths, each a node but the first.

Chakra's converter writes the kernels of a PyTorch trace with the arguments of their call. What
generators of synthetic traces write has only a size, which may be that of one rank.
"""

import ast
import contextlib
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec
from msgspec.structs import replace

from nccltune.formats.text.json_stream import JsonStream
from nccltune.workload.call import CommCall, CommGroup, Operation, Recorded, Unread
from nccltune.workload.pytorch_names import call_of, group_sizes, operation_of

_TYPE, _DURATION, _INPUTS, _ATTRIBUTE = 3, 7, 8, 10
_READ = frozenset({_TYPE, _DURATION, _INPUTS, _ATTRIBUTE})
"""Fields of a node."""
_KINDS = {5: "send", 6: "recv", 7: ""}
"""The types of nodes that communicate. The attribute `comm_type` has the kind of a collective."""
_COLLECTIVES = {
    0: "allreduce", 1: "reduce", 2: "allgather", 5: "broadcast", 6: "alltoall", 7: "reducescatter",
    9: "barrier",
}  # fmt: skip
_OF_ALL = (Operation.ALLGATHER, Operation.REDUCESCATTER, Operation.ALLTOALL)
"""Operations whose size of one rank is not that of all."""
_FIXED = {1: 8, 5: 4}
_MORE, _LONGEST_NUMBER = 0x80, 10
BARE = "calls without their attributes, as PyTorch wrote them before 2.2"
_MOST_BYTES, _MOST_NODE, _MOST_TEXT = 64 << 20, 1 << 20, 256 << 10


def read_chakra(file: BinaryIO, name: str) -> Iterator[Recorded]:
    """Yield the calls of a trace, with the times of their kernels."""
    for message in _messages(file):
        if isinstance(message, Unread):
            yield message
            continue
        if len(message) > _MOST_NODE:
            yield Unread("a message of more than 1 MiB")
            continue
        try:
            fields = [field for field in _fields(message) if field[0] in _READ]
            node = dict(fields)
            is_call = node.get(_TYPE) in _KINDS
            values = dict(_value(one) for key, one in fields if is_call and key == _ATTRIBUTE)
        except ValueError:
            yield Unread("a message that is no node of Chakra")
            continue
        if "comm_size" in values:  # Calls on the host, which have a kernel, have no size.
            call, time_us = _call(node, values, name), node.get(_DURATION)
            if isinstance(call, CommCall) and isinstance(time_us, int) and time_us:
                call = replace(call, time_us=float(time_us))
            if call is not None:
                yield call


def _call(node: dict[int, Any], values: dict[str, Any], name: str) -> CommCall | Unread | None:
    kind = _KINDS[node[_TYPE]] or _COLLECTIVES.get(values.get("comm_type", -1), "unknown")
    operation, inputs = operation_of(kind), _inputs(node)
    communicator, title, ranks = str(values.get("pg_name", "")), "", 0
    # The arguments of record_param_comms as PyTorch 2.4 has them: tensors, number, group, rank,
    # name, splits of both sides, first rank, stride, ranks.
    if len(inputs) > 9 and operation_of(str(inputs[4])) is operation:
        ranks = inputs[9] if isinstance(inputs[9], int) and inputs[9] > 0 else 0
        if isinstance(inputs[2], list) and len(inputs[2]) == 2:
            communicator, title = map(str, inputs[2])
    group = CommGroup(title, ranks)
    sides = [side for item in inputs if (side := _tensor_bytes(item))]
    gathers = operation is Operation.ALLGATHER and len(sides) < 2
    if operation in _OF_ALL and (not sides or (gathers and not ranks)):
        return Unread(f"{operation.prose} whose size may be that of one rank or of all")
    first, *more = sides or [values["comm_size"]]
    second = more[0] if more else first if gathers else 0
    return call_of(name, communicator, group, kind, first, second, "byte")


def _inputs(node: dict[int, Any]) -> list[Any]:
    """Return the arguments of a node, which are text of Python; empty if they cannot be read."""
    with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        text = dict(_fields(node.get(_INPUTS, b""))).get(1)
        if isinstance(text, bytes) and len(text) <= _MOST_TEXT:
            found = ast.literal_eval(text.decode())
            return found if isinstance(found, list) else []
    return []


def _tensor_bytes(item: object) -> int:
    """Return the bytes of a list of tensors `[id, storage, offset, elements, bytes, device]`."""
    if not isinstance(item, list):
        return 0
    if len(item) == 6 and isinstance(item[5], str):
        return math.prod(x if isinstance(x, int) and x > 0 else 0 for x in item[3:5])
    return sum(map(_tensor_bytes, item))


def _value(field: object) -> tuple[str, Any]:
    """Return the name and the value of an attribute. Raises ValueError."""
    found: dict[int, Any] = dict(_fields(field if isinstance(field, bytes) else b"\xff"))
    value = next((item for number, item in found.items() if number > 2), None)
    texts = [x.decode() if isinstance(x, bytes) else x for x in (found.get(1), value)]
    return str(texts[0]), texts[1]


def _messages(file: BinaryIO) -> Iterator[bytes | Unread]:
    """Yield the messages of a file, and at its end whether it is cut off."""
    while start := file.read(1):
        while start[-1] >= _MORE and len(start) < _LONGEST_NUMBER and (byte := file.read(1)):
            start += byte
        size, end = _number(start, 0) if start[-1] < _MORE else (-1, 0)
        message = file.read(size) if 0 <= size <= _MOST_BYTES else b""
        if len(message) != size:
            yield Unread("the file is cut off or damaged")
            return
        yield message


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes | None]]:
    """Yield the fields of a message; numbers of a fixed length are None. Raises ValueError."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        value: int | bytes | None = None
        size = _FIXED.get(tag & 7)
        if tag & 7 == 0:
            value, at = _number(message, at)
        elif tag & 7 == 2:
            size, at = _number(message, at)
            value = message[at : at + size]
        elif size is None:
            raise ValueError(tag)
        at += size or 0
        if at > len(message):
            raise ValueError(at)
        yield tag >> 3, value


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position behind it. Raises ValueError."""
    value = 0
    for shift, byte in enumerate(data[at : at + _LONGEST_NUMBER]):
        value |= (byte & ~_MORE) << 7 * shift
        if byte < _MORE:
            return value, at + shift + 1
    raise ValueError(at)


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
                yield Unread(BARE, item.line)
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
                is_even=values.get("in_split_size") == values.get("out_split_size") == "[]",
            )
            if isinstance(call, Unread):
                yield msgspec.structs.replace(call, line=item.line)
            elif call is not None:
                yield call
    if not stream.complete:
        yield Unread("the file is cut off")
