# SPDX-License-Identifier: Apache-2.0
"""Plan and run an experiment in a study. The experiments on send/recv share this code.

The first process of an experiment always runs NCCL's default settings.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from nccltune.app.measuring import (
    ExperimentProgress,
    NoProgress,
    hold_study,
    platform_of_bench,
    refuse_file,
    saved_when_stopped,
)
from nccltune.measure.bench.process import Launch
from nccltune.measure.engine.process_record import ProcessRecord, RecordKind
from nccltune.measure.engine.scheduler import StatusCallback, ignore_status
from nccltune.measure.engine.settings import DEFAULT
from nccltune.measure.engine.settings_experiment import ExperimentScope, SettingsExperiment
from nccltune.measure.engine.settings_processes import BenchProcess, Starter
from nccltune.model.platform import Platform
from nccltune.study.files import Study

S = TypeVar("S", bound=ExperimentScope)
E = TypeVar("E")
V = TypeVar("V", bound=msgspec.Struct)


Make = Callable[[Starter, BenchProcess, ProcessRecord, S, StatusCallback], E]
"""The constructor of an experiment E with a scope S."""


@contextlib.contextmanager
def planned(
    make: Make[S, E], path: Path, launch: Launch, start: Starter, scope: S, kind: RecordKind
) -> Iterator[tuple[E, Platform]]:
    """Start the first process, and yield the experiment and the platform; write nothing."""
    with _default_process(path, launch, start) as (first, platform):
        record = ProcessRecord(Study(path), kind)
        yield make(start, first, record, scope, ignore_status), platform


def run_experiment(
    make: Make[S, SettingsExperiment[S, V]],
    path: Path,
    launch: Launch,
    start: Starter,
    scope: S,
    kind: RecordKind,
    progress: ExperimentProgress | None,
    *,
    command: str,
) -> tuple[Study, Platform, V]:
    """Measure into the study at `path`, and write the verdict to the result file of `kind`.

    An experiment that is stopped early also writes one. `command` is stored as what resumes it.
    Raises StudyError if the study is of another platform.
    """
    shown = progress or NoProgress()
    with contextlib.ExitStack() as stack:
        first, platform = stack.enter_context(_default_process(path, launch, start))
        study = stack.enter_context(hold_study(path, platform))
        shown.started(platform, first.hello.nccl.came_from)
        on_status = stack.enter_context(shown.watching())
        experiment = make(start, first, ProcessRecord(study, kind), scope, on_status)

        def save(reason: str) -> V:
            verdict = msgspec.structs.replace(experiment.verdict(reason), command=command)
            study.write_json(study.path / kind.result, verdict)
            return verdict

        def stop() -> None:
            try:
                save("interrupted")
            finally:
                shown.stopped("all timings so far")

        with saved_when_stopped(stack, stop):
            reason = experiment.measure()
    return study, platform, save(reason)


@contextlib.contextmanager
def _default_process(
    path: Path, launch: Launch, start: Starter
) -> Iterator[tuple[BenchProcess, Platform]]:
    refuse_file(path)
    with start(DEFAULT, 0) as first:
        yield first, platform_of_bench(path, launch, first.hello)
