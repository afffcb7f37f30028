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
    """What a sample was measured for. Analysis and rule search use `TUNE` alone."""

    TUNE = "tune"
    """To find rules: of a sweep, or imported."""
    VERIFY = "verify"
    """To prove rules. They must not be judged by the timings that led to them."""
    AB = "ab"
    """To compare settings: its default is not the platform's alone, its rounds are its own."""


_OLD_PURPOSES = {" verify": Purpose.VERIFY, " try": Purpose.AB}
_OLD_SUFFIXES = tuple(_OLD_PURPOSES)


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a sample comes from.

    `tool` and `version` name what measured; `file_hash` is the first 16 hex digits of the SHA-256
    of the file it was read from; `host_hash` stands for the host name, which is never stored.
    `process` names one start of the program that measured: timings of one process share its offset
    and are not independent of each other. None in studies of nccltune 0.1.
    `in_rounds` states that processes with the same `round` ran close together in time. Without it
    only timings of the same process share their rounds.
    `purpose` is read from a suffix of `tool` in files of nccltune 0.2 and earlier.
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
        """Read the old form."""
        if not self.tool.endswith(_OLD_SUFFIXES):
            return
        for suffix, purpose in _OLD_PURPOSES.items():
            if self.tool.endswith(suffix):
                msgspec.structs.force_setattr(self, "tool", self.tool.removesuffix(suffix))
                msgspec.structs.force_setattr(self, "purpose", purpose)


class Sample(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of `samples.jsonl`; a field that is absent is at its default.

    `bytes` is the size as NCCL's tuner counts it (all-gather and reduce-scatter: the sum over
    ranks). `time_us` is microseconds of one call, the mean over `iterations` calls, of the slowest
    rank where the tool knows it. `round` counts passes over all choices, `repeat` timings of the
    same choice within a round. `wrong` counts wrong elements; None means that nobody checked.
    `ran` is what NCCL reports that it ran. `settings` were in force beside those of the platform
    (None: unset); only samples of purpose `ab` have them. `at` is an ISO 8601 time: when the timing
    was taken, or, for an imported file, when its process ran as far as there is evidence of that.
    """

    # A factory, so that it is written even at its default: readers of later versions look for it.
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
