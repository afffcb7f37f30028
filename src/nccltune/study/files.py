# SPDX-License-Identifier: Apache-2.0
"""A study: the folder that holds everything measured and decided for one platform.

platform.json    the platform that was measured
topology.xml     the hardware of a node, if imported (also topo.xml, or nvidia-smi's topo.txt)
samples.jsonl    every timing, append only
imports.jsonl    the files that were imported, and the number of their unreadable lines
sweep.jsonl      points of a sweep without a timing, with reasons; sweep.json: how the sweep ended
sendrecv.json    the size from which copy engines are faster; sendrecv.conf: the settings
try.jsonl        processes of A/B tests; try.json: the last verdict; try.conf: the settings to keep
findings.json    the findings of `analyze`
tuning.json      the rules with their evidence; tuner.conf: the rules for the tuner plugin
proof.json       the rules proven by `verify`; verify.jsonl: points of `verify` without a timing
doctor.json      the doctor's findings about the platform
check.jsonl      the rules that `check` removed
deployed.json    whether a stock program runs with the rules, by NCCL's own log
report.html      the report as a page
"""

import contextlib
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
"""Names of the file with a node's hardware. The first that exists in a study is read."""


class Study:
    """A study folder. `open` checks that the folder is a study.

    A file is read only when a method needs it.

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
        """Return an existing study. Raises StudyError if `path` has neither samples nor
        platform."""
        study = cls(path)
        if path.is_file():
            raise StudyError(
                "is a file, not a study folder",
                where=str(path),
                hint=f"results: nccltune import {path} -o STUDY; a log: nccltune doctor {path}",
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
        """Return the study at `path`, with its folder. Raises StudyError if that cannot be
        created."""
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
        """Return the path of the file with the node's hardware; None if there is no such file."""
        paths = (self.path / name for name in TOPOLOGY_FILES)
        return next((path for path in paths if path.is_file()), None)

    def platform(self) -> Platform:
        """Return the measured platform, at least its name. Raises StudyError, as for newer
        files."""
        if not self.platform_path.is_file():
            return Platform(name=self.name)
        return self.read_json(self.platform_path, Platform)

    def samples(self) -> Iterator[Sample]:
        """Yield every sample in the order measured. Raises StudyError as `read_lines` does."""
        yield from self.read_lines(self.samples_path, Sample)

    def append_lines(self, path: Path, items: Iterable[Any], *, to_disk: bool = True) -> int:
        """Append whole lines to a file of this study, locked; return their number.

        They survive the end of this process, and with `to_disk` a crash of the machine. A cut last
        line is repaired first. Raises UnwritableError; earlier lines are then unchanged.
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
        """Return the lines of `imports.jsonl` as `kind`; empty without it. Raises StudyError."""
        return list(self.read_lines(self.imports_path, kind)) if self.imports_path.is_file() else []

    def read_json(self, path: Path, kind: type[T]) -> T:
        """Return the content of a JSON file as `kind`. Raises StudyError, as for newer files."""
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
        """Replace a JSON file of this study atomically. Raises UnwritableError."""
        self.write_text(path, msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")

    def write_text(self, path: Path, text: str) -> None:
        """Replace a text file of this study atomically. Raises UnwritableError."""
        write_whole(path, text)

    def read_lines(self, path: Path, kind: type[T]) -> Iterator[T]:
        """Yield each line of a file as `kind`, without a last one that was cut short.

        Raises StudyError, with the line number, if it is damaged or of a newer nccltune.
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
    """Replace the content of a file, wholly or not at all. Raises UnwritableError."""
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
    """Complete a last line without a newline if it is valid JSON; else remove it."""
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
    """Raise StudyError if a newer nccltune wrote the file, which else seems damaged."""
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


@contextlib.contextmanager
def locked(study: Study) -> Iterator[None]:
    """Lock a study for one measurement, until the context ends.

    Raises StudyError if another measurement has the lock, or if the lock file cannot be written.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder, locked(Study.create(Path(folder))):
    ...     print("measuring")
    measuring
    """
    path = study.path / ".sweep.lock"
    try:
        file = path.open("w")
    except OSError as error:
        raise StudyError(f"cannot be written: {error.strerror}", where=str(path)) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyError(
                "another sweep is running on this study",
                where=str(study.path),
                hint="wait for it, or name another study with -o",
            ) from None
        yield
