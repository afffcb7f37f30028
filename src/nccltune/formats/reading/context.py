# SPDX-License-Identifier: Apache-2.0
"""The input of every reader: the file, the user's options, and the report to fill."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.reading.file_report import FileReport
from nccltune.formats.reading.runs import RunSamples
from nccltune.model.choice import AnyChoice
from nccltune.model.collective import Collective

Progress = Callable[[int], None]
Copies = dict[Path | None, BinaryIO]


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The user's options for the inputs. If an option is None, the inputs decide.

    - `choice` and `collective` apply to every table.
    - `comparing`: runs are compared with each other. A run in which NCCL was limited to one
      algorithm or protocol is one of NCCL's default.
    - `started_here`: nccltune started the program itself. Then `choice` is the choice that nccltune
      requested, and is not compared with other evidence.
    - `per_iteration`: make a sample of each iteration in an nccl-tests JSON file, instead of one
      sample of their mean.
    - `copies`: open copies of what can be read only once (standard input, None, and pipes), which
      are kept for the next reading with the same options; None keeps no copy.
    """

    study: str
    choice: AnyChoice | None = None
    collective: Collective | None = None
    nodes: int | None = None
    ranks: int | None = None
    per_iteration: bool = False
    started_here: bool = False
    comparing: bool = False
    copies: Copies | None = None


class Context(msgspec.Struct, kw_only=True):
    """The context of one file that is read.

    - `name`: the file's path below the folder that the user named. The name is evidence for the
      choice and the collective.
    - `logs`: NCCL logs that were read from files of their own, by (host, process id).
    - `environment`: the settings in the output of `env` beside the file; None without one.
    - `collective`: the only one that the start of the file names.
    - `unit`: that of all values, by a sentence at its start; empty if none states it.
    - `nccl`: the only version of NCCL that its start names.
    - `modified`: the time of the file in seconds since 1970.
    """

    name: str
    options: ReadOptions
    report: FileReport
    logs: dict[tuple[str, int], NcclLog] = {}
    environment: Mapping[str, str] | None = None
    progress: Progress | None = None
    collective: Collective | None = None
    unit: str = ""
    nccl: str | None = None
    modified: float | None = None


class Reader(Protocol):
    """A reader of one format. It reads a file to its end and yields samples in bounded batches.

    Unreadable lines go to the report of the context. If the file is invalid as a whole, the reader
    raises InputError. The file is seekable and at its start.
    """

    def __call__(self, file: BinaryIO, context: Context) -> Iterator[RunSamples]:
        """Yield the samples of `file` in batches."""
        ...
