# SPDX-License-Identifier: Apache-2.0
"""A sample: one timing of one collective at one size with one choice."""

from enum import StrEnum
from typing import Annotated

import msgspec

from nccltune.model.choice import AnyChoice, Choice
from nccltune.model.collective import Collective

SCHEMA_VERSION = 1

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Purpose(StrEnum):
    """The purpose of a sample. Analysis and rule search use samples of purpose `TUNE` only."""

    TUNE = "tune"
    """To find rules. Samples of a sweep and imported samples have this purpose."""
    VERIFY = "verify"
    """To prove rules. Rules must not be judged by the timings from which they were found."""
    AB = "ab"
    """To compare settings. Such samples may have settings that the platform does not have."""


_OLD_PURPOSES = {" verify": Purpose.VERIFY, " try": Purpose.AB}
_OLD_SUFFIXES = tuple(_OLD_PURPOSES)


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """The origin of a sample.

    `tool` and `version` name the program that measured. `file_hash` is the first 16 hex digits of
    the SHA-256 of the file that the sample was read from. `host_hash` is a hash of the host name,
    which is never stored.

    `process` identifies one start of the program that measured. Timings of one process share an
    offset, so they are not independent. `process` is None in studies of nccltune 0.1.

    `in_rounds` states that processes with the same `round` ran close together in time. If it is
    False, `round` can be compared only within one process.

    In files of nccltune 0.2 and earlier, `purpose` is read from a suffix of `tool`.
    """

    tool: str
    version: str | None = None
    nccl_version: str | None = None
    host_hash: str | None = None
    file_hash: str | None = None
    process: str | None = None
    in_rounds: bool = False
    purpose: Purpose = Purpose.TUNE

    def __post_init__(self) -> None:
        """Move the suffix of `tool` in files of nccltune 0.2 and earlier to `purpose`."""
        if not self.tool.endswith(_OLD_SUFFIXES):
            return
        for suffix, purpose in _OLD_PURPOSES.items():
            if self.tool.endswith(suffix):
                msgspec.structs.force_setattr(self, "tool", self.tool.removesuffix(suffix))
                msgspec.structs.force_setattr(self, "purpose", purpose)


class Sample(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of `samples.jsonl`. A field that is absent has its default value.

    `bytes` is the size as NCCL's tuner counts it: for all-gather and reduce-scatter the sum over
    the ranks, for a group of calls the sum over the calls. `time_us` is the mean time of a call, or
    of a whole group, in microseconds over `iterations` of them. If the tool measures every rank,
    the time is that of the slowest.

    `group_calls` is the number of equal calls between `ncclGroupStart` and `ncclGroupEnd`; 1 is a
    call without a group. `pipe_ops` is NCCL's `numPipeOps`, an input of its tuner: the calls of a
    group for each channel of the communicator, so it is 1 for most groups.

    `round` numbers the passes over all
    choices. `repeat` numbers the timings of one choice within a round. `wrong` is the number of
    wrong elements; None if the results were not checked.

    `ran` is the choice that NCCL reports to have run. `settings` are environment variables that
    differ from those of the platform (None: unset); only samples of purpose `ab` have them. `at` is
    the ISO 8601 time of the timing. For an imported file it is the time at which its process ran,
    if known.
    """

    # `omit_defaults` leaves out a plain default, but not the value of a factory. Later versions
    # need this field in every line.
    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    study: str
    collective: Collective
    bytes: Count
    dtype: str | None = None
    redop: str | None = None
    root: int | None = None
    nodes: Positive | None = None
    ranks: Positive | None = None
    in_place: bool = False
    registered: bool = False
    graph: bool = False
    group_calls: Positive = 1
    pipe_ops: Positive = 1
    choice: AnyChoice
    ran: Choice | None = None
    settings: dict[str, str | None] = {}
    round: Count = 0
    repeat: Count = 0
    iterations: Positive | None = None
    time_us: Annotated[float, msgspec.Meta(gt=0)]
    wrong: Count | None = None
    source: Source
    at: str | None = None
