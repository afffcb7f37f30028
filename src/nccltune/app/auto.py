# SPDX-License-Identifier: Apache-2.0
"""Auto: sweep, analyze, tune, verify and report, one after the other."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from nccltune.analyze.result import Analysis
from nccltune.app.analyze import analyze_study
from nccltune.app.examiner import ChecksLine, Examiner
from nccltune.app.report import report_study, write_page
from nccltune.app.study import open_study
from nccltune.app.sweep import SweepRun, Swept
from nccltune.app.tune import save_tuning, tune_study
from nccltune.app.verify import VerifyProgress, VerifyRun
from nccltune.measure.adaptive.plan import Plan
from nccltune.measure.bench.conversation import Hello
from nccltune.measure.bench.process import Launch
from nccltune.measure.engine.communicator import Watcher
from nccltune.measure.experiments.choices.experiment import SweepScope
from nccltune.model.platform import Platform
from nccltune.prove.result import Proof
from nccltune.report.data import Report
from nccltune.study.files import Study
from nccltune.tune.result import TuneOptions, Tuning

SWEEP_SHARE = 0.8
"""Of the budget; the rest, and what the sweep leaves of it, is for the proof."""


class AutoProgress(Protocol):
    """What `auto` calls as it goes: each result once, when it is there."""

    @property
    def verifying(self) -> VerifyProgress:
        """Return what the verification calls."""

    def watching(self, hello: Hello) -> AbstractContextManager[Watcher[Plan]]:
        """Return what shows the status of the sweep; it is open while that measures."""

    def started(self, platform: Platform) -> None:
        """Call before the first measurement."""

    def checked(self, line: ChecksLine) -> None:
        """Call with what the doctor found of this node."""

    def swept(self, swept: Swept) -> None:
        """Call when the sweep has ended."""

    def analyzed(self, analysis: Analysis) -> None:
        """Call with the findings."""

    def tuned(self, tuning: Tuning) -> None:
        """Call with the rules."""

    def proven(self, proof: Proof | None) -> None:
        """Call with the proof; None where there are no rules."""

    def warn(self, sentences: list[str]) -> None:
        """Report parts of the study that could not be used."""


class Auto(NamedTuple):
    """Everything that `auto` did."""

    study: Study
    swept: Swept
    tuning: Tuning
    proof: Proof | None
    report: Report


class AutoRun:
    """One run of `auto` into the study at `path`. `command` is the command line that resumes it."""

    def __init__(
        self,
        path: Path | None,
        launch: Launch,
        scope: SweepScope,
        options: TuneOptions,
        *,
        command: str,
        budget_s: float | None = None,
    ) -> None:
        self.path = path or _usual(launch)
        self._launch = launch
        self._options = options
        self._command = command
        self._budget_s = budget_s
        self._sweep = SweepRun(
            self.path,
            launch,
            scope._replace(budget_s=budget_s and SWEEP_SHARE * budget_s),
            command=command,
            channels=options.channels,
        )
        self._verify: VerifyRun | None = None

    @property
    def kept(self) -> int | None:
        """Points in the study; None before the first measurement."""
        return self._verify.kept if self._verify is not None else self._sweep.kept

    def plan(self) -> tuple[Platform, Plan]:
        """Return what the sweep would measure; write nothing."""
        return self._sweep.plan()

    def run(self, progress: AutoProgress) -> Auto:
        """Do every step, and return what came out.

        Raises LaunchError where the bench ends, and what interrupts it (KeyboardInterrupt).
        """
        with Examiner(self._launch) as examiner:
            swept = self._sweep.run(_SweepProgress(progress, examiner, self.path))
        progress.swept(swept)
        opened = open_study(self.path)
        study = opened.study
        analysis, warnings = analyze_study(opened, assumed_noise=self._options.assumed_noise)
        progress.warn(warnings)
        study.write_json(study.findings_path, analysis)
        progress.analyzed(analysis)
        tuning = save_tuning(study, tune_study(opened, self._options))
        progress.tuned(tuning)
        proof = self._prove(study, swept, progress.verifying) if tuning.rules else None
        progress.proven(proof)
        report, warnings = report_study(study.path)
        progress.warn(warnings)
        write_page(report, study.report_path)
        return Auto(study, swept, tuning, proof, report)

    def _prove(self, study: Study, swept: Swept, progress: VerifyProgress) -> Proof | None:
        left = None
        if self._budget_s is not None:
            left = max(self._budget_s - swept.outcome.seconds, (1 - SWEEP_SHARE) * self._budget_s)
        self._verify = VerifyRun(study, self._launch, command=self._command, budget_s=left)
        return self._verify.run(progress)


class _SweepProgress:
    """Passes on the calls of a sweep, and runs the doctor's checks beside it."""

    def __init__(self, progress: AutoProgress, examiner: Examiner, path: Path) -> None:
        self._progress = progress
        self._examiner = examiner
        self._path = path
        self.watching: Callable[[Hello], AbstractContextManager[Watcher[Plan]]] = progress.watching

    def starting(self) -> None:
        """Begin the checks."""
        self._examiner.begin()

    def started(self, platform: Platform, hello: Hello) -> None:
        """Pass on the platform and the checks."""
        self._progress.started(platform)
        self._progress.checked(self._examiner.checks_line(Study(self._path), platform, hello))


def _usual(launch: Launch) -> Path:
    """Return the default place of the study."""
    if launch.replay is not None:
        return Path("studies") / f"replay-of-{launch.replay.name}"
    return Path("studies") / "auto"
