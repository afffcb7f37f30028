# SPDX-License-Identifier: Apache-2.0
"""A/B-test settings or two NCCLs in alternating runs; keep settings that help beyond noise."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from nccltune.app.ab_releases import check_loaded, with_releases
from nccltune.app.measuring import (
    ExperimentProgress,
    NoProgress,
    hold_study,
    platform_of_bench,
    refuse_file,
    saved_when_stopped,
)
from nccltune.formats.tuner_config.nccl_conf import read_conf, render_conf
from nccltune.measure.bench.identity import keep_topology, topology_dump
from nccltune.measure.bench.process import Launch
from nccltune.measure.experiments.ab.bench import BenchRunner
from nccltune.measure.experiments.ab.experiment import TrialExperiment, TrialRunner, TrialScope
from nccltune.measure.experiments.ab.judge import TrialVerdict, judge
from nccltune.measure.experiments.ab.replay import ReplayRunner
from nccltune.measure.experiments.ab.runs import SettingTrial, TrialFiles
from nccltune.measure.experiments.ab.settings import LIBRARY
from nccltune.study import names
from nccltune.study.files import Study

CONF = names.AB_CONF
RESULT = names.AB_RESULT


def kept_settings(path: Path) -> dict[str, str | None]:
    """Return what earlier tests in the study confirmed (STUDY/try.conf)."""
    conf = path / CONF
    return {**read_conf(conf)} if conf.is_file() else {}


def trial_of(
    path: Path, settings: dict[str, str | None], what: Sequence[str], library: str | None = None
) -> SettingTrial:
    """Return the test of `settings`, under those that earlier tests confirmed.

    `library` is the NCCL of the first side, if `settings` name that of the second one. Tests of
    another program (`what`) are separate.
    """
    baseline = {name: value for name, value in kept_settings(path).items() if name not in settings}
    if library is not None:
        baseline[LIBRARY] = library
    return SettingTrial(settings=settings, baseline=baseline, what=list(what))


def ab_test(
    path: Path,
    runner: TrialRunner,
    trial: SettingTrial,
    scope: TrialScope,
    progress: ExperimentProgress | None = None,
    *,
    min_gain: float,
    anew: bool = False,
    command: str = "",
) -> TrialVerdict:
    """Run processes with and without the settings of `trial`; write try.json and try.conf.

    `min_gain` is the least gain of a range of sizes (0.03 is 3 %). `anew` ignores earlier timings.
    Raises InputError for a recording without these settings, LaunchError if the default does not
    run or a library is not the one that is loaded, StudyError for a study of another platform, and
    what stops the test early (`STOPPED_BY`).
    """
    refuse_file(path)
    if isinstance(runner, ReplayRunner):
        runner.choose(trial.of("default"), trial.of("set"))
    shown = progress or NoProgress()
    with contextlib.ExitStack() as stack:
        study = Study(path)
        experiment = TrialExperiment(runner, TrialFiles(study), trial, scope, anew=anew)
        if isinstance(runner, BenchRunner):
            runner.hardware = stack.enter_context(topology_dump(runner.launch))
        with shown.watching():
            hello = experiment.probe()
        platform = None
        if hello is not None:
            recording = runner.study.path if isinstance(runner, ReplayRunner) else None
            launch = runner.launch if isinstance(runner, BenchRunner) else Launch(recording)
            platform = platform_of_bench(path, launch, hello)
        if trial.compares_releases:
            check_loaded(trial, experiment.probed)
        stack.enter_context(hold_study(path, platform))
        experiment.keep_probe()
        if isinstance(runner, BenchRunner):
            keep_topology(study, runner.launch, runner.hardware)

        def stop() -> None:
            rounds = len(experiment.outcome_so_far("interrupted").rounds)
            shown.stopped(f"all timings so far ({rounds} whole rounds)")

        with saved_when_stopped(stack, stop), shown.watching() as on_status:
            outcome = experiment.run(on_status)
        samples = TrialFiles(study).samples()
        verdict = judge(trial, samples, outcome, min_gain=min_gain)
        if trial.compares_releases:
            verdict = with_releases(study, trial, samples, outcome, verdict)
        return _save(study, trial, verdict, command)


def _save(study: Study, trial: SettingTrial, verdict: TrialVerdict, command: str) -> TrialVerdict:
    """Write try.json; in try.conf replace this trial's settings, unless the verdict is open."""
    platform = study.platform() if study.platform_path.exists() else None
    replay = platform.replay if platform is not None else None
    verdict = msgspec.structs.replace(verdict, command=command, replay=replay)
    study.write_json(study.path / RESULT, verdict)
    conf, kept = study.path / CONF, kept_settings(study.path)
    wanted = dict(trial.baseline)
    if verdict.decision == "keep":
        wanted |= {name: value for name, value in trial.settings.items() if value is not None}
    elif verdict.decision == "open":
        wanted = kept
    wanted.pop(LIBRARY, None)
    values = {name: value for name, value in wanted.items() if value is not None}
    if values and values != kept:
        comments = [f"Settings kept by nccltune ab: {study.platform().title}", verdict.why]
        study.write_text(conf, render_conf(values, comments))
    elif not values:
        conf.unlink(missing_ok=True)
    return verdict
