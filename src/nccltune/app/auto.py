# SPDX-License-Identifier: Apache-2.0
"""Auto: sweep, analyze, tune, verify and report, one after the other."""

from pathlib import Path
from typing import NamedTuple, Protocol

from nccltune.analyze.result import Analysis
from nccltune.app.analyze import analyze_study
from nccltune.app.examiner import ChecksLine, Examiner
from nccltune.app.report import report_study, write_page
from nccltune.app.study import open_study
from nccltune.app.sweep import SweepProgress, SweepResult, sweep
from nccltune.app.tune import save_tuning, tune_study
from nccltune.app.verify import VerifyProgress, verify
from nccltune.app.workload import recorded
from nccltune.measure.bench.conversation import Hello
from nccltune.measure.bench.process import Launch
from nccltune.measure.experiments.choices import SweepScope
from nccltune.model.platform import Platform
from nccltune.prove.result import Proof
from nccltune.report.data import Report
from nccltune.study.files import Study
from nccltune.tune.result import TuneOptions, Tuning

SWEEP_SHARE = 0.8
"""The share of the budget that the sweep may use; the rest is for the verification."""


class AutoProgress(SweepProgress, Protocol):
    """Callbacks of a running `auto`. Each result is reported once, as soon as it is known."""

    @property
    def verifying(self) -> VerifyProgress:
        """Return the callbacks for the verification."""

    def checked(self, line: ChecksLine) -> None:
        """Report the result of the doctor's checks of this node, as one line."""

    def swept(self, swept: SweepResult) -> None:
        """Report the result of the sweep."""

    def analyzed(self, analysis: Analysis) -> None:
        """Report the curves and findings."""

    def tuned(self, tuning: Tuning) -> None:
        """Report the rules."""

    def proven(self, proof: Proof | None) -> None:
        """Report the proof of the rules; None if no rule was found."""

    def warn(self, sentences: list[str]) -> None:
        """Report parts of the study that could not be used, one sentence for each."""


class AutoResult(NamedTuple):
    """The results of all steps of `auto`. `proof` is None if no rule was found."""

    study: Study
    swept: SweepResult
    tuning: Tuning
    proof: Proof | None
    report: Report


def auto(
    path: Path,
    launch: Launch,
    scope: SweepScope,
    options: TuneOptions,
    progress: AutoProgress,
    *,
    command: str,
) -> AutoResult:
    """Sweep, analyze, tune, verify and report into the study at `path`.

    Without rules nothing is verified. `command` is stored as the command line that resumes the run.
    To see the plan of the sweep without measuring, call `plan_sweep`. Raises StudyError if the
    study cannot be read or written, InputError if weights or recordings cannot be read, and what
    `sweep` and `verify` raise.
    """
    budget_s, job = scope.budget_s, recorded(scope.workload)
    with Examiner(launch) as examiner:
        swept = sweep(
            path,
            launch,
            scope._replace(budget_s=budget_s and SWEEP_SHARE * budget_s),
            _Checking(progress, examiner, path),
            command=command,
            channels=options.channels,
            meanwhile=examiner.begin,
            job=job,
        )
    progress.swept(swept)
    opened = open_study(path)
    study = opened.study
    analyzed = analyze_study(opened, assumed_noise=options.assumed_noise)
    progress.warn(analyzed.warnings)
    study.write_json(study.findings_path, analyzed.analysis)
    progress.analyzed(analyzed.analysis)
    tuning = save_tuning(study, tune_study(opened, options, job))
    progress.tuned(tuning)
    proof = None
    if tuning.rules:
        left = None
        if budget_s is not None:
            left = max(budget_s - swept.outcome.seconds, (1 - SWEEP_SHARE) * budget_s)
        proof = verify(
            study,
            launch,
            progress.verifying,
            command=command,
            budget_s=left,
            workload=scope.workload,
            job=job,
        ).proof
    progress.proven(proof)
    report, warnings = report_study(study.path)
    progress.warn(warnings)
    write_page(report, study.report_path)
    return AutoResult(study, swept, tuning, proof, report)


def usual_study(launch: Launch) -> Path:
    """Return the study that `auto` writes if the user names none."""
    if launch.replay is not None:
        return Path("studies") / f"replay-of-{launch.replay.name}"
    return Path("studies") / "auto"


class _Checking:
    """Callbacks of the sweep that forward to `progress`, and also report the doctor's checks."""

    def __init__(self, progress: AutoProgress, examiner: Examiner, path: Path) -> None:
        self._progress = progress
        self._examiner = examiner
        self._path = path
        self.watching = progress.watching
        self.stopped = progress.stopped

    def started(self, platform: Platform, hello: Hello) -> None:
        self._progress.started(platform, hello)
        self._progress.checked(self._examiner.checks_line(Study(self._path), platform, hello))
