# SPDX-License-Identifier: Apache-2.0
"""What the screens of experiments share that start processes: progress, first and last lines."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from nccltune.cli.measure_screen import RunScreen, show_start
from nccltune.cli.output import hanging, stdout, styled
from nccltune.cli.progress import Progress, Step, seconds_words
from nccltune.measure.engine.status import ExperimentStatus, StatusCallback
from nccltune.model.platform import Platform

INDENT = 11


class ProcessVerdict(Protocol):
    """The attributes that all verdicts of experiments have."""

    @property
    def reason(self) -> str:
        """Return why it ended: `done`, `budget` or `interrupted`."""

    @property
    def processes(self) -> int:
        """Return the number of processes that ran."""

    @property
    def known(self) -> int:
        """Return the number of processes of earlier sessions."""

    @property
    def seconds(self) -> float:
        """Return how long they took, in seconds."""

    @property
    def noise(self) -> float:
        """Return the relative standard deviation of the mean of one process."""

    @property
    def replay(self) -> str | None:
        """Return the recording that was replayed; None for a measurement."""

    @property
    def failed(self) -> dict[str, str]:
        """Return the settings that did not run, with the reason."""


class ExperimentScreen(RunScreen):
    """Progress of an experiment called `name` on stderr.

    `warn` may add warnings about the platform.
    """

    def __init__(
        self, name: str, path: Path, warn: Callable[[Platform], None] = lambda _: None
    ) -> None:
        super().__init__(path)
        self._name = name
        self._warn = warn

    def started(self, platform: Platform, library: str | None) -> None:
        """Print the platform."""
        show_start(platform, library)
        self._warn(platform)
        if platform.replay:
            self._name = "replay"

    @contextmanager
    def watching(self) -> Iterator[StatusCallback]:
        """Show the status in one line."""
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


def show_head(verdict: ProcessVerdict, name: str) -> None:
    """Print the first line of a result: the number of processes, and how well one repeats."""
    before = f" and {verdict.known} from before" if verdict.known else ""
    ended = " · the budget is spent: the same command goes on" if verdict.reason == "budget" else ""
    recorded = " recorded" if verdict.replay else ""
    stdout().print(
        f"{'replay' if verdict.replay else name:<11}{verdict.processes} processes{before} in "
        f"{seconds_words(verdict.seconds)}{recorded} · one start's mean repeats within "
        f"{100 * verdict.noise:.2g} %{ended}"
    )


def show_end(
    verdict: ProcessVerdict, study: Path, carried: Mapping[str, int] | None = None
) -> None:
    """Print the last lines of a result: failures, messages by carrier, and the study."""
    out = stdout()
    for name, why in verdict.failed.items():
        out.print(styled(("failed", "yellow"), f"     {name}: {why}"))
    if carried is not None:
        ways = ", ".join(f"{way} {messages}" for way, messages in carried.items())
        hanging(out, "messages   ", INDENT, ways)
    out.print(f"study      {study}")


def show_process_plan(
    platform: Platform,
    lines: list[tuple[str, str]],
    processes: int,
    seconds: float,
    *,
    more: str = "",
) -> None:
    """Print what a run would do.

    `lines` are labels with words; `more` names what else it starts.
    """
    out = stdout()
    out.print(f"platform   {platform.title}")
    for label, words in lines:
        hanging(out, (f"{label:<{INDENT}}", "dim"), INDENT, words, "dim")
    out.print(
        f"Would start about {processes} processes{more}: some {seconds_words(seconds)}. "
        "Nothing was measured or written."
    )
