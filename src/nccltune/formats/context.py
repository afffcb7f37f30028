# SPDX-License-Identifier: Apache-2.0
"""What every reader is given: the file, what the user told, the report to fill."""

from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

import msgspec

from nccltune.formats.nccl_log import NcclLog
from nccltune.formats.reading import FileReport
from nccltune.formats.runs import Batch
from nccltune.model.choice import AnyChoice
from nccltune.model.collective import Collective

Progress = Callable[[int], None]


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user told about the inputs; None leaves it to what they say themselves.

    `choice` and `collective` apply to every table. `started_here` says that we started the program
    ourselves: then `choice` is what was asked for, and no other evidence is compared with it.
    `per_iteration` makes a sample of each iteration that an nccl-tests JSON holds, instead of one
    with their mean.
    """

    study: str
    choice: AnyChoice | None = None
    collective: Collective | None = None
    nodes: int | None = None
    ranks: int | None = None
    per_iteration: bool = False
    started_here: bool = False


class Context(msgspec.Struct, kw_only=True):
    """One file being read.

    `name` is the file's name below the folder that was named (its evidence for choice and
    collective), `logs` the NCCL logs read from files of their own, by (host, process id),
    `modified` the time of the file in seconds since 1970.
    """

    name: str
    options: ReadOptions
    report: FileReport
    logs: dict[tuple[str, int], NcclLog] = {}
    progress: Progress | None = None
    modified: float | None = None


class Reader(Protocol):
    """One format: reads a file to its end and gives its samples in batches of bounded size.

    What cannot be read is told to the context's report; a file that is wrong as a whole raises
    InputError. The file is at its start and can be sought.
    """

    def __call__(self, file: BinaryIO, context: Context) -> Iterator[Batch]:
        """Batches of samples."""
        ...
