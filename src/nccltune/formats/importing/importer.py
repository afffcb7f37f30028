# SPDX-License-Identifier: Apache-2.0
"""Import files into a study.

Runs that the study already holds are skipped. All runs of a study are of one platform. An import
writes everything or nothing.
"""

import contextlib
import tempfile
from collections.abc import Callable, Collection
from enum import StrEnum
from pathlib import Path

import msgspec

from nccltune.formats.importing.hardware import kept
from nccltune.formats.importing.inputs import InputFile, Reading, read_inputs
from nccltune.formats.importing.known_runs import KnownRuns, next_rounds, normal_text_id
from nccltune.formats.importing.platforms import File, StudyPart, by_platform, studies_beside
from nccltune.formats.importing.run_times import (
    FileRuns,
    RunTime,
    rounds_by_order,
    run_times,
    stated_rounds,
)
from nccltune.formats.importing.spool import Resolved, Spool
from nccltune.formats.importing.writer import StudyWriter, take_back_interrupted
from nccltune.formats.reading.context import ReadOptions
from nccltune.formats.reading.file_names import headings_apart, without_repeat
from nccltune.formats.reading.file_report import FileKind, FileReport, FlagKind, ImportRecord
from nccltune.formats.reading.platform_facts import NO_RECORDING, common
from nccltune.formats.reading.runs import RunFound, RunKey, RunRecord
from nccltune.formats.reading.titles import ABOVE
from nccltune.formats.text.lines import visible
from nccltune.formats.topology.beside_results import topology_beside_results
from nccltune.formats.topology.xml_tree import MAX_BYTES
from nccltune.model.choice import choice_label
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from nccltune.study.names import TABLES

_TIMED = frozenset({FileKind.NCCL_TESTS_TEXT, FileKind.NCCL_TESTS_JSON, FileKind.RCCL_RESULTS})
"""Kinds of files that a run writes until it ends. The time of such a file is the end of the run."""


class ImportState(StrEnum):
    """The result of importing one file."""

    IMPORTED = "imported"
    ALREADY = "already imported"
    DUPLICATE = "holds runs imported before"
    REFUSED = "not read"
    EMPTY = "nothing to import"


class FileOutcome(msgspec.Struct):
    """A file and the result of importing it.

    `studies` are the paths of the studies to which the file was imported.
    """

    outcome: ImportState
    report: FileReport
    studies: list[str] = []


class Imported(msgspec.Struct):
    """The result of an import.

    `samples` is the number of samples added. `platform` is the first platform that was written;
    None if no platform was written. `studies` are the folders that were written, several after a
    split. `taken_back` is the number of samples of an earlier, interrupted import that were
    removed. In a dry run, the values state what an import would add and write.
    """

    study: str
    files: list[FileOutcome]
    samples: int = 0
    platform: Platform | None = None
    studies: list[str] = []
    taken_back: int = 0


def describe_options(options: ReadOptions) -> str:
    """Return the reading options as one line. Equal options give equal lines."""
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
    found: list[InputFile],
    options: ReadOptions,
    *,
    at: str | None = None,
    platform_name: str | None = None,
    in_rounds: bool = False,
    split: bool = False,
    progress: Callable[[FileReport | None, int], None] | None = None,
    dry_run: bool = False,
) -> Imported:
    """Import the files `found` into the study at `path`; return what was done.

    The study is created if there is something to write. All files are read first; then everything
    is written, or nothing. A run that the study already holds is not written again, even if it is
    in another file.

    - `at`: the time of the import, for its records.
    - `platform_name`: the name of the platform, if the study gets a new platform.json.
    - `in_rounds`: the user states that the k-th runs of all choices ran close together. These runs
      then get the same round.
    - `split`: write runs of other platforms to studies beside `path`. Without `split`, such runs
      are an error.
    - `progress`: called with the current file (None before the first) and the bytes read of it.
    - `dry_run`: write nothing.

    Raises InputError if the runs are of different platforms and `split` is not set, and StudyError
    if a study cannot be read or written.
    """
    study = Study(path)
    taken_back = 0 if dry_run else take_back_interrupted(study)
    told = describe_options(options)
    result = Imported(study=study.name, files=[], taken_back=taken_back)
    spool_folder = Path(tempfile.gettempdir()) if dry_run else _existing(path)
    with Spool(spool_folder, options.study) as spool:
        homes = [study, *(studies_beside(path) if split else ())]
        files = _read_all(homes, found, options, told, spool_folder, spool, progress, result)
        _leave_out_known(homes, files)
        parts = by_platform(study, files, split=split, collective=options.collective)
        if dry_run:
            for part in parts:
                _count(part, in_rounds, result)
            return result
        # A first import without any sample leaves no empty study behind.
        parts = [
            part
            for part in parts
            if Study(part.path).samples_path.exists()
            or any(file.outcome.outcome is ImportState.IMPORTED for file in part.files)
        ]
        with contextlib.ExitStack() as stack:
            for part in parts:
                writer = stack.enter_context(
                    StudyWriter(part.path, (file.report.file_hash for file in part.files))
                )
                _write(writer, part, spool, told, at, platform_name, in_rounds, result)
    return result


def _read_all(
    homes: list[Study],
    found: list[InputFile],
    options: ReadOptions,
    told: str,
    spool_folder: Path,
    spool: Spool,
    progress: Callable[[FileReport | None, int], None] | None,
    result: Imported,
) -> list[File]:
    """Read every file to its end; return the files that may hold new runs, in order.

    Files of hardware are also returned. Invalid files are left out, and so are files that were
    imported before with the same options. For files that nccltune 0.1 imported, see `_counts`.
    """
    done = _done(homes)
    current: list[FileReport | None] = [None]
    files = []

    def heard(count: int) -> None:
        if progress is not None:
            progress(current[0], count)

    for reading in read_inputs(found, options, progress=heard, spool=spool_folder):
        report = current[0] = reading.report
        outcome = FileOutcome(ImportState.REFUSED, report)
        result.files.append(outcome)
        before = done.get(report.file_hash, [])
        if report.error is not None:
            continue
        if any(options_before == told or counts for options_before, counts in before):
            outcome.outcome = ImportState.ALREADY
            continue
        file = _read(reading, spool)
        if report.error is not None:
            continue
        whole = report.samples or report.kind is FileKind.TOPOLOGY
        outcome.outcome = ImportState.IMPORTED if whole else ImportState.EMPTY
        file.outcome = outcome
        files.append(file)
        if whole:
            done.setdefault(report.file_hash, []).append((told, False))
    return files


def _counts(record: ImportRecord) -> bool:
    """Return whether a file that nccltune 0.1 imported must not be read again with other options.

    The record of such a file lists no runs, so duplicates of its samples could not be found. A
    file whose scale was unknown may be read again: no comparison uses samples without a scale.
    """
    return record.runs is None and record.samples > 0 and "scale_unknown" not in record.flags


def _read(reading: Reading, spool: Spool) -> File:
    """Read one file to its end and put its samples into the spool."""
    report, item = reading.report, reading.found
    runs: dict[RunFound, None] = {}
    for batch in reading.batches():
        runs[batch.run] = None
        spool.add(batch)
    keep_apart(runs)
    file = File(report, list(runs), item.path)
    if report.error is not None:
        return file
    if report.kind in _TIMED:
        file.modified = item.modified
    if report.kind is FileKind.TOPOLOGY:
        file.topology = reading.content()
    elif report.samples:
        file.posted_topology = topology_beside_results(reading.content(MAX_BYTES + 1))
    text = ""
    for number, run in enumerate(file.runs):
        if not (run.process or run.telling):
            text = text or normal_text_id(reading.content())
        run.name(f"{text} {number}")
    return file


def keep_apart(runs: Collection[RunFound], *, names_only: bool = False) -> None:
    """Make titles conditions of runs that nothing else tells from repeats: `Before`, `After`.

    Headings above the titles of all runs set none apart, and are removed; with `names_only` that
    is all.
    """
    paths = [run.title.split(ABOVE) for run in runs]
    shared = set(paths[0]).intersection(*paths[1:]) if paths else set()
    for run, path in zip(runs, paths, strict=True):
        run.title = ABOVE.join([*(x for x in path[:-1] if x not in shared), path[-1]])
    if names_only:
        return
    alike: dict[tuple[RunKey, str], list[RunFound]] = {}
    unknown = any(run.nodes is None for run in runs)
    for run in runs:
        # A number of nodes that one of the runs does not show may be that of the others.
        key = run.key._replace(nodes=None) if unknown else run.key
        alike.setdefault((key, run.heading), []).append(run)
    for group in alike.values():
        titles = list(dict.fromkeys(without_repeat(run.title) for run in group))
        apart = headings_apart(titles) if len(titles) > 1 else set()
        for run in group:
            if (title := without_repeat(run.title)) in apart - {""}:
                conditions = *(run.facts.conditions or ()), f"under {visible(title, 60)!r}"
                run.facts = msgspec.structs.replace(run.facts, conditions=conditions)


def _leave_out_known(homes: list[Study], files: list[File]) -> None:
    """Remove runs that a study already holds, or that an earlier file of this import holds."""
    known = KnownRuns()
    bring_samples = any(file.report.kind is FileKind.SAMPLES for file in files)
    for study in homes:
        known.add_records(study.imports(ImportRecord))
        if bring_samples and study.samples_path.is_file():
            known.add_samples(study.samples(), study.name)
    # Files without samples come last, because they may repeat runs of the other files. Such files
    # have no samples because their choice is unknown.
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
            file.outcome.outcome = ImportState.DUPLICATE
            _forget_rows(file.report)
        file.runs = new
    files[:] = [file for file in files if file.outcome.outcome is not ImportState.DUPLICATE]


def _forget_rows(report: FileReport) -> None:
    """Remove flags and unreadable lines from the report of a file that gives no new run.

    The flags for duplicates stay. The rows of the file were imported from another file, and the
    report of that file has the other flags.
    """
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
    posted = {file.posted_topology for file in part.files if file.posted_topology is not None}
    if len(posted) == 1 and study.topology_path is None:
        name, content = kept(posted.pop())
        writer.write_new(study.path / name, content.decode("utf-8", errors="replace"))
    _keep_tables(writer, part)
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


def _count(part: StudyPart, in_rounds: bool, result: Imported) -> None:
    """Add to `result` the samples that would be written to a study. Write nothing."""
    study = Study(part.path)
    become, _ = _resolve(study, part, in_rounds)
    for file in part.files:
        result.samples += sum(run.samples - become[run].skip for run in part.of(file))
        file.outcome.studies.append(str(study.path))
    result.platform = result.platform or _platform(study, part, None)
    result.studies.append(str(study.path))


def _resolve(
    study: Study, part: StudyPart, in_rounds: bool
) -> tuple[dict[RunFound, Resolved], dict[RunFound, RunTime]]:
    """Return the id, time and round that each run gets in this study, and the times of the runs.

    A round is a set of timings that were taken close together in time.
    """
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
        tables = (file for file in part.files if file.report.kind in (*_TIMED, FileKind.RAW_CSV))
        stated = stated_rounds((run for file in tables for run in part.of(file)), following)
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
    return msgspec.structs.replace(
        run.record(),
        samples=run.samples - become.skip,
        at=become.at,
        clock=time.clock if time is not None else None,
        modified=file.modified,
        seconds=file.seconds if file.modified is not None else 0.0,
    )


def _keep_topology(writer: StudyWriter, data: bytes, report: FileReport) -> None:
    """Write a node's hardware file to the study.

    If the study already has a hardware file, this file stays, and a different content is flagged.
    """
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


def _keep_tables(writer: StudyWriter, part: StudyPart) -> None:
    """Write NCCL's predicted costs of the study that the samples are from, unless there are any."""
    path = writer.study.path / TABLES
    for file in part.files:
        if file.platform is not None and file.path is not None and not path.exists():
            beside = file.path.parent / TABLES
            if beside.is_file():
                writer.write_new(path, beside.read_text(encoding="utf-8", errors="replace"))


def _done(homes: list[Study]) -> dict[str, list[tuple[str, bool]]]:
    """Return the files imported so far, by hash.

    Each entry has the options of the import, and the result of `_counts`: whether the file must not
    be read again with other options.
    """
    done: dict[str, list[tuple[str, bool]]] = {}
    for study in homes:
        for record in study.imports(ImportRecord):
            # A file without samples is read again. The user may have renamed it, and its name is
            # evidence for the choice.
            if record.samples or record.kind is FileKind.TOPOLOGY:
                done.setdefault(record.file_hash, []).append((record.options, _counts(record)))
    return done


def _existing(path: Path) -> Path:
    """Return the nearest existing folder at or above `path`, for the spool."""
    folder = path.absolute()
    while not folder.is_dir():
        folder = folder.parent
    return folder


def _platform(study: Study, part: StudyPart, platform_name: str | None) -> Platform | None:
    """Return the platform that the runs show.

    It is that of the study that the samples are from, if there is one. None if the study already
    has a platform, or if there are no runs. Also None if the runs show no GPU, number of nodes,
    network or NCCL version and the user gave no name.
    """
    runs = [run for file in part.files for run in part.of(file)]
    if study.platform_path.is_file() or not runs:
        return None
    origin = next((file.platform for file in part.files if file.platform is not None), None)
    if origin is not None:
        return msgspec.structs.replace(origin, name=platform_name or origin.name)
    facts = [run.facts for run in runs]
    settings: dict[str, str] = {}
    for file in part.files:
        own = [run.facts for run in part.of(file)]
        silent = any(item.settings_by is None for item in own)
        for item in own:
            # What the command above one of several tables sets is not known of the others.
            settings.update({} if silent and item.settings_by == "command" else item.settings)
    for name in ("NCCL_ALGO", "NCCL_PROTO"):
        if len({item.settings.get(name) for item in facts}) > 1:
            settings.pop(name, None)
    known = Platform(
        name=platform_name or study.name,
        gpu=common(item.gpu for item in facts if item.gpu is not None),
        gpus=max((run.ranks for run in runs if run.ranks is not None), default=None),
        nodes=max((run.nodes for run in runs if run.nodes is not None), default=None),
        emulated_nodes=any(item.emulated for item in facts),
        network=common(item.network for item in facts if item.network is not None),
        nccl_version=common(item.nccl for item in facts if item.nccl is not None),
        replay=common(item.replay for item in facts if item.replay and item.replay != NO_RECORDING),
        settings=settings,
    )
    # The number of ranks alone describes no platform.
    fields = (known.gpu, known.nodes, known.network, known.nccl_version)
    return known if platform_name is not None or any(fields) else None


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode() + "\n"
