# SPDX-License-Identifier: Apache-2.0
"""Sweep: measure NCCL's choices into a study, where a decision is open."""

import contextlib
import importlib
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from nccltune.analyze.timings import Timings
from nccltune.app.measuring import hold_study, refuse_file
from nccltune.measure.adaptive.plan import Plan
from nccltune.measure.bench.conversation import Hello
from nccltune.measure.bench.hardware import dump_settings, keep_topology, topology_dump
from nccltune.measure.bench.identity import check_same_platform, platform_of
from nccltune.measure.bench.process import Bench, Launch
from nccltune.measure.engine.communicator import SweepOutcome, Watcher
from nccltune.measure.engine.record import Summary, write_summary
from nccltune.measure.experiments.choices.experiment import ChoicesExperiment, SweepScope
from nccltune.model.choice import DEFAULT, AnyChoice
from nccltune.model.errors import LaunchError, StudyError
from nccltune.model.platform import Platform
from nccltune.study.files import Study

Channels = Literal["default", "any"]
"""The channels that a rule may take: at most those of NCCL's default, or any number."""


class SweepProgress(Protocol):
    """What a sweep calls while it runs."""

    def starting(self) -> None:
        """Call while the bench starts, which takes seconds."""

    def started(self, platform: Platform, hello: Hello) -> None:
        """Call once, before the first measurement."""

    def watching(self, hello: Hello) -> contextlib.AbstractContextManager[Watcher[Plan]]:
        """Return what shows the status; it is open while the sweep measures."""


class Swept(NamedTuple):
    """A sweep that ended by itself or with its budget."""

    platform: Platform
    plan: Plan
    outcome: SweepOutcome
    summary: Summary


class SweepRun:
    """One run of a sweep into the study at `path`.

    `command` is the command line that resumes it. `channels` must be those of the `tune` that
    follows, which decides what is worth measuring.
    """

    def __init__(
        self,
        path: Path,
        launch: Launch,
        wanted: SweepScope,
        *,
        command: str,
        channels: Channels = "default",
    ) -> None:
        refuse_file(path)
        self._path = path
        self._launch = launch
        self._wanted = wanted
        self._command = command
        self._channels: Channels = channels
        self.kept: int | None = None
        """Points in the study; None before the first measurement."""

    def plan(self) -> tuple[Platform, Plan]:
        """Return what a run would measure; write nothing."""
        with (
            topology_dump(self._launch) as hardware,
            Bench(self._launch, settings=dump_settings(hardware)) as bench,
        ):
            platform = platform_of_bench(self._path, self._launch, bench.hello)
            check_same_platform(Study(self._path), platform)
            return platform, self._experiment(bench).plan

    def run(self, progress: SweepProgress) -> Swept:
        """Measure until nothing more is worth measuring, or the budget is spent.

        Every timing is in the study at once. Raises LaunchError where the bench ends, and what
        interrupts it (KeyboardInterrupt); `kept` is then what the study holds.
        """
        with contextlib.ExitStack() as stack:
            hardware = stack.enter_context(topology_dump(self._launch))
            bench = stack.enter_context(
                Bench(
                    self._launch,
                    meanwhile=partial(_meanwhile, progress.starting),
                    settings=dump_settings(hardware),
                )
            )
            hello = bench.hello
            platform = platform_of_bench(self._path, self._launch, bench.hello)
            check_same_platform(Study(self._path), platform)
            experiment = self._experiment(bench)
            study = stack.enter_context(hold_study(self._path, platform))
            keep_topology(study, self._launch, hardware)
            record = experiment.record(study)
            progress.started(platform, hello)
            watcher = stack.enter_context(progress.watching(hello))
            try:
                outcome = experiment.run(record, watcher)
            except (KeyboardInterrupt, LaunchError, StudyError):
                stack.close()
                self.kept = experiment.outcome_so_far.points + experiment.outcome_so_far.known
                # The disk may be the reason, so the summary may fail too.
                with contextlib.suppress(StudyError):
                    write_summary(study, experiment.summary("interrupted", self._command))
                raise
        summary = experiment.summary(outcome.reason, self._command)
        write_summary(study, summary)
        return Swept(platform, experiment.plan, outcome, summary)

    def _experiment(self, bench: Bench) -> ChoicesExperiment:
        return ChoicesExperiment(bench, self._wanted, partial(decide, channels=self._channels))


def platform_of_bench(path: Path, launch: Launch, hello: Hello) -> Platform:
    """Return the platform of a bench that has sent `hello`, for the study at `path`."""
    return platform_of(
        hello,
        path.resolve().name,
        environment=os.environ,
        today=datetime.now(UTC).date().isoformat(),
        emulated_nodes=launch.emulate_nodes,
        recording=Study.open(launch.replay).platform() if launch.replay else None,
    )


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
