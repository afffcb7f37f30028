# SPDX-License-Identifier: Apache-2.0
"""Sweep NCCL's choices with a site's own nccl-tests binaries, one process for each choice."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from nccltune.app.measuring import (
    ExperimentProgress,
    NoProgress,
    hold_study,
    platform_of_run,
    refuse_file,
    saved_when_stopped,
)
from nccltune.measure.engine.record import Summary, write_summary
from nccltune.measure.engine.scheduler import FIRST_GUESS_S
from nccltune.measure.experiments.nccl_tests.binaries import NcclTestsSite
from nccltune.measure.experiments.nccl_tests.experiment import (
    NcclTestsExperiment,
    NcclTestsOutcome,
    NcclTestsScope,
)
from nccltune.model.choice import AnyChoice
from nccltune.model.collective import Collective
from nccltune.model.platform import Platform
from nccltune.study.files import Study


class NcclTestsPlan(NamedTuple):
    """The plan of a sweep: its choices, number of processes and rounds, and estimated seconds."""

    platform: Platform
    choices: dict[Collective, list[AnyChoice]]
    processes: int
    rounds: int
    seconds: float


class NcclTestsResult(NamedTuple):
    """The result of a sweep that was not interrupted. `version` is the version of nccl-tests."""

    platform: Platform
    version: str
    outcome: NcclTestsOutcome
    summary: Summary


def plan_nccl_tests(path: Path, site: NcclTestsSite, scope: NcclTestsScope) -> NcclTestsPlan:
    """Return the plan of a sweep into the study at `path`; run the default once, write nothing."""
    experiment, platform, _ = _probe(path, site, scope)
    processes = len(experiment.plan())
    return NcclTestsPlan(
        platform,
        {item: experiment.choices(item) for item in scope.collectives},
        processes,
        scope.rounds,
        FIRST_GUESS_S * processes,
    )


def sweep_nccl_tests(
    path: Path,
    site: NcclTestsSite,
    scope: NcclTestsScope,
    progress: ExperimentProgress | None = None,
    *,
    command: str = "",
) -> NcclTestsResult:
    """Measure every choice that NCCL offers, in rounds, and store the timings in a study.

    Raises PlatformError for a missing binary, LaunchError if NCCL's default does not run, and what
    stops the sweep early (KeyboardInterrupt, StudyError).
    """
    shown = progress or NoProgress()
    with contextlib.ExitStack() as stack:
        with shown.watching():
            experiment, platform, version = _probe(path, site, scope)
        study = stack.enter_context(hold_study(path, platform))
        shown.started(platform, f"nccl-tests {version}")
        experiment.load_recorded()

        def save(reason: str) -> Summary:
            outcome = experiment.outcome_so_far(reason)
            summary = Summary(
                reason=outcome.reason,
                points=outcome.points,
                known=outcome.known,
                failed=len(outcome.left_out),
                seconds=outcome.seconds,
                gain_left=None,
                replay=None,
                command=command,
            )
            write_summary(study, summary)
            return summary

        def stop() -> None:
            try:
                save("interrupted")
            finally:
                outcome = experiment.outcome_so_far("interrupted")
                shown.stopped(f"all {outcome.points + outcome.known} points so far")

        with saved_when_stopped(stack, stop):
            outcome = experiment.run(stack.enter_context(shown.watching()))
    return NcclTestsResult(platform, version, outcome, save(outcome.reason))


def _probe(
    path: Path, site: NcclTestsSite, scope: NcclTestsScope
) -> tuple[NcclTestsExperiment, Platform, str]:
    refuse_file(path)
    for collective in scope.collectives:
        site.binary(collective)
    study = Study(path)
    experiment = NcclTestsExperiment(site, scope, study, os.environ)
    hello = experiment.hello()
    emulated = hello.nodes if experiment.emulated_nodes else None
    environment = experiment.environment()
    platform = platform_of_run(path, hello, environment=environment, emulated_nodes=emulated)
    return experiment, platform, hello.version
