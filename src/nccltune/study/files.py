# SPDX-License-Identifier: Apache-2.0
"""A study: the folder that holds everything measured and decided for one platform.

platform.json    what it was measured on
topology.xml     a node's hardware, where somebody gave it (or topo.xml; topo.txt: nvidia-smi's)
samples.jsonl    every timing, append only
imports.jsonl    what was read from where, and what could not be read
sweep.jsonl      points of a sweep that gave no timing, and why; sweep.json is how it ended
sendrecv.json    from which size on copy engines pay; sendrecv.conf: what to set
try.jsonl        processes of trials of settings; try.json: the last verdict; try.conf: what is kept
findings.json    what `analyze` found
tuning.json      the rules with their evidence; tuner.conf is what NCCL's plugin reads
proof.json       the rules proven by `verify`; verify.jsonl: its points that gave no timing
doctor.json      what the doctor found of the platform
deployed.json    a stock program without and with the rules, by NCCL's own log
report.html      what a person reads
"""

import fcntl
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from nccltune.model.errors import StudyError, UnwritableError
from nccltune.model.platform import Platform
from nccltune.model.sample import SCHEMA_VERSION, Sample
from nccltune.study import names

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_WRITE_BYTES = 1 << 20
TOPOLOGY_FILES = ("topology.xml", "topo.xml", "topo.txt")
"""The names that a node's hardware may have in a study. The first that exists is read."""


class Study:
    """A study folder. `open` checks that it is one. Files are read when a method asks for them.

    >>> from nccltune.examples import example
    >>> study = Study.open(example("h200x4-as-4-nodes"))
    >>> study.platform().nccl_version
    '2.28.9'
    >>> next(study.samples()).collective.prose
    'all-reduce'
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path) -> "Study":
        """Return an existing study.

        Raises StudyError where `path` is missing, is a file, or is a folder without
        `samples.jsonl` and `platform.json`.
        """
        study = cls(path)
        if path.is_file():
            raise StudyError(
                "is a file, not a study folder",
                where=str(path),
                hint=f"make a study of it: nccltune import {path} -o studies/NAME",
            )
        if not path.is_dir():
            raise StudyError(
                "no such study",
                where=str(path),
                hint="make one: nccltune import FILES... -o STUDY, or try: nccltune demo",
            )
        if not study.samples_path.is_file() and not study.platform_path.is_file():
            raise StudyError(
                "holds neither samples.jsonl nor platform.json, so it is no study",
                where=str(path),
                hint=f"make one: nccltune import FILES... -o {path}",
            )
        return study

    @classmethod
    def create(cls, path: Path) -> "Study":
        """Open the study at `path`, or make its folder; an existing study is not changed.

        Raises StudyError where the folder cannot be made.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StudyError(
                f"the folder cannot be made: {error.strerror}",
                where=str(path),
                hint="name another folder with -o",
            ) from error
        return cls(path)

    @property
    def name(self) -> str:
        """Return the folder's name."""
        return self.path.resolve().name

    @property
    def platform_path(self) -> Path:
        """Return the path of `platform.json`."""
        return self.path / names.PLATFORM

    @property
    def samples_path(self) -> Path:
        """Return the path of `samples.jsonl`."""
        return self.path / names.SAMPLES

    @property
    def imports_path(self) -> Path:
        """Return the path of `imports.jsonl`."""
        return self.path / names.IMPORTS

    @property
    def findings_path(self) -> Path:
        """Return the path of `findings.json`."""
        return self.path / names.FINDINGS

    @property
    def tuning_path(self) -> Path:
        """Return the path of `tuning.json`."""
        return self.path / names.TUNING

    @property
    def config_path(self) -> Path:
        """Return the path of `tuner.conf`."""
        return self.path / names.TUNER_CONF

    @property
    def doctor_path(self) -> Path:
        """Return the path of `doctor.json`."""
        return self.path / names.DOCTOR

    @property
    def report_path(self) -> Path:
        """Return the path of `report.html`."""
        return self.path / names.REPORT

    @property
    def topology_path(self) -> Path | None:
        """Return the path of the file with the node's hardware; None without one."""
        paths = (self.path / name for name in TOPOLOGY_FILES)
        return next((path for path in paths if path.is_file()), None)

    def platform(self) -> Platform:
        """Return what the study was measured on; only its name where it was not recorded.

        Raises StudyError where `platform.json` is damaged or of a newer nccltune.
        """
        if not self.platform_path.is_file():
            return Platform(name=self.name)
        return self.read_json(self.platform_path, Platform)

    def samples(self) -> Iterator[Sample]:
        """Yield every sample in the order measured. Raises StudyError as `read_lines` does."""
        yield from self.read_lines(self.samples_path, Sample)

    def append_lines(self, path: Path, items: Iterable[Any], *, to_disk: bool = True) -> int:
        """Append `items` to a JSON Lines file of this study in whole lines; return their number.

        Once this returns, the lines survive the end of this process. With `to_disk` they survive a
        crash of the machine too. An unfinished last line, left by an interruption, is repaired
        first, so that the new lines stay readable. A file lock serialises writers. Raises
        UnwritableError where the file cannot be written; earlier lines are then unchanged.
        """
        encoder = msgspec.json.Encoder()
        written = 0
        try:
            with path.open("ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                _end_torn_line(path, file.fileno())
                buffer = bytearray()
                for item in items:
                    encoder.encode_into(item, buffer, len(buffer))
                    buffer += b"\n"
                    written += 1
                    if len(buffer) >= _WRITE_BYTES:
                        file.write(buffer)
                        buffer.clear()
                file.write(buffer)
                file.flush()
                if to_disk:
                    os.fsync(file.fileno())
        except OSError as error:
            raise UnwritableError(
                f"cannot be written: {error.strerror}",
                where=str(path),
                hint="what was there before is untouched; free space or name another study",
            ) from error
        _LOG.debug("%s: %d lines more", path, written)
        return written

    def imports(self, kind: type[T]) -> list[T]:
        """Return what was imported so far, as `kind`. Raises StudyError as `read_lines` does."""
        return list(self.read_lines(self.imports_path, kind)) if self.imports_path.is_file() else []

    def read_json(self, path: Path, kind: type[T]) -> T:
        """Return a JSON file of this study as `kind`.

        Raises StudyError where it cannot be read, is damaged, or is of a newer nccltune.
        """
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise StudyError(f"cannot be read: {error.strerror}", where=str(path)) from error
        _check_schema(raw, str(path))
        try:
            return msgspec.json.decode(raw, type=kind)
        except _UNREADABLE as error:
            raise StudyError(f"is damaged: {error}", where=str(path)) from error

    def write_json(self, path: Path, value: object) -> None:
        """Write a JSON file of this study whole or not at all. Raises as `write_whole` does."""
        self.write_text(path, msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")

    def write_text(self, path: Path, text: str) -> None:
        """Write a text file of this study whole or not at all. Raises as `write_whole` does."""
        write_whole(path, text)

    def read_lines(self, path: Path, kind: type[T]) -> Iterator[T]:
        """Yield each line of a JSON Lines file of this study as `kind`.

        A last line that an interruption cut short is left out. Raises StudyError where the file
        cannot be read, and, with the number of the line, for a line elsewhere that is damaged or
        of a newer nccltune.
        """
        decoder = msgspec.json.Decoder(kind)
        try:
            file = path.open("rb")
        except OSError as error:
            raise StudyError(
                f"cannot be read: {error.strerror}",
                where=str(path),
                hint=f"put measurements into it: nccltune import FILES... -o {self.path}",
            ) from error
        with file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    yield decoder.decode(line)
                except _UNREADABLE as error:
                    if not line.endswith(b"\n"):
                        return
                    where = f"{path}:{number}"
                    _check_schema(line, where)
                    raise StudyError(
                        f"is damaged: {error}",
                        where=where,
                        hint="repair or delete that line; the others are untouched",
                    ) from error


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path` so that it holds the old or the new content, never a part.

    Raises UnwritableError where the file cannot be written; the old content is then unchanged.
    """
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
        _LOG.info("wrote %s", path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise UnwritableError(
            f"cannot be written: {error.strerror}",
            where=str(path),
            hint="what was there before is untouched",
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _end_torn_line(path: Path, handle: int) -> None:
    """Repair a last line without newline: end it where it is whole JSON, else cut it off.

    An interruption so loses at most one line.
    """
    size = os.fstat(handle).st_size
    with path.open("rb") as file:
        file.seek(max(0, size - 1))
        if file.read(1) in (b"", b"\n"):
            return
        start = size
        tail = b""
        while start > 0 and b"\n" not in tail:
            step = min(_WRITE_BYTES, start)
            start -= step
            file.seek(start)
            tail = file.read(step) + tail
    torn = tail.rpartition(b"\n")[2]
    if not torn:
        return
    try:
        msgspec.json.decode(torn)
    except _UNREADABLE:
        os.ftruncate(handle, size - len(torn))
    else:
        os.write(handle, b"\n")


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The exceptions of `msgspec.json.decode` for bytes that are not valid JSON of the wanted type."""


class _Versioned(msgspec.Struct):
    schema_version: int = SCHEMA_VERSION


def _check_schema(raw: bytes, where: str) -> None:
    """Raise StudyError for a file of a newer nccltune, so that it is not reported as damaged."""
    try:
        version = msgspec.json.decode(raw, type=_Versioned).schema_version
    except _UNREADABLE:
        return
    if version > SCHEMA_VERSION:
        raise StudyError(
            f"was written by a newer nccltune (schema {version}, this one knows {SCHEMA_VERSION})",
            where=where,
            hint="update nccltune",
        )
