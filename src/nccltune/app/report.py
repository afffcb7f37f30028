# SPDX-License-Identifier: Apache-2.0
"""Report a study: the data that every form of the report shows, and the page."""

import shlex
from pathlib import Path
from typing import NamedTuple

import msgspec

import nccltune
from nccltune.analyze.result import Analysis
from nccltune.app.analyze import analyze_study, stored_analysis
from nccltune.app.compare import read_runs
from nccltune.app.compare_reference import ReferenceRequest, compare_with_reference
from nccltune.app.reproduce import measure_again
from nccltune.app.study import OpenStudy, open_study, saving
from nccltune.app.tune import too_old, tune_study, verify_command, worth_to
from nccltune.app.workload import WorkloadSummary, show_workload
from nccltune.doctor.result import Examination
from nccltune.formats.reading.context import ReadOptions
from nccltune.formats.reading.file_report import ImportRecord
from nccltune.formats.tuner_config.csv_rules import config_hash
from nccltune.model.errors import InputError, NccltuneError, UnwritableError
from nccltune.model.numbers import counted
from nccltune.prove.job import job_of
from nccltune.prove.result import Proof
from nccltune.prove.run import read_proof, rules_of
from nccltune.report.build import build
from nccltune.report.data import (
    Checks,
    Commands,
    PublishedRow,
    Report,
    WorkloadGroup,
    WorkloadReport,
    WorkloadRow,
)
from nccltune.report.examination import checks_of
from nccltune.report.html import render
from nccltune.report.words import printable
from nccltune.report.worth import worth_lines
from nccltune.study.files import Study, write_whole
from nccltune.tune.result import JobWorth, TuneOptions, Tuning


class ReportResult(NamedTuple):
    """A report, and warnings about parts of the study that it leaves out or replaces."""

    report: Report
    warnings: list[str]


class ReportParts(NamedTuple):
    """A report, what it was made of, and its warnings; `workload` without its levers."""

    report: Report
    analysis: Analysis
    tuning: Tuning
    warnings: list[str]
    workload: WorkloadSummary | None = None


class SavedReport(NamedTuple):
    """A report with its parts, the path of its page, and the error if writing it failed."""

    parts: ReportParts
    page: Path
    unsaved: list[UnwritableError]


def report_study(path: Path) -> ReportResult:
    """Return the report of the study at `path`. Raises StudyError if there is none.

    Outdated findings and rules are computed again, with a warning.
    """
    parts = _parts(path)
    return ReportResult(parts.report, parts.warnings)


def _parts(path: Path) -> ReportParts:
    opened = open_study(path, curves=True)
    study = opened.study
    tuning, written, warnings = _tuning(opened)
    if tuning.rules and (update := too_old(tuning.nccl_version)):
        warnings.append(update)
    proof = read_proof(study)
    if proof is not None and not _is_of_config(study, proof):
        warnings.append(
            "proof.json is of another configuration and not shown: "
            f"nccltune verify {shlex.quote(str(path))}"
        )
        proof = None
    analysis, stale = stored_analysis(opened)
    warnings += stale
    if analysis is None:
        analyzed = analyze_study(opened, assumed_noise=tuning.options.assumed_noise)
        analysis = analyzed.analysis
        warnings += analyzed.warnings
    offered = commands(opened, tuning, written=written, proven=proof is not None)
    job = job_of(study.config_path)
    if job is not None and job.harms:
        offered = msgspec.structs.replace(offered, deploy=None)
    sent, unread = _sent(tuning)
    warnings += unread
    worth = tuning.worth
    if worth is None and sent is not None:  # rules were removed since `tune`
        worth = worth_to(sent.workload, tuning, study)
    report = build(
        analysis,
        tuning,
        proof=proof,
        job=job,
        commands=offered,
        tool_version=nccltune.__version__,
        sources=[_source(record) for record in study.imports(ImportRecord)],
        checks=_checks(study),
        workload=None if worth is None else _workload(worth, sent),
    )
    try:
        report = msgspec.structs.replace(report, published=_published(path))
    except NccltuneError as error:
        warnings.append(f"not placed among published systems: {error}")
    return ReportParts(report, analysis, tuning, warnings, sent)


def _published(path: Path) -> list[PublishedRow]:
    """Return the study's defaults among published systems, where any is alike."""
    runs = read_runs([path], ReadOptions(study="report", comparing=True)).runs
    placed = compare_with_reference(path, runs, ReferenceRequest(), [])
    return [
        PublishedRow(
            title=printable(test.title),
            sentences=[one.sentence for one in (found.bandwidth, found.latency) if one is not None],
            rule=test.rule,
            bytes=found.bandwidth.bytes,
            systems=[*found.bandwidth.systems, *found.bandwidth.faults],
        )
        for test in placed.tests
        if (found := test.placement) is not None and found.bandwidth.systems
    ]


def report_path(path: Path, page: Path | None = None, *, save: bool) -> SavedReport:
    """Return the report of the study; with `save` write `page`, or STUDY/report.html."""
    parts = _parts(path)
    unsaved: list[UnwritableError] = []
    target = page or Study(path).report_path
    if save:
        with saving(unsaved, page):
            write_page(parts.report, target)
    return SavedReport(parts, target, unsaved)


def write_page(report: Report, path: Path) -> None:
    """Write a report as one HTML file, atomically. Raises UnwritableError."""
    write_whole(path, render(report))


def _sent(tuning: Tuning) -> tuple[WorkloadSummary | None, list[str]]:
    """Return what the job sends that the rules were searched for, and a warning."""
    worth, paths = tuning.worth, tuning.options.workload
    if not paths:
        return None, []
    try:
        found = show_workload([Path(path) for path in paths])
    except InputError as error:
        return None, [f"what the job sends is not shown: {error}"]
    job = found.workload
    read = (job.recorders, sum(row.calls for row in job.rows))
    if worth is not None and read != (worth.recorders, worth.calls):
        changed = "the recordings are not those that tune read"
        return None, [f"what the job sends is not shown: {changed}: {shlex.join(paths)}"]
    return msgspec.structs.replace(found, levers=[]), []


def _workload(worth: JobWorth, sent: WorkloadSummary | None) -> WorkloadReport:
    lines = worth_lines(worth)
    if sent is None:
        return WorkloadReport(worth.unit, lines)
    groups = []
    for use in sent.groups:
        rows = [
            WorkloadRow(
                item.operation.prose,
                item.low,
                item.high,
                item.calls,
                item.bytes,
                item.time_us,
                sent.share(item),
            )
            for item in sent.largest(use)
        ]
        groups.append(WorkloadGroup(printable(use.title), rows, len(use.ranges) - len(rows)))
    return WorkloadReport(worth.unit, lines, sent.sent, groups)


def _checks(study: Study) -> Checks | None:
    path = study.doctor_path
    if not path.is_file():
        return None
    platform = study.platform()
    nodes = 1 if platform.emulated_nodes else platform.nodes or 1
    return checks_of(study.read_json(path, Examination), nodes)


def _has_hash(study: Study, wanted: str | None) -> bool:
    path = study.config_path
    return path.is_file() and config_hash(path.read_bytes()) == wanted


def _is_of_config(study: Study, proof: Proof) -> bool:
    """Return whether STUDY/tuner.conf has the rules of the proof; comments do not matter."""
    if not study.config_path.is_file():
        return False
    return [item.rule for item in proof.rules] == rules_of(study)


def _tuning(opened: OpenStudy) -> tuple[Tuning, bool, list[str]]:
    """Return the tuning, searched again if it is outdated, whether tuner.conf has it, warnings."""
    study, options, warnings = opened.study, TuneOptions(), []
    if study.tuning_path.is_file():
        stored = study.read_json(study.tuning_path, Tuning)
        if stored.samples == opened.samples.samples:
            return stored, _has_hash(study, stored.config_hash), []
        options = stored.options
        warnings.append(
            "tuning.json is older than the samples; the rules shown here are new, tuner.conf is "
            f"not: nccltune tune {shlex.quote(str(study.path))}"
        )
    return tune_study(opened, options), False, warnings


def commands(opened: OpenStudy, tuning: Tuning, *, written: bool, proven: bool) -> Commands:
    """Return the commands that the report offers to copy. Raises StudyError.

    `written` is whether tuner.conf has the rules of `tuning`.
    """
    path = shlex.quote(str(opened.study.path))
    options = _options(tuning.options, TuneOptions())
    search = " ".join(["nccltune tune", path, *options])
    first = "" if written else f"{search} && "
    deploys = tuning.rules and not too_old(tuning.nccl_version)
    again = measure_again(opened.study, opened.samples, options, proven=proven)
    return Commands(
        reproduce=again.command,
        reproduce_note=again.note,
        rebuild=f"{search} && nccltune report {path}",
        deploy=f"{first}nccltune env {path}" if deploys else None,
        prove=first + verify_command(opened.study, tuning) if deploys and not proven else None,
    )


def _options(options: TuneOptions, usual: TuneOptions) -> list[str]:
    found = []
    for name, option, share in (
        ("min_gain", "--min-gain", True),
        ("penalty", "--penalty", False),
        ("assumed_noise", "--assume-noise", True),
        ("channel_tolerance", "--channel-tolerance", True),
    ):
        value = getattr(options, name)
        if value != getattr(usual, name):
            found.append(f"{option} {100 * value:.6g}%" if share else f"{option} {value:.6g}")
    found += ["--weights", shlex.quote(options.weights)] if options.weights else []
    found += [word for path in options.workload for word in ("--workload", shlex.quote(path))]
    found += ["--channels", options.channels] if options.channels != usual.channels else []
    found += ["--extend"] if options.extend else []
    found += ["--any-scale"] if options.any_scale else []
    return found


def _source(record: ImportRecord) -> str:
    parts = [f"{record.file}: {record.kind.value}", counted(record.samples, "sample")]
    if record.unreadable:
        parts.append(f"{counted(record.unreadable, 'line')} not readable")
    return ", ".join(parts)
