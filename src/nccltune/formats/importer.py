# SPDX-License-Identifier: Apache-2.0
"""Import files into a study: every run once, runs of one platform, all of it or nothing."""

import contextlib
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import msgspec

from nccltune.formats.context import ReadOptions
from nccltune.formats.hardware import kept
from nccltune.formats.import_platforms import File, StudyPart, by_platform, studies_beside
from nccltune.formats.import_spool import Resolved, Spool
from nccltune.formats.import_writer import StudyWriter, take_back_interrupted
from nccltune.formats.inputs import Found, Reading, read_inputs
from nccltune.formats.known_runs import KnownRuns, next_rounds, normal_text_id
from nccltune.formats.platform_facts import common
from nccltune.formats.reading import FileKind, FileReport, FlagKind, ImportRecord
from nccltune.formats.run_times import (
    FileRuns,
    RunTime,
    rounds_by_order,
    run_times,
    stated_rounds,
)
from nccltune.formats.runs import RunFound, RunKey, RunRecord
from nccltune.model.choice import choice_label
from nccltune.model.platform import Platform
from nccltune.model.study import Study

_TIMED = frozenset({FileKind.NCCL_TESTS_TEXT, FileKind.NCCL_TESTS_JSON})
"""Kinds of files that one run wrote from its start to its end."""


class Outcome(StrEnum):
    """What became of a file."""

    IMPORTED = "imported"
    ALREADY = "already imported"
    DUPLICATE = "holds runs imported before"
    REFUSED = "not read"
    EMPTY = "nothing to import"


class FileOutcome(msgspec.Struct):
    """A file and what became of it. `studies` are those that its runs went to."""

    outcome: Outcome
    report: FileReport
    studies: list[str] = []


class Imported(msgspec.Struct):
    """Everything an import did.

    `samples` were added; `platform` was written where not None; `studies` are the folders written,
    several after a split; `taken_back` are samples of an interrupted import that were removed.
    """

    study: str
    files: list[FileOutcome]
    samples: int = 0
    platform: Platform | None = None
    studies: list[str] = []
    taken_back: int = 0


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
    in_rounds: bool = False,
    split: bool = False,
    progress: Callable[[FileReport | None, int], None] | None = None,
) -> Imported:
    """Read `found` into the study at `path`, which is made when there is something to put in.

    All files are read first; then all is written, or nothing. A run that the study holds, in
    whatever file, is not written again. With `in_rounds` the user states that the k-th runs of all
    choices ran close together. With `split` runs of other platforms go to studies beside `path`;
    else they are an InputError. `progress` is given the file at hand (None before the first) and
    the bytes read of it. Raises StudyError where a study cannot be read or written.
    """
    study = Study(path)
    taken_back = take_back_interrupted(study)
    told = describe_options(options)
    result = Imported(study=study.name, files=[], taken_back=taken_back)
    spool_folder = _existing(path)
    with Spool(spool_folder, options.study) as spool:
        homes = [study, *(studies_beside(path) if split else ())]
        files = _read_all(homes, found, options, told, spool_folder, spool, progress, result)
        _leave_out_known(homes, files)
        parts = by_platform(study, files, split=split)
        with contextlib.ExitStack() as stack:
            for part in parts:
                writer = stack.enter_context(
                    StudyWriter(part.path, (file.report.file_hash for file in part.files))
                )
                _write(writer, part, spool, told, at, platform_name, in_rounds, result)
    return result


def _read_all(
    homes: list[Study],
    found: list[Found],
    options: ReadOptions,
    told: str,
    spool_folder: Path,
    spool: Spool,
    progress: Callable[[FileReport | None, int], None] | None,
    result: Imported,
) -> list[File]:
    """Read every file to its end; those that hold something new, in order."""
    done = _done(homes)
    current: list[FileReport | None] = [None]
    files = []

    def heard(count: int) -> None:
        if progress is not None:
            progress(current[0], count)

    for reading in read_inputs(found, options, progress=heard, spool=spool_folder):
        report = current[0] = reading.report
        outcome = FileOutcome(Outcome.REFUSED, report)
        result.files.append(outcome)
        before = done.get(report.file_hash, [])
        if report.error is not None:
            continue
        if any(options_before == told or counts for options_before, counts in before):
            outcome.outcome = Outcome.ALREADY
            continue
        file = _read(reading, spool)
        if report.error is not None:
            continue
        whole = report.samples or report.kind is FileKind.TOPOLOGY
        outcome.outcome = Outcome.IMPORTED if whole else Outcome.EMPTY
        file.outcome = outcome
        files.append(file)
        if whole:
            done.setdefault(report.file_hash, []).append((told, False))
    return files


def _counts(record: ImportRecord) -> bool:
    """Whether a file of nccltune 0.1, whose runs are not on record, must not be read again: it was
    read with other options, and its samples are compared already."""
    return record.runs is None and record.samples > 0 and "scale_unknown" not in record.flags


def _read(reading: Reading, spool: Spool) -> File:
    """Read one file to its end; its samples are in the spool."""
    report, item = reading.report, reading.found
    runs: dict[RunFound, None] = {}
    for batch in reading.batches():
        runs[batch.run] = None
        spool.add(batch)
    file = File(report, list(runs), item.path)
    if report.error is not None:
        return file
    if report.kind in _TIMED:
        file.modified = item.modified
    if report.kind is FileKind.TOPOLOGY:
        file.topology = reading.content()
    text = ""
    for number, run in enumerate(file.runs):
        if not (run.process or run.telling):
            text = text or normal_text_id(reading.content())
        run.name(f"{text} {number}")
    return file


def _leave_out_known(homes: list[Study], files: list[File]) -> None:
    """Leave out runs that a study holds, or that an earlier file of this import brings."""
    known = KnownRuns()
    bring_samples = any(file.report.kind is FileKind.SAMPLES for file in files)
    for study in homes:
        known.add_records(study.imports(ImportRecord))
        if bring_samples and study.samples_path.is_file():
            known.add_samples(study.samples(), study.name)
    # Files whose label is unknown come last: they may hold runs of the others.
    for file in sorted(files, key=lambda file: not any(run.samples for run in file.runs)):
        name, new, unknown = file.report.name, [], []
        for run in file.runs:
            again = known.find(run)
            if run.samples and (again is None or not again.whole):
                new.append(run)
                file.skip[run] = again.skip if again is not None else 0
            if again is not None:
                _flag_again(file, run, again.file, again.choice, again.whole)
            if run.samples:
                known.add(run, name)
            elif again is None:
                unknown.append(run)
        if file.runs and not new and not unknown:
            file.outcome.outcome = Outcome.DUPLICATE
            _forget_rows(file.report)
        file.runs = new
    files[:] = [file for file in files if file.outcome.outcome is not Outcome.DUPLICATE]


def _forget_rows(report: FileReport) -> None:
    """Leave out of a report what concerns rows that were imported from another file."""
    report.flags = [flag for flag in report.flags if flag.kind is FlagKind.DUPLICATE]
    report.unreadable, report.first_unreadable, report.reasons = 0, [], {}


def _flag_again(file: File, run: RunFound, twin: str, choice: str | None, whole: bool) -> None:
    if choice is not None:
        sentence = (
            f"the same run as in {twin}, where it is {choice} and here {run.choice}: a run has one"
            " choice; it is kept as it was imported first"
        )
    elif whole:
        sentence = f"the same run as in {twin}: not imported again"
    else:
        sentence = f"goes on with the run in {twin}: only its further rows are imported"
    file.report.flag(FlagKind.DUPLICATE, sentence, doubtful=choice is not None)


def _write(
    writer: StudyWriter,
    part: StudyPart,
    spool: Spool,
    told: str,
    at: str | None,
    platform_name: str | None,
    in_rounds: bool,
    result: Imported,
) -> None:
    study = writer.study
    become, times = _resolve(study, part, in_rounds)
    writer.add_samples(chunk for run, item in become.items() for chunk in spool.lines(run, item))
    for file in part.files:
        if file.topology is not None:
            _keep_topology(writer, file.topology, file.report)
    platform = _platform(study, part, platform_name)
    if platform is not None:
        writer.write_new(study.platform_path, _json(platform))
        result.platform = result.platform or platform
    records = []
    for file in part.files:
        runs = [_record(run, become[run], times.get(run), file) for run in part.of(file)]
        records.append(ImportRecord.of(file.report, told, at, runs))
        result.samples += records[-1].samples
        file.outcome.studies.append(str(study.path))
    writer.finish(records)
    result.studies.append(str(study.path))


def _resolve(
    study: Study, part: StudyPart, in_rounds: bool
) -> tuple[dict[RunFound, Resolved], dict[RunFound, RunTime]]:
    """What the runs become in this study: their ids, times and rounds."""
    before = [run for record in study.imports(ImportRecord) for run in record.runs or ()]
    timed = [
        FileRuns(file.report.name, part.of(file), file.modified)
        for file in part.files
        if file.report.kind in _TIMED
    ]
    times = run_times(timed, before)
    by_order = {
        run: number
        for item in timed
        if not in_rounds and all(times[run].at is None for run in item.runs)
        for run, number in zip(item.runs, rounds_by_order(item.runs) or (), strict=False)
    }
    shifted = [run for file in part.files for run in part.of(file) if run.in_rounds]
    following: dict[RunKey, int] = {}
    free = 0
    if (in_rounds or by_order or shifted) and study.samples_path.is_file():
        following, free = next_rounds(study.samples())
    stated: dict[RunFound, int] = {}
    if in_rounds:
        stated = stated_rounds((run for item in timed for run in item.runs), following)
    for item in timed:
        mine = [run for run in item.runs if run in by_order]
        stated.update((run, free + by_order[run]) for run in mine)
        free += 1 + max((by_order[run] for run in mine), default=-1)
    become = {}
    for file in part.files:
        for run in part.of(file):
            time = times.get(run, RunTime())
            become[run] = Resolved(
                study=study.name,
                process=run.process,
                skip=file.skip.get(run, 0),
                at=time.text,
                round=stated.get(run),
                shift=free if run.in_rounds else 0,
                keep_times=run.source is None or time.clock == "local" or run.stamps.local is None,
            )
    return become, times


def _record(run: RunFound, become: Resolved, time: RunTime | None, file: File) -> RunRecord:
    return RunRecord(
        process=run.process,
        samples=run.samples - become.skip,
        prints=run.prints if run.telling else "",
        pids=run.pids,
        rows=run.rows,
        collective=run.collective,
        nodes=run.nodes,
        ranks=run.ranks,
        choices=run.choices,
        facts=run.facts,
        at=become.at,
        clock=time.clock if time is not None else None,
        modified=file.modified,
        seconds=file.seconds if file.modified is not None else 0.0,
    )


def _keep_topology(writer: StudyWriter, data: bytes, report: FileReport) -> None:
    """Keep a node's hardware in the study, which holds one."""
    name, content = kept(data)
    study = writer.study
    before = study.topology_path
    if before is None:
        writer.write_new(study.path / name, content.decode("utf-8", errors="replace"))
    elif before.read_bytes() != content:
        report.flag(
            FlagKind.NOTE,
            f"the study has another topology, which stays; delete {before.name} there to take this",
        )


def _done(homes: list[Study]) -> dict[str, list[tuple[str, bool]]]:
    """Files imported so far, by hash: the options, and whether it must not be read with others."""
    done: dict[str, list[tuple[str, bool]]] = {}
    for study in homes:
        for record in study.imports(ImportRecord):
            # A file without samples is read again: its name may be evidence now.
            if record.samples or record.kind is FileKind.TOPOLOGY:
                done.setdefault(record.file_hash, []).append((record.options, _counts(record)))
    return done


def _existing(path: Path) -> Path:
    """The nearest folder at or above `path` that is there: room for what is still to be written."""
    folder = path.absolute()
    while not folder.is_dir():
        folder = folder.parent
    return folder


def _platform(study: Study, part: StudyPart, platform_name: str | None) -> Platform | None:
    """Return what the runs show of the platform; None where the study has it, or they do not."""
    runs = [run for file in part.files for run in part.of(file)]
    if study.platform_path.is_file() or not runs:
        return None
    facts = [run.facts for run in runs]
    settings: dict[str, str] = {}
    for item in facts:
        settings.update(item.settings)
    for name in ("NCCL_ALGO", "NCCL_PROTO"):
        settings.pop(name, None)
    known = Platform(
        name=platform_name or study.name,
        gpu=common(item.gpu for item in facts if item.gpu is not None),
        gpus=max((run.ranks for run in runs if run.ranks is not None), default=None),
        nodes=max((run.nodes for run in runs if run.nodes is not None), default=None),
        emulated_nodes=any(item.emulated for item in facts),
        network=common(item.network for item in facts if item.network is not None),
        nccl_version=common(item.nccl for item in facts if item.nccl is not None),
        replay=common(item.replay for item in facts if item.replay is not None),
        settings=settings,
    )
    fields = (known.gpu, known.gpus, known.nodes, known.network, known.nccl_version)
    return known if platform_name is not None or any(fields) else None


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode() + "\n"
