# SPDX-License-Identifier: Apache-2.0
"""Write an import into a study completely; after a failure, the study is unchanged."""

import contextlib
import fcntl
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from nccltune.model.errors import StudyError
from nccltune.study.files import Study

_MARK = ".import.json"
_CHUNK = 1 << 20


class _Mark(msgspec.Struct, frozen=True):
    """An import in progress.

    `start` is the size of samples.jsonl before the import. `file_hashes` are the hashes of the
    imported files.
    """

    start: int
    file_hashes: list[str]


class _Line(msgspec.Struct, frozen=True):
    file_hash: str | None = None


class _SampleLine(msgspec.Struct, frozen=True):
    source: _Line = msgspec.field(default_factory=_Line)


class StudyWriter:
    """A context manager that writes one import.

    If an exception leaves the block, everything that was written is removed, including new folders.
    """

    def __init__(self, path: Path, file_hashes: Iterable[str]) -> None:
        self.study = Study(path)
        self._hashes = sorted(set(file_hashes))
        self._new_folders: list[Path] = []
        self._new_files: list[Path] = []
        self._start = 0
        self._end: int | None = None
        self._imports_start = 0

    def __enter__(self) -> Self:
        folder = self.study.path.absolute()
        while not folder.exists():
            self._new_folders.append(folder)
            folder = folder.parent
        try:
            Study.create(self.study.path)
            samples = self.study.samples_path
            if samples.exists():
                self.study.append_lines(samples, [])
                self._start = samples.stat().st_size
            else:
                self._new_files.append(samples)
            imports = self.study.imports_path
            if imports.exists():
                self.study.append_lines(imports, [])
                self._imports_start = imports.stat().st_size
            else:
                self._new_files.append(imports)
            self._write_mark()
        except BaseException:
            self._take_back()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._take_back()
        self._mark.unlink(missing_ok=True)

    @property
    def _mark(self) -> Path:
        return self.study.path / _MARK

    def _write_mark(self) -> None:
        mark = _Mark(self._start, self._hashes)
        self.study.write_text(self._mark, msgspec.json.encode(mark).decode() + "\n")

    def add_samples(self, chunks: Iterable[bytes]) -> None:
        """Append samples; `chunks` consist of whole lines.

        Raises StudyError if they cannot be written.
        """
        path = self.study.samples_path
        self.study.append_lines(path, (msgspec.Raw(chunk.removesuffix(b"\n")) for chunk in chunks))
        self._end = path.stat().st_size

    def write_new(self, path: Path, text: str) -> None:
        """Write a file that the study does not have yet.

        Raises UnwritableError if it cannot be written.
        """
        self._new_files.append(path)
        self.study.write_text(path, text)

    def finish(self, records: list[Any]) -> None:
        """Append the records of the files. This completes the import.

        Raises StudyError if they cannot be written.
        """
        self.study.append_lines(self.study.imports_path, records)

    def _take_back(self) -> None:
        before = (
            (self.study.samples_path, self._start, self._end),
            (self.study.imports_path, self._imports_start, None),
        )
        for path, start, end in before:
            if path not in self._new_files and path.exists():
                with contextlib.suppress(OSError):
                    _cut(path, start, end)
        for path in (*self._new_files, self._mark):
            # The study's path may be a file. Then the error that led here names this.
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        for folder in self._new_folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _cut(path: Path, start: int, end: int | None) -> None:
    """Remove the bytes from `start` to `end` from a file; None as `end` is the end of the file.

    Bytes after `end` are kept, because another process appended them.
    """
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        to = start
        at = file.seek(0, 2) if end is None else end
        while True:
            file.seek(at)
            chunk = file.read(_CHUNK)
            if not chunk:
                break
            at += len(chunk)
            file.seek(to)
            file.write(chunk)
            to += len(chunk)
        file.truncate(to)


def take_back_interrupted(study: Study) -> int:
    """Remove the samples of an import that was killed; return the number of removed samples.

    Return 0 if no import was interrupted. Samples that other processes appended meanwhile are kept.
    Raises StudyError if the study is damaged or cannot be written.
    """
    path = study.path / _MARK
    if not path.is_file():
        return 0
    mark = study.read_json(path, _Mark)
    done = {line.file_hash for line in study.imports(_Line)}
    hashes = set(mark.file_hashes) - done
    removed = 0
    if hashes and study.samples_path.is_file():
        study.append_lines(study.samples_path, [])
        removed = _remove(study.samples_path, mark.start, hashes)
        if not study.samples_path.stat().st_size:
            study.samples_path.unlink()
    path.unlink(missing_ok=True)
    return removed


def _remove(path: Path, start: int, hashes: set[str]) -> int:
    decoder = msgspec.json.Decoder(_SampleLine)
    removed = 0
    try:
        with path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            to = file.seek(start)
            for line in _lines(file, start):
                if decoder.decode(line).source.file_hash in hashes:
                    removed += 1
                    continue
                file.seek(to)
                file.write(line)
                to += len(line)
            file.truncate(to)
    except msgspec.MsgspecError as error:
        raise StudyError(f"is damaged: {error}", where=str(path)) from error
    except OSError as error:
        raise StudyError(f"cannot be written: {error.strerror}", where=str(path)) from error
    return removed


def _lines(file: Any, start: int) -> Iterator[bytes]:
    """Yield the lines of a file while the caller rewrites the part that was already read."""
    at = start
    while True:
        file.seek(at)
        line = file.readline()
        if not line:
            return
        at += len(line)
        yield line
