# SPDX-License-Identifier: Apache-2.0
"""The names and types that PyTorch gives collectives in its traces and dumps (2.0 to 2.11)."""

import math
import re
from collections.abc import Iterable

from nccltune.workload.call import Operation

NO_CALL = frozenset({"wait", "init", "barrier", "coalesced", "start_coalescing", "end_coalescing"})
"""Entries that move no data by themselves. `wait` is the wait of a stream; the calls of a coalesced
group have entries of their own; a barrier runs as an all-reduce that is listed as such."""

_TYPE_BYTES = {
    "byte": 1, "char": 1, "bool": 1, "uint8": 1, "int8": 1,
    "short": 2, "int16": 2, "half": 2, "float16": 2, "bfloat16": 2, "uint16": 2,
    "int": 4, "int32": 4, "uint32": 4, "float": 4, "float32": 4,
    "long": 8, "int64": 8, "uint64": 8, "double": 8, "float64": 8,
    "complexhalf": 4, "complexfloat": 8, "complex64": 8, "complexdouble": 16, "complex128": 16,
}  # fmt: skip
_FLOAT8 = re.compile(r"float8\w{0,20}")
_DROPPED = re.compile(
    r"^(?:nccl|rccl|xccl):|[\s_-]|base$|oop$|coalesced$|into|tensor|sparse$|barrier$|anysource$"
)
_KNOWN = {
    "allreduce": Operation.ALLREDUCE,
    "allgather": Operation.ALLGATHER,
    "reducescatter": Operation.REDUCESCATTER,
    "broadcast": Operation.BROADCAST,
    "bcast": Operation.BROADCAST,
    "reduce": Operation.REDUCE,
    "alltoall": Operation.ALLTOALL,
    "alltoallv": Operation.ALLTOALLV,
    "gather": Operation.GATHER,
    "scatter": Operation.SCATTER,
    "send": Operation.SEND,
    "recv": Operation.RECV,
}


def plain_name(name: str) -> str:
    """Return the name of a call without a backend, peers, underscores and variants.

    >>> plain_name("nccl:_all_gather_base"), plain_name("nccl:send 0->1"), plain_name("wait")
    ('allgather', 'send', 'wait')
    """
    plain = name.strip().lower()[:100]
    if plain.partition(":")[2] in NO_CALL or plain in NO_CALL:
        return plain.rpartition(":")[2]
    plain = re.sub(r"\s*\d+\s*(?:->|<-)\s*\d+\s*$", "", plain)
    before = ""
    while before != plain:
        before, plain = plain, _DROPPED.sub("", plain)
    return plain


def operation_of(name: str) -> Operation | None:
    """Return the operation that a name of PyTorch or NCCL stands for; None for another word."""
    return _KNOWN.get(plain_name(name))


def type_bytes(name: str) -> int | None:
    """Return the size of an element of a type such as `Float`, `c10::BFloat16`, `float32`."""
    plain = re.sub(r"^(?:c10::|torch\.)|[_\s]", "", name.strip().lower())
    plain = {"longint": "long", "shortint": "short"}.get(plain, plain)
    plain = re.sub(r"^(?:un)?signed(?=char$)", "", plain)
    return 1 if _FLOAT8.match(plain) else _TYPE_BYTES.get(plain)


def elements_of(shapes: Iterable[Iterable[int]]) -> int:
    """Return the number of elements of tensors with these shapes.

    >>> elements_of([[4, 2], [3]]), elements_of([[]])
    (11, 1)
    """
    return sum(math.prod(shape) for shape in shapes)


def moved_elements(operation: Operation, inputs: int, outputs: int, ranks: int) -> int:
    """Return the elements that make the size of a call as NCCL's tuner counts it.

    The larger side of all-gather, reduce-scatter, gather and scatter is that of all ranks. Where
    only one rank has the larger side, the smaller one is multiplied by `ranks`.

    >>> moved_elements(Operation.ALLGATHER, 8, 64, 8), moved_elements(Operation.GATHER, 8, 0, 8)
    (64, 64)
    """
    larger = max(inputs, outputs)
    if operation is Operation.GATHER:
        return max(larger, inputs * ranks)
    if operation is Operation.SCATTER:
        return max(larger, outputs * ranks)
    if operation in (Operation.ALLGATHER, Operation.REDUCESCATTER):
        return max(larger, min(inputs, outputs) * ranks)
    return larger
