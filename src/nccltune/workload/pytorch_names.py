# SPDX-License-Identifier: Apache-2.0
"""Names, types and groups of collectives as PyTorch 2.0 to 2.11 writes them."""

import json
import math
import re
from collections.abc import Iterable

from nccltune.workload.call import CommCall, CommGroup, Operation, Unread

NO_CALL = frozenset({
    "wait", "init", "barrier", "coalesced", "start_coalescing", "end_coalescing",
    "broadcastuniquencclid",
})  # fmt: skip
"""Entries that move no data by themselves. `wait` is the wait of a stream; the calls of a coalesced
group have entries of their own; a barrier runs as an all-reduce that is listed as such."""

_TYPE_BYTES = {
    "byte": 1, "char": 1, "bool": 1, "uint8": 1, "int8": 1,
    "short": 2, "int16": 2, "half": 2, "float16": 2, "bfloat16": 2, "uint16": 2,
    "int": 4, "int32": 4, "uint32": 4, "float": 4, "float32": 4,
    "long": 8, "int64": 8, "uint64": 8, "double": 8, "float64": 8,
    "complexhalf": 4, "complexfloat": 8, "complex64": 8, "complexdouble": 16, "complex128": 16,
}  # fmt: skip
_FLOAT8 = re.compile(r"f(?:loat|p)8\w{0,20}")
_DROPPED = re.compile(
    r"^(?:nccl|rccl|xccl):|[\s_-]|base$|oop$|coalesced$|into|tensor|sparse$|barrier$|anysource$"
)
_KNOWN = {item.value: item for item in Operation} | {"bcast": Operation.BROADCAST}


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
    """Return the size of an element of a type such as `Float`, `c10::BFloat16`, `ncclHalf`."""
    plain = re.sub(r"^(?:c10::|torch\.|nccl|comm)|[_\s]", "", name.strip().lower())
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


_OTHERS = ("gloo", "mpi", "ucc")
"""Backends of PyTorch beside NCCL."""


def call_of(
    recorder: str,
    communicator: str,
    group: CommGroup,
    name: str,
    inputs: object,
    outputs: object,
    dtype: str,
    *,
    is_even: bool = False,
) -> CommCall | Unread | None:
    """Return one call from what PyTorch records of it; None for an entry that is no call.

    `is_even`: it has no sizes of parts. PyTorch names each `all_to_all_single` `all_to_allv`.
    """
    if plain_name(name) in NO_CALL:
        return None
    if (backend := name.partition(":")[0]) in _OTHERS:
        return Unread(f"calls of {backend}, which are none of NCCL's")
    operation, each = operation_of(name), type_bytes(dtype)
    if is_even and operation is Operation.ALLTOALLV:
        operation = Operation.ALLTOALL
    if operation is None:
        return Unread(f"{name[:40]!r} is not a collective that is known")
    if not isinstance(inputs, int) or not isinstance(outputs, int) or min(inputs, outputs) < 0:
        return Unread(f"{operation.prose} without its numbers of elements")
    if each is None:
        return Unread(f"{operation.prose} of {dtype[:40]!r}, a type of unknown size")
    size = each * moved_elements(operation, inputs, outputs, max(group.ranks, 1))
    return CommCall(recorder, communicator, group, operation, size)


def group_sizes(config: object) -> dict[str, int]:
    """Return the number of ranks of each process group in PyTorch's description of them."""
    listed = config.values() if isinstance(config, dict) else config
    found = {}
    for item in listed if isinstance(listed, Iterable) else ():
        if isinstance(item, dict):
            size = (
                item.get("pg_size") or item.get("group_size") or len(rank_list(item.get("ranks")))
            )
            if isinstance(size, int) and size > 0:
                found[str(item.get("pg_name", item.get("name")))] = size
    return found


def rank_list(ranks: object) -> list[int]:
    """Return the ranks of a list, or of its text such as `[0, 1]`; empty for anything else."""
    if isinstance(ranks, str):
        # PyTorch shortens the text of a long list, which is then no JSON.
        try:
            ranks = json.loads(ranks)
        except (ValueError, RecursionError):
            return []
    if isinstance(ranks, list | tuple) and all(isinstance(rank, int) for rank in ranks):
        return list(ranks)
    return []
