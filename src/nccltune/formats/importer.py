# SPDX-License-Identifier: Apache-2.0
"""Import files into a study: each file's samples once and whole, whatever interrupts."""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO

import msgspec

from nccltune.formats.context import ReadOptions
from nccltune.formats.hardware import kept
from nccltune.formats.inputs import Found, Reading, read_inputs
from nccltune.formats.reading import FileKind, FileReport, FlagKind, ImportRecord
from nccltune.formats.rounds import RoundCounter
from nccltune.model.choice import choice_label
from nccltune.model.platform import Platform
from nccltune.model.sample import Sample
from nccltune.model.study import Study

_SPOOL_BYTES = 32 << 20


class Outcome(StrEnum):
    """What became of a file."""

    IMPORTED = "imported"
    ALREADY = "already imported"
    REFUSED = "not read"
    EMPTY = "nothing to import"


class FileOutcome(msgspec.Struct):
    """A file and what became of it.

    `resumed` counts its samples that an interrupted import had left in the study.
    """

    outcome: Outcome
    report: FileReport
    resumed: int = 0


class Imported(msgspec.Struct):
    """Everything an import did. `samples` were added; `platform` was written where not None."""

    study: str
    files: list[FileOutcome]
    samples: int = 0
    platform: Platform | None = None


def describe_options(options: ReadOptions) -> str:
    """What the reading was told, in one line; equal for equal readings."""
    told = {
        "choice": choice_label(options.choice) if options.choice is not None else None,
        "collective": options.collective,
        "nodes": options.nodes,
        "ranks": options.ranks,
        "per-iteration": "yes" if options.per_iteration else None,
    }
    return " ".join(f"{name}={value}" for name, value in told.items() if value is not None)


def import_files(
    path: Path,
    found: list[Found],
    options: ReadOptions,
    *,
    at: str | None = None,
    platform_name: str | None = None,
    progress: Callable[[FileReport | None, int], None] | None = None,
) -> Imported:
    """Read `found` into the study at `path`, which is made when there is something to put in.

    A file's samples are appended when it was read to its end, then its line in `imports.jsonl`; a
    file that is there already with the same options is skipped. If that was interrupted in between,
    the next import of the file goes on behind the samples it left. `progress` hears the file at
    hand (None before the first) and the bytes read of it. Raises StudyError where the study cannot
    be read or written.
    """
    study = Study(path)
    told = describe_options(options)
    done = _done(study)
    rounds = RoundCounter()
    leftovers = _seed(study, rounds, set(done))
    result = Imported(study=study.name, files=[])
    current: list[FileReport | None] = [None]

    def heard(count: int) -> None:
        if progress is not None:
            progress(current[0], count)

    spool = _existing(path)
    for reading in read_inputs(found, options, rounds, progress=heard, spool=spool):
        report = current[0] = reading.report
        before = done.get(report.file_hash, set())
        if report.error is not None:
            result.files.append(FileOutcome(Outcome.REFUSED, report))
        elif told in before:
            result.files.append(FileOutcome(Outcome.ALREADY, report))
        else:
            if before:
                report.flag(
                    FlagKind.NOTE,
                    "it was imported before with other options: both readings are in the study now",
                )
            _take(study, reading, spool, told, at, leftovers, result)
            if result.files[-1].outcome is Outcome.IMPORTED:
                done.setdefault(report.file_hash, set()).add(told)
    result.platform = _write_platform(study, result.files, platform_name)
    return result


def _take(
    study: Study,
    reading: Reading,
    spool: Path,
    told: str,
    at: str | None,
    leftovers: "dict[str, _Leftover]",
    result: Imported,
) -> None:
    """Read one file to its end and only then write."""
    report = reading.report
    with tempfile.SpooledTemporaryFile(_SPOOL_BYTES, dir=str(spool)) as kept:
        encoder = msgspec.json.Encoder()
        for batch in reading.batches():
            kept.write(encoder.encode_lines(batch))
        if report.error is not None:
            result.files.append(FileOutcome(Outcome.REFUSED, report))
            return
        kept.seek(0)
        leftover = leftovers.pop(report.file_hash, None)
        resumed = leftover.length_in(kept) if leftover is not None else 0
        if leftover is not None and not resumed:
            report.flag(
                FlagKind.NOTE,
                f"{leftover.count} samples of an interrupted import with other options are in the"
                " study, too",
            )
        Study.create(study.path)
        if report.samples > resumed:
            kept.seek(0)
            lines = (msgspec.Raw(line) for line in _lines(kept, skip=resumed))
            result.samples += study.append_lines(study.samples_path, lines)
        if report.kind is FileKind.TOPOLOGY:
            _keep_topology(study, reading.content(), report)
        record = ImportRecord.of(report, told, at)
        study.append_lines(study.imports_path, [record])
    whole = report.samples or report.kind is FileKind.TOPOLOGY
    outcome = Outcome.IMPORTED if whole else Outcome.EMPTY
    result.files.append(FileOutcome(outcome, report, resumed))


def _keep_topology(study: Study, data: bytes, report: FileReport) -> None:
    """Keep a node's hardware in the study, which holds one."""
    name, content = kept(data)
    before = study.topology_path
    if before is None:
        study.write_text(study.path / name, content.decode("utf-8", errors="replace"))
    elif before.read_bytes() != content:
        report.flag(
            FlagKind.NOTE,
            f"the study has another topology, which stays; delete {before.name} there to take this",
        )


def _lines(file: IO[bytes], skip: int) -> Iterator[bytes]:
    for number, line in enumerate(file):
        if number >= skip:
            yield line.removesuffix(b"\n")


def _done(study: Study) -> dict[str, set[str]]:
    """Options by file hash of what was imported so far."""
    done: dict[str, set[str]] = {}
    for record in study.imports(ImportRecord):
        # A file without samples is read again: its name may be evidence now.
        if record.samples or record.kind is FileKind.TOPOLOGY:
            done.setdefault(record.file_hash, set()).add(record.options)
    return done


class _Leftover:
    """Samples of a file without a line in `imports.jsonl`: its import was interrupted."""

    def __init__(self) -> None:
        self.count = 0
        self._digest = hashlib.sha256()
        self._encoder = msgspec.json.Encoder()

    def add(self, sample: Sample) -> None:
        """One more."""
        self.count += 1
        self._digest.update(self._plain(sample))

    def length_in(self, kept: IO[bytes]) -> int:
        """How many samples at the start of `kept` are these; 0 where they are not."""
        digest = hashlib.sha256()
        decoder = msgspec.json.Decoder(Sample)
        count = 0
        for line in kept:
            if count == self.count:
                break
            digest.update(self._plain(decoder.decode(line)))
            count += 1
        return count if count == self.count and digest.digest() == self._digest.digest() else 0

    def _plain(self, sample: Sample) -> bytes:
        # Rounds depend on what else was imported in between.
        return self._encoder.encode(msgspec.structs.replace(sample, round=0))


def _seed(study: Study, rounds: RoundCounter, done: set[str]) -> dict[str, _Leftover]:
    """Count rounds on from the samples there are; gather what an interrupted import left."""
    leftovers: dict[str, _Leftover] = {}
    if not study.samples_path.is_file():
        return leftovers

    def whole(samples: Iterable[Sample]) -> Iterator[Sample]:
        for sample in samples:
            file_hash = sample.source.file_hash
            if file_hash is None or file_hash in done:
                yield sample
            else:
                leftovers.setdefault(file_hash, _Leftover()).add(sample)

    rounds.seed(whole(study.samples()))
    return leftovers


def _existing(path: Path) -> Path:
    """The nearest folder at or above `path` that is there: room for what is still to be written."""
    folder = path.absolute()
    while not folder.is_dir():
        folder = folder.parent
    return folder


def _write_platform(
    study: Study, files: list[FileOutcome], platform_name: str | None
) -> Platform | None:
    """Write what the files tell of the platform, if nothing did so before."""
    reports = [
        item.report
        for item in files
        if item.outcome is Outcome.IMPORTED and item.report.kind is not FileKind.TOPOLOGY
    ]
    if study.platform_path.is_file() or not reports:
        return None
    known = {
        field: [value for report in reports if (value := getattr(report, field)) is not None]
        for field in ("gpu", "gpus", "nodes", "network", "nccl_version")
    }
    if not any(known.values()) and platform_name is None:
        return None
    settings: dict[str, str] = {}
    for report in reports:
        settings.update(report.settings)
    # A sweep sets these from run to run; they are no trait of the platform.
    for name in ("NCCL_ALGO", "NCCL_PROTO", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"):
        settings.pop(name, None)
    platform = Platform(
        name=platform_name or study.name,
        gpu=_only(known["gpu"]),
        gpus=max(known["gpus"], default=None),
        nodes=max(known["nodes"], default=None),
        emulated_nodes=any(report.emulated_nodes for report in reports),
        network=_only(known["network"]),
        nccl_version=_only(known["nccl_version"]),
        settings=settings,
        notes=[
            f"the files imported name several: {', '.join(sorted(map(str, set(values))))}"
            for field, values in known.items()
            if field in ("gpu", "network", "nccl_version") and len(set(values)) > 1
        ],
    )
    study.write_json(study.platform_path, platform)
    return platform


def _only(values: list[str]) -> str | None:
    """The value if all agree."""
    return values[0] if len(set(values)) == 1 else None
