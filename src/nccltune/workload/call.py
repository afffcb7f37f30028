# SPDX-License-Identifier: Apache-2.0
"""A call of a job: the neutral form of all readers."""

from enum import StrEnum

import msgspec

from nccltune.model.collective import Collective


class Operation(StrEnum):
    """What a job calls. Send and recv are two calls; nccl-tests measures both as one collective."""

    ALLREDUCE = "allreduce"
    ALLGATHER = "allgather"
    REDUCESCATTER = "reducescatter"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALLTOALL = "alltoall"
    ALLTOALLV = "alltoallv"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND = "send"
    RECV = "recv"

    @property
    def collective(self) -> Collective:
        """Return the collective that measures this operation."""
        if self in (Operation.SEND, Operation.RECV):
            return Collective.SENDRECV
        return Collective(self.value)

    @property
    def prose(self) -> str:
        """Return the name in prose: `all-reduce`, `send`."""
        return self.value if self.collective is Collective.SENDRECV else self.collective.prose

    @property
    def part(self) -> float:
        """Return the part of a transfer that a call is: a send and its receive are one message.

        Every format has an entry at each end. So the mean over ranks counts each message once.
        """
        return 0.5 if self.collective is Collective.SENDRECV else 1.0


def total_bytes(operation: Operation, per_rank: int, ranks: int) -> int:
    """Return the size that NCCL's tuner sees, from the one that an application passes to NCCL.

    >>> total_bytes(Operation.ALLGATHER, 1024, 8), total_bytes(Operation.ALLREDUCE, 1024, 8)
    (8192, 1024)
    """
    return per_rank * ranks if operation.collective.counts_per_rank else per_rank


class CommGroup(msgspec.Struct, frozen=True, order=True):
    """Communicators of one name and scale, such as the tensor-parallel groups of a job.

    `name` is empty if nobody gave one. `nodes` and `ranks` are 0 if the recording does not state
    them.
    """

    name: str
    ranks: int
    nodes: int = 0


class CommCall(msgspec.Struct, frozen=True):
    """Calls of one rank that are alike.

    - `communicator`: an identifier that tells communicators of one group apart
    - `recorder`: the rank that recorded it, by any name that tells ranks apart
    - `bytes`: the total size as NCCL's tuner counts it
    - `time_us`: the sum over `calls` on the GPU, with the time that a rank waits for its peers;
      None if unknown
    - `exposed_us`: the part of `time_us` in which the GPU ran no other kernel; None if unknown
    - `bins`: if the calls are those of a random sample: how many have their time in which bin
    """

    recorder: str
    communicator: str
    group: CommGroup
    operation: Operation
    bytes: int
    calls: int = 1
    time_us: float | None = None
    exposed_us: float | None = None
    bins: tuple[tuple[int, int], ...] = ()

    @property
    def is_possible(self) -> bool:
        """Return whether NCCL can count the bytes and ranks, and the time is below 30 years."""
        is_counted = self.bytes < 1 << 63 and self.group.ranks < 1 << 31
        return is_counted and (self.time_us or 0.0) < 1e15


class Steps(msgspec.Struct, frozen=True):
    """The steps (iterations) that a rank recorded, and their duration in total."""

    recorder: str
    steps: int
    time_us: float


class Unread(msgspec.Struct, frozen=True):
    """Entries of a recording that could not be read, or facts that limit it.

    `line` is 0 for the whole file. `reason` is a sentence that is the same for equal problems.
    `time_us` is the time of what could not be read, if that is known.
    """

    reason: str
    line: int = 0
    number: int = 1
    time_us: float = 0.0


class LastCall(msgspec.Struct, frozen=True):
    """The number of the last call of a rank, and of its first that `waits` for its end, or 0."""

    recorder: str
    name: str
    members: str
    called: int
    waits: int


Recorded = CommCall | LastCall | Steps | Unread
"""What the readers yield."""
