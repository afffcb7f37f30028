# SPDX-License-Identifier: Apache-2.0
"""Files that every experiment writes to its study: lines appended as results arrive, and a summary
of how the run ended."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from nccltune.model.sample import SCHEMA_VERSION
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
        """Yield every line in order; none where the file does not exist.

        Raises StudyError for a damaged line.
        """
        if self.path.exists():
            yield from self._study.read_lines(self.path, self._kind)

    def read(self) -> list[LineT]:
        """Return every line in order. Raises StudyError for a damaged line."""
        return list(self.stream())

    def append(self, lines: Iterable[LineT], *, to_disk: bool = True) -> None:
        """Append `lines`. With `to_disk` they are on disk when this returns.

        Raises StudyError for a failed write.
        """
        self._study.append_lines(self.path, lines, to_disk=to_disk)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `sweep.json`: how a run ended.

    reason     `done`, `budget` or `interrupted`
    points     points that this run measured
    known      points taken from the study
    seconds    seconds of the bench, recorded ones in a replay
    gain_left  gain still to be found, as a fraction; None where the plan does not estimate it
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
    """Write STUDY/sweep.json.

    Raises StudyError for a failed write.
    """
    study.write_json(study.path / names.SWEEP, summary)


def timestamp() -> str:
    """Return the current time in UTC as ISO 8601, with seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
