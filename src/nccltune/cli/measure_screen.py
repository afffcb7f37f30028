# SPDX-License-Identifier: Apache-2.0
"""Run a measurement into a study, and show its progress on the terminal."""

import contextlib
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import click
from rich.console import Console, RenderableType

from nccltune.cli.output import hanging, message_console, note, plain_table, stderr, styled, warn
from nccltune.cli.progress import Progress, Step
from nccltune.cli.verb import command_line
from nccltune.measure.adaptive.plan import Plan
from nccltune.measure.bench.conversation import Hello
from nccltune.measure.engine.communicator import SweepStatus, Watcher
from nccltune.measure.engine.scheduler import ExperimentStatus, StatusCallback
from nccltune.model.choice import DEFAULT, choice_label
from nccltune.model.numbers import significant
from nccltune.model.platform import Platform
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes
from nccltune.native.child import signal_of
from nccltune.prove.plan import ProofPlan
from nccltune.prove.result import RemovedRule
from nccltune.report.words import range_text

_TABLE_ROWS = 14
_Result = TypeVar("_Result")


class RunScreen:
    """Handles an early end of a run into the study at `path`; `command` resumes it."""

    def __init__(self, path: Path, command: str | None = None) -> None:
        self.command = command or command_line()
        self._path = path
        self._is_stopped = False

    @property
    def is_stopped(self) -> bool:
        """Return whether the run ended early and `stopped` printed a message about it."""
        return self._is_stopped

    def stopped(self, kept: str) -> None:
        """Print which results are kept, and the command that resumes the run."""
        self._is_stopped = True
        note(f"stopped; {kept} are kept in {self._path}")
        note(f"resume:  {self.command}")

    def run(self, run: Callable[[], _Result]) -> _Result:
        """Return the result of `run`, or exit with 128 + n if signal n stopped it."""
        try:
            with terminated_like_interrupted():
                return run()
        except KeyboardInterrupt as stop:
            if not self.is_stopped:
                raise
            raise click.exceptions.Exit(128 + signal_of(stop)) from stop


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C while a measurement runs."""

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class SweepScreen(RunScreen):
    """Prints the progress of a sweep on stderr."""

    def started(self, platform: Platform, hello: Hello) -> None:
        """Print the platform."""
        show_start(platform, hello.nccl.came_from)

    def watching(self, hello: Hello) -> contextlib.AbstractContextManager[Watcher[Plan]]:
        """Return the live screen, or plain lines if stderr is no terminal."""
        return watch_sweep(hello.replay)


class VerifyScreen(RunScreen):
    """Prints the progress of a verification on stderr; with `quiet` without the platform."""

    watched = "verify"
    """The name of what is running, in front of its progress."""

    def __init__(self, path: Path, command: str | None = None, *, quiet: bool = False) -> None:
        super().__init__(path, command)
        self._quiet = quiet

    def warn(self, sentence: str) -> None:
        """Print a warning."""
        warn([sentence])

    def started(self, platform: Platform, hello: Hello) -> None:
        """Print the platform."""
        if not self._quiet:
            show_start(platform, hello.nccl.came_from)

    def watching(self, hello: Hello) -> contextlib.AbstractContextManager[Watcher[ProofPlan]]:
        """Return a display of every rule with its present estimate of the gain."""
        return Watch(self.watched, hello.replay, rules_so_far)

    def dropped(self, rules: list[RemovedRule]) -> None:
        """Print how many rules the verification did not confirm."""
        message_console().print(
            f"again      {count(len(rules), 'rule')} did not hold as measured; measuring what "
            "changes",
            soft_wrap=True,
        )


class DemoScreen(VerifyScreen):
    """Progress of a demo on stderr."""

    def doing(self, words: str) -> None:
        """Print the current step, so that the user always sees progress."""
        message_console().print(f"{words} ...", style="dim")


def show_start(platform: Platform, came_from: str | None) -> None:
    """Print the platform, and a warning if NCCL_ALGO or NCCL_PROTO limits what is measured."""
    show_platform(platform, message_console(), came_from)
    for name in ("NCCL_ALGO", "NCCL_PROTO"):
        if name in platform.settings and not platform.replay:
            words = (
                f"{name}={platform.settings[name]} is set: NCCL offers nothing else, so nothing "
                "else is measured"
            )
            hanging(stderr(), ("warning    ", "yellow"), 11, words)


def show_platform(platform: Platform, out: Console, came_from: str | None = None) -> None:
    """Print the platform. For a replay, also print that nothing is measured."""
    where = f" ({came_from})" if came_from and not platform.replay else ""
    hanging(out, "platform   ", 11, f"{platform.title}{where}")
    if platform.replay:
        words = (
            f"of {platform.replay}: timings are drawn from a recording, nothing is measured here"
        )
        hanging(out, "replay     ", 11, words)


_Plan = TypeVar("_Plan")


class Watch(Progress, Generic[_Plan]):
    """Shows the status of a sweep or a verification, with a `table` of its results so far."""

    def __init__(
        self,
        name: str,
        replay: str | None,
        table: Callable[[_Plan], RenderableType],
        console: Console | None = None,
    ) -> None:
        super().__init__(name, console)
        self._replay = replay
        self._table = table

    def update(self, status: SweepStatus, plan: _Plan) -> None:
        """Show a status."""
        total = status.spent_s + status.left_s
        note = f"{status.points} points"
        note += f", {status.known} more from before" if status.known else ""
        note += f" · replay of {self._replay}" if self._replay else ""
        # Draw in this thread, which also changes the plan. The thread of the live screen would draw
        # the plan while it changes.
        drawn = self._table(plan) if self.is_live else None
        self.show(
            Step(
                point_words(status),
                share=status.spent_s / total if total else 0.0,
                left_s=status.left_s,
                note=note,
                table=None if drawn is None else lambda: drawn,
            )
        )


def watch_sweep(replay: str | None, console: Console | None = None) -> Watch[Plan]:
    """Return the progress display of a sweep."""
    return Watch("replay" if replay else "sweep", replay, best_table, console)


def rules_so_far(plan: ProofPlan) -> RenderableType:
    """Return a table of the rules of a verification and their gains so far."""
    table = plain_table("rule", "", "", ">sizes", ">rounds", "gain so far (95 % CI)")
    for item in plan.verdicts({}):
        gain = ""
        if item.gain is not None:
            gain = f"{item.gain:.2f}x ({item.gain_low:.2f}-{item.gain_high:.2f})"
        rule = item.rule
        table.add_row(
            rule.collective.value,
            range_text(rule.min_bytes, rule.max_bytes, "-"),
            rule.choice.label,
            str(item.sizes),
            str(item.rounds),
            styled(f"{gain} ", ("holds" if item.verdict == "holds" else "", "green")),
        )
    return table


def point_words(status: SweepStatus) -> str:
    """Return the last point, such as `allreduce 64 KiB tree/simple 141 us (default 211)`."""
    point = status.point
    if point is None or status.collective is None:
        return ""
    what = f"{status.collective.value} {format_bytes(point.bytes)}  {choice_label(point.choice)}"
    if point.time_us is None:
        return f"{what} {point.error.kind if point.error else 'not run'}"
    beside = ""
    if point.choice != "default" and status.default_us is not None:
        beside = f" (default {significant(status.default_us)})"
    return f"{what} {significant(point.time_us)} us{beside}"


def best_table(plan: Plan) -> RenderableType:
    """Return a table of the fastest choice so far by collective, at some of the sizes."""
    known = [item for item in plan.statuses() if item.states]
    names = ["\n".join(filter(None, (item.collective.value, item.calls.title))) for item in known]
    table = plain_table(">best so far", *names)
    sizes = sorted({size for item in known for size in item.states})
    # Show only powers of two, if there are any. If the sizes are too many, show every n-th size.
    sizes = [size for size in sizes if size & (size - 1) == 0] or sizes
    step = math.ceil(len(sizes) / _TABLE_ROWS) or 1
    for size in sizes[::step]:
        cells: list[RenderableType] = []
        for item in known:
            view = item.states.get(size)
            if view is None:
                cells.append("")
            elif view.best == DEFAULT:
                cells.append(styled(("default", "dim")))
            else:
                style = "green" if view.beats_default else "dim"
                gain = f"{math.exp(view.gain):.2f}x"
                cells.append(styled(f"{choice_label(view.best)} ", (f"{gain}", style)))
        table.add_row(format_bytes(size), *cells)
    return table


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
