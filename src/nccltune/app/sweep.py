# SPDX-License-Identifier: Apache-2.0
"""Sweep: measure NCCL's choices into a study, where a decision is open."""

import contextlib
import importlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from nccltune.analyze.timings import Timings
from nccltune.app.measuring import hold_study, platform_of_bench, refuse_file, saved_when_stopped
from nccltune.measure.adaptive.plan import Plan
from nccltune.measure.bench.conversation import Hello
from nccltune.measure.bench.hardware import dump_settings, keep_topology, topology_dump
from nccltune.measure.bench.process import Bench, Launch
from nccltune.measure.engine.communicator import SweepOutcome, Watcher
from nccltune.measure.engine.record import Summary, write_summary
from nccltune.measure.experiments.choices.experiment import ChoicesExperiment, SweepScope
from nccltune.model.choice import DEFAULT, AnyChoice
from nccltune.model.platform import Platform

Channels = Literal["default", "any"]
"""The channels that a rule may take: at most those of NCCL's default, or any number."""


class SweepProgress(Protocol):
    """What a sweep calls while it runs."""

    def started(self, platform: Platform, hello: Hello) -> None:
        """Call once, before the first measurement."""

    def watching(self, hello: Hello) -> contextlib.AbstractContextManager[Watcher[Plan]]:
        """Return what shows the status; it is open while the sweep measures."""

    def stopped(self, kept: str) -> None:
        """Call where it ends early; `kept` is what the study holds of it."""


class Swept(NamedTuple):
    """A sweep that ended by itself or with its budget."""

    platform: Platform
    plan: Plan
    outcome: SweepOutcome
    summary: Summary


def plan_sweep(
    path: Path, launch: Launch, scope: SweepScope, *, channels: Channels = "default"
) -> tuple[Platform, Plan]:
    """Return what a sweep into the study at `path` would measure; write nothing.

    Raises as `sweep` does.
    """
    refuse_file(path)
    with (
        topology_dump(launch) as hardware,
        Bench(launch, settings=dump_settings(hardware)) as bench,
    ):
        platform = platform_of_bench(path, launch, bench.hello)
        return platform, _experiment(bench, scope, channels).plan


def sweep(
    path: Path,
    launch: Launch,
    scope: SweepScope,
    progress: SweepProgress,
    *,
    command: str,
    channels: Channels = "default",
    meanwhile: Callable[[], None] = lambda: None,
) -> Swept:
    """Measure into the study at `path` until nothing more is worth measuring, or the budget is
    spent.

    Every timing is in the study at once. `command` is the command line that resumes it. `channels`
    must be those of the `tune` that follows, which decides what is worth measuring. `meanwhile` is
    called while the bench starts, which takes seconds. Raises LaunchError where the bench ends,
    StudyError where the study is a file or of another platform, and what interrupts it
    (KeyboardInterrupt).
    """
    refuse_file(path)
    with contextlib.ExitStack() as stack:
        hardware = stack.enter_context(topology_dump(launch))
        imports = partial(_meanwhile, meanwhile)
        bench = stack.enter_context(
            Bench(launch, meanwhile=imports, settings=dump_settings(hardware))
        )
        platform = platform_of_bench(path, launch, bench.hello)
        experiment = _experiment(bench, scope, channels)
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
    return Swept(platform, experiment.plan, outcome, summary)


def _experiment(bench: Bench, scope: SweepScope, channels: Channels) -> ChoicesExperiment:
    return ChoicesExperiment(bench, scope, partial(decide, channels=channels))


def _meanwhile(also: Callable[[], None]) -> None:
    """Import what the sweep will need while the GPUs are made ready: 0.4 s of scipy and rich."""
    also()
    for name in ("nccltune.tune.search", "scipy.special", "rich.live", "rich.table"):
        importlib.import_module(name)


def decide(timings: Timings, channels: Channels = "default") -> Mapping[int, AnyChoice]:
    """Return the choice of a rule at every size, if rules were made now.

    Also of choices that look better by few timings: those are worth measuring.
    """
    # Imported late, see `_meanwhile`.
    from nccltune.tune.result import TuneOptions
    from nccltune.tune.search import search

    return {
        decision.bytes: decision.choice or DEFAULT
        for group in search([timings], TuneOptions(channels=channels, include_unsure=True))
        for decision in group.decisions
    }
