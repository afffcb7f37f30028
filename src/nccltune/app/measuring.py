# SPDX-License-Identifier: Apache-2.0
"""What every use case shares that measures into a study: the study, progress and interruption."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from nccltune.measure.bench.conversation import Hello
from nccltune.measure.bench.identity import OTHER_STUDY, check_same_platform, platform_of
from nccltune.measure.bench.process import Launch
from nccltune.measure.engine.status import StatusCallback, ignore_status
from nccltune.model.errors import LaunchError, PlatformError, StudyError
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from nccltune.study.lock import locked

STOPPED_BY = (KeyboardInterrupt, LaunchError, PlatformError, StudyError)
"""What ends a measurement early. The use case saves what is known, and raises it again."""


class ExperimentProgress(Protocol):
    """What an experiment of processes calls while it runs."""

    def started(self, platform: Platform, library: str | None) -> None:
        """Call once, before the first measurement. `library` is the path of NCCL."""

    def watching(self) -> AbstractContextManager[StatusCallback]:
        """Return what shows the status; it is open while the experiment measures."""

    def stopped(self, kept: str) -> None:
        """Call where the experiment ends early; `kept` is what the study holds of it."""


class NoProgress:
    """Shows nothing."""

    def started(self, platform: Platform, library: str | None) -> None:
        """Show nothing."""

    def watching(self) -> AbstractContextManager[StatusCallback]:
        """Return a callback that shows nothing."""
        return contextlib.nullcontext(ignore_status)

    def stopped(self, kept: str) -> None:
        """Show nothing."""


def platform_of_run(
    path: Path,
    hello: Hello,
    *,
    recording: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    emulated_nodes: int | None = None,
    ranks_per_gpu: int = 1,
    mps: bool = False,
    hint: str = OTHER_STUDY,
) -> Platform:
    """Return the platform of a program that has sent `hello`, for the study at `path`.

    `recording` is what it replays. Raises StudyError for a recording that is none, and where the
    study is of another platform, with `hint`.
    """
    platform = platform_of(
        hello,
        path.resolve().name,
        environment=environment,
        today=datetime.now(UTC).date().isoformat(),
        emulated_nodes=emulated_nodes,
        ranks_per_gpu=ranks_per_gpu,
        mps=mps,
        recording=Study.open(recording).platform() if recording is not None else None,
    )
    check_same_platform(Study(path), platform, hint=hint)
    return platform


def platform_of_bench(
    path: Path, launch: Launch, hello: Hello, hint: str = OTHER_STUDY
) -> Platform:
    """Return the platform of a bench that has sent `hello`, for the study at `path`.

    Raises as `platform_of_run` does.
    """
    return platform_of_run(
        path,
        hello,
        recording=launch.replay,
        environment={**launch.variables, **os.environ},
        emulated_nodes=launch.emulate_nodes,
        ranks_per_gpu=launch.ranks_per_gpu,
        mps=launch.mps is not None,
        hint=hint,
    )


def refuse_file(path: Path) -> None:
    """Raise StudyError where `path` is a file, and so no study to measure into."""
    if path.is_file():
        raise StudyError("is a file, not a study folder", where=str(path))


@contextlib.contextmanager
def hold_study(path: Path, platform: Platform | None) -> Iterator[Study]:
    """Create the study at `path` where there is none, and lock it.

    Writes the platform of a new study. None: the study exists, and nothing is measured. Raises
    StudyError while another measurement holds it.
    """
    study = Study(path) if platform is None else Study.create(path)
    with locked(study):
        if platform is not None and not study.platform_path.exists():
            study.write_json(study.platform_path, platform)
        yield study


@contextlib.contextmanager
def saved_when_stopped(stack: contextlib.ExitStack, save: Callable[[], object]) -> Iterator[None]:
    """Close `stack` and call `save` where the block is stopped early, then raise the reason again.

    The disk may be the reason, so saving may fail too, and is not tried again.
    """
    try:
        yield
    except STOPPED_BY:
        stack.close()
        with contextlib.suppress(StudyError):
            save()
        raise
