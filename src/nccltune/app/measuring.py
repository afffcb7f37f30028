# SPDX-License-Identifier: Apache-2.0
"""Common steps of all measurements: open the study, report progress, handle an interruption."""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

from nccltune.app.study import platform_with_hardware
from nccltune.measure.bench.conversation import Hello
from nccltune.measure.bench.identity import OTHER_STUDY, check_same_platform, platform_of
from nccltune.measure.bench.process import Launch
from nccltune.measure.engine.communicator import MeasurementPlan, Watcher
from nccltune.measure.engine.scheduler import StatusCallback, ignore_status
from nccltune.model.errors import LaunchError, PlatformError, StudyError
from nccltune.model.platform import Platform
from nccltune.study.files import Study, locked

Plan_contra = TypeVar("Plan_contra", bound=MeasurementPlan, contravariant=True)

STOPPED_BY = (KeyboardInterrupt, LaunchError, PlatformError, StudyError)
"""Exceptions that end a measurement early. The results so far are saved, then the exception is
raised again."""


class BenchProgress(Protocol[Plan_contra]):
    """Callbacks of a running measurement by one bench, with plans of one type."""

    def started(self, platform: Platform, hello: Hello) -> None:
        """Report the platform and the bench's first answer, once, before the first measurement."""

    def watching(self, hello: Hello) -> AbstractContextManager[Watcher[Plan_contra]]:
        """Return a context, open during one pass of measuring, that yields what shows its
        status."""

    def stopped(self, kept: str) -> None:
        """Report an early end. `kept` describes the results that are in the study."""


class ExperimentProgress(Protocol):
    """Callbacks of a running experiment that starts processes."""

    def started(self, platform: Platform, library: str | None) -> None:
        """Report the platform and the measured library, once, before the first measurement."""

    def watching(self) -> AbstractContextManager[StatusCallback]:
        """Return a context, open while the experiment measures, that yields the callback."""

    def stopped(self, kept: str) -> None:
        """Report an early end. `kept` describes the results that are in the study."""


class NoProgress:
    """Callbacks that show nothing."""

    def started(self, platform: Platform, library: str | None) -> None:
        """Show nothing."""

    def watching(self) -> AbstractContextManager[StatusCallback]:
        """Return a callback that shows nothing."""
        return contextlib.nullcontext(ignore_status)

    def stopped(self, kept: str) -> None:
        """Show nothing."""


def platform_of_bench(
    path: Path, launch: Launch, hello: Hello, hint: str = OTHER_STUDY
) -> Platform:
    """Return the platform of a bench, or program, that has sent `hello`, for the study at `path`.

    Raises StudyError, with `hint`, if the study is of another platform.
    """
    recording = launch.replay
    platform = platform_of(
        hello,
        path.resolve().name,
        environment={**launch.variables, **os.environ},
        today=datetime.now(UTC).date().isoformat(),
        emulated_nodes=launch.emulate_nodes,
        ranks_per_gpu=launch.ranks_per_gpu,
        mps=launch.mps is not None,
        recording=platform_with_hardware(Study.open(recording)) if recording else None,
    )
    check_same_platform(Study(path), platform, hint=hint)
    return platform


def refuse_file(path: Path) -> None:
    """Raise StudyError if `path` is a file, because a study is a folder."""
    if path.is_file():
        raise StudyError("is a file, not a study folder", where=str(path))


@contextlib.contextmanager
def hold_study(path: Path, platform: Platform | None) -> Iterator[Study]:
    """Create the study if it does not exist, and lock it while the context is open.

    Raises StudyError if another measurement has the lock, or if the study cannot be written.
    """
    study = Study(path) if platform is None else Study.create(path)
    with locked(study):
        if platform is not None and not study.platform_path.exists():
            study.write_json(study.platform_path, platform)
        yield study


@contextlib.contextmanager
def saved_when_stopped(stack: contextlib.ExitStack, save: Callable[[], object]) -> Iterator[None]:
    """If an exception in `STOPPED_BY` ends the block, close `stack`, call `save`, and re-raise.

    A StudyError in `save` is ignored: both may have one reason, such as a full disk.
    """
    try:
        yield
    except STOPPED_BY:
        stack.close()
        with contextlib.suppress(StudyError):
            save()
        raise
