# SPDX-License-Identifier: Apache-2.0
"""Files of a study that experiments write: append-only files of lines, and the summary of a
sweep."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from nccltune.measure.bench.conditions import REPLAY_TOOL, TOOL
from nccltune.measure.bench.conversation import Hello
from nccltune.model.sample import SCHEMA_VERSION, Source
from nccltune.study import names
from nccltune.study.files import Study

LineT = TypeVar("LineT")


class LineFile(Generic[LineT]):
    """One append-only JSON Lines file of a study, with lines of type `kind`."""

    def __init__(self, study: Study, name: str, kind: type[LineT]) -> None:
        self.path: Path = study.path / name
        self._study = study
        self._kind = kind

    def stream(self) -> Iterator[LineT]:
        """Yield every line in order, none without a file. Raises StudyError for a damaged one."""
        if self.path.exists():
            yield from self._study.read_lines(self.path, self._kind)

    def read(self) -> list[LineT]:
        """Return every line in order. Raises StudyError for a damaged line."""
        return list(self.stream())

    def append(self, lines: Iterable[LineT], *, to_disk: bool = True) -> None:
        """Append `lines`, synced if `to_disk`. Raises StudyError for a failed write."""
        self._study.append_lines(self.path, lines, to_disk=to_disk)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `sweep.json`: how a run ended (`done`, `budget` or `interrupted`).

    `points` are new, `known` from the study, `failed` without a valid timing. `seconds` in a replay
    are those of the replayed timings. `gain_left` is a fraction, None if not estimated.
    """

    schema_version: int = SCHEMA_VERSION
    reason: str
    points: int
    known: int
    failed: int
    seconds: float
    gain_left: float | None
    replay: str | None
    command: str


def write_summary(study: Study, summary: Summary) -> None:
    """Write STUDY/sweep.json. Raises StudyError for a failed write."""
    study.write_json(study.path / names.SWEEP, summary)


def source_of(hello: Hello) -> Source:
    """Return the source of the timings that a bench gives."""
    return Source(
        tool=REPLAY_TOOL if hello.replay else TOOL,
        version=hello.version,
        nccl_version=hello.nccl.version,
        host_hash=next((gpu.host_hash for gpu in hello.gpus if gpu.host_hash), None),
    )


def timestamp() -> str:
    """Return the current time in UTC as ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
