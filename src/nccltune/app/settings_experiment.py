# SPDX-License-Identifier: Apache-2.0
"""Run an experiment of settings in a study: what the three experiments on send/recv share."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from nccltune.app.measuring import (
    ExperimentProgress,
    hold_study,
    refuse_file,
    saved_when_stopped,
)
from nccltune.app.sweep import platform_of_bench
from nccltune.measure.bench.identity import check_same_platform
from nccltune.measure.bench.process import Launch
from nccltune.measure.engine.scheduler import EndReason
from nccltune.measure.engine.settings import DEFAULT
from nccltune.measure.engine.settings_processes import BenchProcess, Starter
from nccltune.measure.engine.status import StatusCallback
from nccltune.model.platform import Platform
from nccltune.study.files import Study

V = TypeVar("V", bound=msgspec.Struct)
V_co = TypeVar("V_co", covariant=True)


class _Experiment(Protocol[V_co]):
    def measure(self) -> EndReason: ...
    def verdict(self, reason: str) -> V_co: ...


class DefaultProcess(NamedTuple):
    """The first process, which runs with NCCL's default settings, and the platform it runs on."""

    process: BenchProcess
    platform: Platform
    study: Study


@contextlib.contextmanager
def default_process(path: Path, launch: Launch, start: Starter) -> Iterator[DefaultProcess]:
    """Start the first process for the study at `path`; write nothing.

    Raises StudyError where the study is of another platform.
    """
    refuse_file(path)
    with start(DEFAULT, 0) as first:
        platform = platform_of_bench(path, launch, first.hello)
        study = Study(path)
        check_same_platform(study, platform)
        yield DefaultProcess(first, platform, study)


def run_experiment(
    path: Path,
    launch: Launch,
    start: Starter,
    make: Callable[[Study, BenchProcess, StatusCallback], _Experiment[V]],
    progress: ExperimentProgress,
    *,
    result: str,
    command: str,
) -> tuple[Study, Platform, V]:
    """Measure into the study at `path`, and write the verdict to its file `result`.

    `make` returns the experiment for the study and the first process; `command` resumes it. Also an
    experiment that is stopped early leaves a verdict, and raises the reason.
    """
    with contextlib.ExitStack() as stack:
        first, platform, _ = stack.enter_context(default_process(path, launch, start))
        study = stack.enter_context(hold_study(path, platform))
        progress.started(platform, first.hello.nccl.came_from)
        on_status = stack.enter_context(progress.watching())
        experiment = make(study, first, on_status)

        def save(reason: str) -> V:
            verdict = msgspec.structs.replace(experiment.verdict(reason), command=command)
            study.write_json(study.path / result, verdict)
            return verdict

        def stop() -> None:
            try:
                save("interrupted")
            finally:
                progress.stopped("all timings so far")

        with saved_when_stopped(stack, stop):
            reason = experiment.measure()
    return study, platform, save(reason)
