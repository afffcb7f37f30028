# SPDX-License-Identifier: Apache-2.0
"""Demo: analyze, tune, verify and report a copy of a recorded study."""

import shlex
import time
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from nccltune.analyze.result import Analysis
from nccltune.app.analyze import analyze_study
from nccltune.app.report import report_study, write_page
from nccltune.app.study import open_study
from nccltune.app.tune import save_tuning, tune_study
from nccltune.app.verify import VerifyProgress, verify
from nccltune.examples import example, examples
from nccltune.measure.bench.process import Launch
from nccltune.model.errors import InputError
from nccltune.model.sample import Purpose
from nccltune.native import host_path, tuner_path
from nccltune.prove.result import Proof
from nccltune.report.data import Report
from nccltune.study import names
from nccltune.study.files import Study, write_whole
from nccltune.tune.explain import check_decisions
from nccltune.tune.result import Tuning


def copy_recording(recording: Path, target: Path) -> Study:
    """Copy a recording to `target` as a replay; an earlier copy there is kept.

    Raises InputError if another study is at `target`, or nothing was chosen in the recording.
    """
    if not (recording / names.SAMPLES).is_file():
        usable = [name for name, path in examples().items() if (path / names.SAMPLES).is_file()]
        raise InputError(
            f"the recording {recording.name!r} has no timings of choices to tune from",
            hint=f"recordings that have: {' '.join(usable)}",
        )
    original = Study(recording)
    platform = original.platform()
    platform = msgspec.structs.replace(platform, replay=platform.replay or recording.name)
    study = Study.create(target)
    if study.platform_path.exists() and study.platform() not in (platform, original.platform()):
        raise _another_study(target, names.PLATFORM)
    if not study.samples_path.exists():
        write_whole(study.samples_path, original.samples_path.read_text(encoding="utf-8"))
    elif not _is_copy(study, original):
        raise _another_study(target, names.SAMPLES)
    study.write_json(study.platform_path, platform)
    return study


def _is_copy(study: Study, original: Study) -> bool:
    with study.samples_path.open("rb") as ours, original.samples_path.open("rb") as theirs:
        if any(line != ours.readline() for line in theirs):
            return False
    known = sum(1 for _ in original.samples())
    return all(
        sample.source.purpose is Purpose.VERIFY
        for number, sample in enumerate(study.samples())
        if number >= known
    )


def _another_study(target: Path, name: str) -> InputError:
    return InputError(
        f"holds another study ({name} is not the recording's)",
        where=str(target),
        hint="name another folder with -o",
    )


class DemoProgress(VerifyProgress, Protocol):
    """Callbacks of a running demo."""

    def doing(self, words: str) -> None:
        """Report the step that begins, as text."""


class DemoResult(NamedTuple):
    """The results of a demo: the plugin decided as the rules at `agreed` of `asked` sizes."""

    study: Study
    recording: str
    analysis: Analysis
    tuning: Tuning
    agreed: int
    asked: int
    proof: Proof | None
    report: Report
    seconds: float


def demo(recording: str, path: Path, progress: DemoProgress) -> DemoResult:
    """Analyse, tune, ask the plugin, verify in a replay and report, on a copy of a recording.

    Raises InputError for an unknown recording or another study at `path`, PlatformError if a
    program is not built, and what `verify` raises.
    """
    began = time.monotonic()
    source = example(recording)
    study = copy_recording(source, path)
    # Check that everything is built before anything is computed.
    for find in (tuner_path, host_path):
        find()
    progress.doing("analyzing and tuning")
    opened = open_study(study.path)
    analysis = analyze_study(opened).analysis
    study.write_json(study.findings_path, analysis)
    tuning = save_tuning(study, tune_study(opened))
    progress.doing("asking the plugin for its decisions")
    agreed, asked = check_decisions(study.config_path, tuning)
    proof: Proof | None = None
    if tuning.rules:
        progress.doing("verifying the rules in a replay")
        command = f"nccltune verify {shlex.quote(str(path))}"
        proof = verify(study, Launch(replay=source), progress, command=command).proof
    progress.doing("writing the report")
    report, _ = report_study(study.path)
    write_page(report, study.report_path)
    seconds = time.monotonic() - began
    return DemoResult(study, recording, analysis, tuning, agreed, asked, proof, report, seconds)
