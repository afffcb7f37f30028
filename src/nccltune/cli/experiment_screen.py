# SPDX-License-Identifier: Apache-2.0
"""Common output of experiments that start processes: progress, first and last lines of a result."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nccltune.app.sendrecv_settings import RacePlan
from nccltune.app.sendrecv_sweep import CopiesPlan
from nccltune.cli.measure_screen import RunScreen, show_start
from nccltune.cli.output import hanging, is_json, print_json, stdout, styled
from nccltune.cli.progress import Progress, Step, seconds_words
from nccltune.measure.engine.scheduler import ExperimentStatus, StatusCallback
from nccltune.measure.experiments.copies.verdict import CopiesVerdict
from nccltune.measure.experiments.p2p.verdict import RaceVerdict
from nccltune.model.platform import Platform

INDENT = 11


ProcessPlan = RacePlan | CopiesPlan
"""The plans of experiments on send/recv."""

ProcessVerdict = RaceVerdict | CopiesVerdict
"""The verdicts of experiments on send/recv."""


class ExperimentScreen(RunScreen):
    """Prints the progress of the experiment `name` on stderr; `warn` may warn of a platform."""

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


def show_head(verdict: ProcessVerdict, name: str) -> None:
    """Print the first line of a result: the number of processes, and the noise between them."""
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


def show_settings(verdict: ProcessVerdict, lead: str = "because", note: str = "") -> None:
    """Print the settings of a verdict and the reason; only that without a `lead`."""
    out = stdout()
    for name, value in verdict.settings.items():
        out.print(styled("set        ", (f"{name}={value}", "bold green"), note))
    if lead:
        hanging(out, f"{lead:<{INDENT}}", INDENT, verdict.why)
    else:
        hanging(out, ("set nothing  ", "bold"), 13, verdict.why)


def show_process_plan(
    plan: ProcessPlan,
    details: Mapping[str, object],
    lines: list[tuple[str, str]],
    more: str = "",
) -> None:
    """Print the plan of a run; `details` are for `--json`, `lines` for a terminal."""
    if is_json():
        cost = {"processes": plan.processes, "total_seconds": plan.seconds}
        print_json({"platform": plan.platform, **details, **cost})
        return
    out = stdout()
    out.print(f"platform   {plan.platform.title}")
    for label, words in lines:
        hanging(out, (f"{label:<{INDENT}}", "dim"), INDENT, words, "dim")
    out.print(
        f"Would start about {plan.processes} processes{more}: some "
        f"{seconds_words(plan.seconds)}. Nothing was measured or written."
    )
