# SPDX-License-Identifier: Apache-2.0
"""Find the input files (also in folders and on standard input) and give each to its reader."""

import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nccltune.formats.importing.detect import HEAD_BYTES, kind_of, kind_of_rest
from nccltune.formats.importing.environments import environment_of, read_environment, settings_in
from nccltune.formats.importing.hardware import read_hardware
from nccltune.formats.importing.json_records import MOST_BYTES, is_records, read_json_records
from nccltune.formats.importing.posted_values import FileDescription
from nccltune.formats.importing.raw_csv import read_raw_csv
from nccltune.formats.importing.samples_jsonl import read_samples
from nccltune.formats.importing.unrecognised import describe, describe_log, unread_tables
from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.nccl_tests.json_results import read_json
from nccltune.formats.nccl_tests.process_logs import read_process_logs
from nccltune.formats.nccl_tests.rccl_results import read_rccl_results
from nccltune.formats.nccl_tests.text import read_text
from nccltune.formats.reading.collective_names import collective_of_text
from nccltune.formats.reading.context import Context, Copies, Progress, Reader, ReadOptions
from nccltune.formats.reading.file_report import FileKind, FileReport, FlagKind
from nccltune.formats.reading.named_version import version_of_text
from nccltune.formats.reading.runs import RunSamples
from nccltune.formats.reading.tensor_shapes import bytes_of_element
from nccltune.formats.reading.titled_header import measure_of
from nccltune.formats.text.lines import CHUNK_BYTES, encoding_of
from nccltune.model.errors import InputError
from nccltune.study import names

READERS: dict[FileKind, Reader] = {
    FileKind.NCCL_TESTS_TEXT: read_text,
    FileKind.NCCL_TESTS_JSON: read_json,
    FileKind.RCCL_RESULTS: read_rccl_results,
    FileKind.RAW_CSV: read_raw_csv,
    FileKind.JSON_RECORDS: read_json_records,
    FileKind.SAMPLES: read_samples,
    # A log may hold tables after the part of the file that detection reads. So the reader of tables
    # also reads logs.
    FileKind.NCCL_LOG: read_text,
    FileKind.TOPOLOGY: read_hardware,
    FileKind.ENVIRONMENT: read_environment,
}
STDIN = "-"
_SPOOL_BYTES = 16 << 20
_MAX_LOGS = 4096


class InputFile(NamedTuple):
    """An input file.

    `path` is None for standard input. `name` is for messages, and is evidence for the choice and
    the collective. `asked` is True if the user named the file itself, not a folder above it.
    """

    path: Path | None
    name: str
    asked: bool

    @property
    def size(self) -> int:
        """Return the size in bytes, or 0 if it is unknown before reading."""
        if self.path is None:
            return 0
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    @property
    def modified(self) -> float | None:
        """Return when a regular file was last written, in seconds since 1970; None for others."""
        if self.path is None:
            return None
        try:
            info = self.path.stat()
        except OSError:
            return None
        return info.st_mtime if stat.S_ISREG(info.st_mode) else None


class Reading:
    """One file being read. Consume `batches` once; after that, `report` is complete."""

    def __init__(
        self,
        report: FileReport,
        reader: Reader | None,
        file: BinaryIO | None,
        context: Context,
        found: InputFile | None = None,
    ) -> None:
        self.report = report
        self.found = found or InputFile(None, report.name, report.asked)
        self._reader = reader
        self._file = file
        self._context = context

    def content(self, most: int = -1) -> bytes:
        """Return the unchanged content of the file, or its first `most` bytes.

        Raises OSError if it cannot be read.
        """
        assert self._file is not None
        self._file.seek(0)
        return self._file.read(most)

    def batches(self) -> Iterator[RunSamples]:
        """Yield the samples in batches of bounded size; none if the file has no reader.

        If the file is found to be invalid as a whole, the iteration ends early and `report.error`
        is set. The caller must then discard the samples that it already has.
        """
        if self._reader is None or self._file is None:
            return
        report = self.report
        try:
            self._file.seek(0)
            yield from self._reader(self._file, self._context)
        except InputError as error:
            line = (error.where or "").rpartition(":")[2]
            report.refuse(
                error.message, hint=error.hint, line=int(line) if line.isdecimal() else None
            )
        except OSError as error:
            report.refuse(f"cannot be read: {error.strerror}")
        failure = next((flag for flag in report.flags if flag.kind is FlagKind.FAILURE), None)
        nothing = report.error is None and not (report.rows or report.unreadable)
        if failure is not None and nothing:
            report.refuse(
                "nccl-tests failed before its first row: "
                + failure.sentence.removeprefix("nccl-tests reports: "),
                hint=f"look for the cause: nccltune doctor {report.name}",
                line=failure.line or None,
            )
            report.flags.remove(failure)
        elif report.error is None and (
            report.kind is FileKind.UNKNOWN
            or (nothing and report.tables and report.kind is FileKind.NCCL_TESTS_TEXT)
        ):
            _refuse(report, describe(_start(self._file)))
        elif report.heads and report.error is None:
            for unread in unread_tables(_start(self._file, CHUNK_BYTES), report.heads):
                report.flag(FlagKind.NOTE, unread.message, unread.line or 0)
        elif report.kind is FileKind.NCCL_LOG and report.error is None:
            if (found := describe_log(_start(self._file))) is not None:
                _refuse(report, found)
                return
            self._file.seek(0)
            chosen = any(log.has_choices for log in read_process_logs(self._file).values())
            what = "it names what ran for tables of the same processes"
            if not chosen:
                what = "no line of it names what ran (NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING)"
            report.flag(FlagKind.NOTE, f"an NCCL log without a table: {what}")


def find_inputs(inputs: Iterable[str | Path], *, leave_out: Path | None = None) -> list[InputFile]:
    """Return the input files in order.

    A folder in `inputs` stands for its sorted files, and `-` for standard input. Hidden files and
    folders below such a folder are left out. So are repeated files, files below `leave_out` (the
    study that is written), and the files of another study besides its samples. Raises InputError if
    a name does not exist.
    """
    found: list[InputFile] = []
    seen: set[Path | None] = set()
    left_out = leave_out.resolve() if leave_out is not None else None
    for given in inputs:
        if str(given) == STDIN:
            if None not in seen:
                found.append(InputFile(None, "standard input", True))
            seen.add(None)
            continue
        path = Path(given)
        if not path.exists():
            raise InputError("no such file or folder", where=str(path), hint="check the name")
        for item in _files(path) if path.is_dir() else [InputFile(path, path.name, True)]:
            assert item.path is not None
            real = item.path.resolve()
            if real in seen or (left_out is not None and left_out in real.parents):
                continue
            seen.add(real)
            found.append(item)
    return found


def _files(folder: Path) -> Iterator[InputFile]:
    above = folder.resolve().parent
    for root, folders, files in os.walk(folder):
        folders[:] = sorted((name for name in folders if name[:1] != "."), key=_natural)
        # Of a study only the samples are read. Its platform and tables are taken with them.
        passed = names.ALL - {names.SAMPLES} if names.SAMPLES in files else frozenset()
        for name in sorted(set(files) - passed, key=_natural):
            path = Path(root, name)
            if not name.startswith(".") and path.is_file():
                shown = path.resolve().relative_to(above) if _below(path, above) else Path(name)
                yield InputFile(path, str(shown), False)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts `run-2` before `run-10`."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part)
        for part in re.split(r"([0-9]{1,18})", name)
    ]


def _below(path: Path, folder: Path) -> bool:
    return folder in path.resolve().parents


def read_inputs(
    inputs: Iterable[InputFile],
    options: ReadOptions,
    *,
    progress: Progress | None = None,
    spool: Path | None = None,
) -> Iterator[Reading]:
    """Read files one after the other. A `Reading` is valid until the next `Reading` is requested.

    If a file cannot be opened, the report of its `Reading` has the error.
    `progress` is called with the number of bytes read of the current file. Input that cannot be
    read twice (standard input, pipes) is copied to a file in `spool`.
    """
    found = list(inputs)
    logs, environments = _beside(found)
    for item in found:
        report = FileReport(name=item.name, asked=item.asked)
        context = Context(
            name=item.name,
            options=options,
            report=report,
            logs=logs,
            environment=environment_of(item.name, environments),
            progress=progress,
            modified=item.modified,
        )
        try:
            with _opened(item, spool, options.copies) as file:
                reader = _prepare(file, report, context)
                yield Reading(report, reader, file, context, item)
        except OSError as error:
            report.refuse(f"cannot be read: {error.strerror}")
            yield Reading(report, None, None, context, item)


def _prepare(file: BinaryIO, report: FileReport, context: Context) -> Reader | None:
    """Hash the file and return its reader; put what its start states for all into the context.

    If the file has no reader, return None and put the reason into the report.
    """
    report.size_bytes, report.file_hash = _digest(file)
    file.seek(0)
    head = file.read(HEAD_BYTES)
    if not head:
        report.refuse("is empty")
        return None
    text = head.decode(encoding_of(head[:4]), errors="replace")
    context.collective, context.unit = collective_of_text(text), measure_of(text)
    if width := bytes_of_element(text):
        note = f"sizes are those of the shapes, of {width} bytes an element, as the text names"
        report.flag(FlagKind.NOTE, note)
    context.nccl = version_of_text(text)
    try:
        report.kind = kind_of(head)
        # A long document may have a matrix above its tables.
        above = report.kind is FileKind.TOPOLOGY and not text.lstrip().startswith("<")
        if (above or report.kind is FileKind.UNKNOWN) and len(head) == HEAD_BYTES:
            file.seek(0)
            rest = kind_of_rest(file)
            report.kind = report.kind if above and rest is FileKind.UNKNOWN else rest
    except InputError as error:
        report.refuse(error.message, hint=(error.hint or "").replace("{name}", report.name) or None)
        return None
    if report.kind is FileKind.TUNER_CSV:
        report.refuse(
            "is a tuner configuration: it holds rules, not measurements",
            hint=f"check it: nccltune lint {report.name}",
        )
    elif report.kind is FileKind.GRAPHS:
        report.refuse(
            "is a graph file: it holds NCCL's rings and trees, not measurements",
            hint=f"look at it: nccltune topo show {report.name}",
        )
    elif report.kind is FileKind.UNKNOWN:
        if is_records(_start(file)):
            report.kind = FileKind.JSON_RECORDS
        else:
            _refuse(report, describe(_start(file)))
    return READERS.get(report.kind)


def _start(file: BinaryIO, most: int = MOST_BYTES) -> str:
    file.seek(0)
    data = file.read(most)
    return data.decode(encoding_of(data[:4]), errors="replace")


def _refuse(report: FileReport, found: FileDescription) -> None:
    """Refuse a file without measurements, with what it is and what to give instead."""
    hint = found.hint.replace("{name}", report.name)
    report.refuse(found.message, hint=hint, line=found.line)


def _digest(file: BinaryIO) -> tuple[int, str]:
    """Return the size in bytes and the first 16 hex digits of the SHA-256."""
    digest = hashlib.sha256()
    size = 0
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()[:16]


@contextmanager
def _opened(item: InputFile, spool: Path | None, copies: Copies | None) -> Iterator[BinaryIO]:
    """Open a file. If it is not a regular file, open a copy. Raises OSError for a device."""
    if copies is not None and item.path in copies:
        copies[item.path].seek(0)
        yield copies[item.path]
        return
    mode = stat.S_IFIFO if item.path is None else item.path.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise OSError(0, "is a device")
    with nullcontext(sys.stdin.buffer) if item.path is None else item.path.open("rb") as file:
        if stat.S_ISREG(mode):
            yield file
            return
        copy = _spooled(file, spool)
    if copies is not None:
        copies[item.path] = copy
        yield copy
        return
    with copy:
        yield copy


def _spooled(file: BinaryIO, spool: Path | None) -> BinaryIO:
    copy = tempfile.SpooledTemporaryFile(_SPOOL_BYTES, dir=str(spool) if spool else None)  # noqa: SIM115
    shutil.copyfileobj(file, copy, CHUNK_BYTES)
    copy.seek(0)
    return copy  # type: ignore[return-value]  # has the methods that readers use: read and seek


def _beside(
    found: list[InputFile],
) -> tuple[dict[tuple[str, int], NcclLog], dict[str, dict[str, str]]]:
    """Return what files of their own state about the others.

    These are NCCL logs (`NCCL_DEBUG_FILE`), by host and process id, and environments by file. A
    file that cannot be read is skipped. A single input file gives nothing.
    """
    logs: dict[tuple[str, int], NcclLog] = {}
    environments: dict[str, dict[str, str]] = {}
    if len(found) < 2:
        return logs, environments
    for item in found:
        if item.path is None or not item.path.is_file() or len(logs) >= _MAX_LOGS:
            continue
        try:
            with item.path.open("rb") as file:
                kind = kind_of(file.read(HEAD_BYTES))
                file.seek(0)
                if kind is FileKind.NCCL_LOG:
                    logs.update(read_process_logs(file))
                elif kind is FileKind.ENVIRONMENT:
                    environments[item.name] = settings_in(_start(file))
        except (InputError, OSError):
            continue  # the error is reported when this file is read as an input
    return logs, environments
