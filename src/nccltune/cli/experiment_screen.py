# SPDX-License-Identifier: Apache-2.0
"""Common output of experiments that start processes: their progress."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nccltune.cli.measure_screen import RunScreen, show_start
from nccltune.cli.progress import Progress, Step
from nccltune.measure.engine.scheduler import ExperimentStatus, StatusCallback
from nccltune.model.platform import Platform


class ExperimentScreen(RunScreen):
    """Prints the progress of the experiment `name` on stderr."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(path)
        self._name = name

    def started(self, platform: Platform, library: str | None) -> None:
        """Print the platform."""
        show_start(platform, library)
        if platform.replay:
            self._name = "replay"

    @contextmanager
    def watching(self) -> Iterator[StatusCallback]:
        """Yield a callback that shows the status in one line."""
        with Progress(self._name, words="NCCL starts") as progress:
            yield lambda status: progress.show(status_step(status))


def status_step(status: ExperimentStatus) -> Step:
    """Return a status such as `alone    process 7 of 12  NCCL_BUFFSIZE=8388608 1.034x`."""
    stage = f"{status.stage:<9}" if status.stage else ""
    of = f" of {status.processes}" if status.processes is not None else ""
    gain = f" {status.gain:.3f}x" if status.gain is not None else ""
    words = f"{stage}process {status.process}{of}  {status.what}{gain}"
    total = status.spent_s + status.left_s
    share = status.spent_s / total if total else None
    return Step(words, share=share, left_s=status.left_s)
