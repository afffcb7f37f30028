# SPDX-License-Identifier: Apache-2.0
"""Sweep: measure NCCL's choices into a study, at sizes where the best choice is not yet clear."""

import contextlib
import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from nccltune.analyze.timings import Timings
from nccltune.app.measuring import (
    BenchProgress,
    hold_study,
    platform_of_bench,
    refuse_file,
    saved_when_stopped,
)
from nccltune.app.workload import recorded
from nccltune.measure.adaptive.plan import Plan
from nccltune.measure.adaptive.rounds import SizeDecisions
from nccltune.measure.bench.identity import dump_settings, keep_topology, topology_dump
from nccltune.measure.bench.process import Bench, Launch
from nccltune.measure.engine.communicator import SweepOutcome
from nccltune.measure.engine.record import Summary, write_summary
from nccltune.measure.engine.replayed_bench import open_bench
from nccltune.measure.experiments.choices import ChoicesExperiment, SweepScope
from nccltune.model.choice import DEFAULT
from nccltune.model.platform import Platform
from nccltune.model.rule import RuleState
from nccltune.workload.table import Workload

Channels = Literal["default", "any"]
"""How many channels a rule may use: at most as many as NCCL's default, or any number."""


SweepProgress = BenchProgress[Plan]
"""Callbacks of a running sweep."""


class SweepResult(NamedTuple):
    """The result of a sweep that was not interrupted: it was complete, or its budget was spent."""

    platform: Platform
    plan: Plan
    outcome: SweepOutcome
    summary: Summary


def plan_sweep(
    path: Path, launch: Launch, scope: SweepScope, *, channels: Channels = "default"
) -> tuple[Platform, Plan]:
    """Return the platform and the plan of a sweep; the bench starts, but measures nothing."""
    refuse_file(path)
    job = recorded(scope.workload)
    with (
        topology_dump(launch) as hardware,
        open_bench(launch, settings=dump_settings(hardware)) as bench,
    ):
        platform = platform_of_bench(path, launch, bench.hello)
        return platform, _experiment(bench, scope, channels, job).plan


def sweep(
    path: Path,
    launch: Launch,
    scope: SweepScope,
    progress: SweepProgress,
    *,
    command: str,
    channels: Channels = "default",
    meanwhile: Callable[[], None] = lambda: None,
    job: Workload | None = None,
) -> SweepResult:
    """Measure into the study at `path` until nothing is worth measuring or the budget is spent.

    Every timing is stored immediately. `command` is stored as the command line that resumes the
    sweep. Pass the same `channels` to the rule search later, because they determine which choices
    are worth measuring. `job` is what `scope.workload` recorded, if it was read before. `meanwhile`
    is called while the bench starts, which takes seconds. Raises what `recorded` and `Bench` raise,
    and StudyError if the study is a file, is of another platform, or cannot be read or written.
    KeyboardInterrupt stops the sweep and is raised again.
    """
    refuse_file(path)
    job = job or recorded(scope.workload)
    with contextlib.ExitStack() as stack:
        hardware = stack.enter_context(topology_dump(launch))
        imports = partial(_meanwhile, meanwhile)
        bench = stack.enter_context(
            open_bench(launch, meanwhile=imports, settings=dump_settings(hardware))
        )
        platform = platform_of_bench(path, launch, bench.hello)
        experiment = _experiment(bench, scope, channels, job)
        study = stack.enter_context(hold_study(path, platform))
        keep_topology(study, launch, hardware)
        record = experiment.record(study)
        progress.started(platform, bench.hello)
        watcher = stack.enter_context(progress.watching(bench.hello))

        def stop() -> None:
            points = experiment.outcome_so_far.points + experiment.outcome_so_far.known
            try:
                write_summary(study, experiment.summary("interrupted", command))
            finally:
                if points:
                    progress.stopped(f"all {points} points so far")

        with saved_when_stopped(stack, stop):
            outcome = experiment.run(record, watcher)
    summary = experiment.summary(outcome.reason, command)
    write_summary(study, summary)
    return SweepResult(platform, experiment.plan, outcome, summary)


def _experiment(
    bench: Bench, scope: SweepScope, channels: Channels, job: Workload | None
) -> ChoicesExperiment:
    return ChoicesExperiment(bench, scope, partial(decide, channels=channels, job=job), job)


def _meanwhile(also: Callable[[], None]) -> None:
    """Call `also`, then import scipy and rich (0.4 s) while the bench initialises the GPUs."""
    also()
    for name in ("nccltune.tune.search", "scipy.special", "rich.live", "rich.table"):
        importlib.import_module(name)


def decide(
    timings: Timings, channels: Channels = "default", job: Workload | None = None
) -> SizeDecisions:
    """Return the choice that a rule would have at every size if rules were searched now.

    The choice is `DEFAULT` at a size without a rule. With `job`, sizes count by its time.
    """
    # Import here and not at the top, so that `_meanwhile` can import these modules while the bench
    # starts.
    from nccltune.tune.result import TuneOptions
    from nccltune.tune.search import search
    from nccltune.tune.worth import job_weights

    options = TuneOptions(channels=channels)
    groups = search([timings], options, eager=True)
    for weights in job_weights(job, groups).values() if job is not None else ():
        groups = search([timings], options, weights, eager=True)
    return SizeDecisions(
        {row.bytes: row.choice or DEFAULT for group in groups for row in group.decisions},
        frozenset(
            size
            for group in groups
            for item in group.rules
            if item.state is RuleState.CANDIDATE
            for size in item.sizes
        ),
    )
