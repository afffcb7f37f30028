# SPDX-License-Identifier: Apache-2.0
"""How far a long run is, on stderr: live on a terminal, a line now and then elsewhere."""

import math
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar

from nccltune.cli.output import styled, talk

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from nccltune.measure.adaptive.plan import Plan
    from nccltune.measure.engine.communicator import SweepStatus

_LINE_EVERY_S = 5.0
_SHOW_AFTER_S = 1.0
_TABLE_ROWS = 14
_NAME_WIDTH = 11


class Step(NamedTuple):
    """The progress of a run.

    `share` is the completed fraction (None if unknown), `left_s` the remaining time in seconds,
    `note` a line below, and `table` is drawn below that on a terminal.
    """

    words: str = ""
    share: float | None = None
    left_s: float | None = None
    note: str = ""
    table: "Callable[[], RenderableType] | None" = None


class Progress:
    """Shows the steps of a run for as long as its `with` statement lasts.

    On a terminal it is a live line, which appears after one second. Elsewhere it prints a line
    every five seconds. `name` begins each line. With `-q` nothing is shown.
    """

    def __init__(self, name: str, console: "Console | None" = None, words: str = "") -> None:
        self._name = name
        self._console = talk() if console is None else console
        self._step = Step(words)
        self._share = 0.0
        self._last = time.monotonic()
        self._live: Live | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.quiet:
            from rich.live import Live

            self._live = Live(
                console=self._console,
                get_renderable=self._draw,
                refresh_per_second=10,
                transient=True,
            )
            if _SHOW_AFTER_S > 0:
                self._timer = threading.Timer(_SHOW_AFTER_S, self._live.start)
                self._timer.daemon = True
                self._timer.start()
            else:
                self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if self._live is not None:
            self._live.stop()

    @property
    def is_live(self) -> bool:
        """Return whether it draws on a terminal."""
        return self._live is not None

    def show(self, step: Step) -> None:
        """Show the progress. The displayed share never falls, although estimates change."""
        if step.share is not None:
            self._share = max(self._share, min(step.share, 0.99))
            step = step._replace(share=self._share)
        self._step = step
        if self._live is None and time.monotonic() - self._last >= _LINE_EVERY_S:
            self._last = time.monotonic()
            self._console.print(self._line(), soft_wrap=True, markup=False)

    def _line(self) -> str:
        step = self._step
        parts = [f"{self._name:<{_NAME_WIDTH - 1}}"]
        parts += [f"{step.share:4.0%} "] if step.share is not None else []
        parts += [step.words] if step.words else []
        parts += [f" {seconds_words(step.left_s)} left"] if step.left_s is not None else []
        return " ".join(parts)

    def _draw(self) -> "RenderableType":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        step = self._step
        line = Table.grid(padding=(0, 2, 0, 0), expand=True)
        cells: list[RenderableType] = [Text(f"{self._name:<9}", style="bold")]
        if step.share is None:
            cells.append(Spinner("dots"))
        else:
            width = max(4, min(20, self._console.width // 4))
            cells += [ProgressBar(total=1.0, completed=step.share, width=width)]
            cells += [Text(f"{step.share:4.0%}")]
        for _ in cells:
            line.add_column(no_wrap=True)
        cells.append(Text(step.words))
        line.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        if step.left_s is not None:
            cells.append(Text(f"{seconds_words(step.left_s)} left", style="dim"))
            line.add_column(no_wrap=True)
        line.add_row(*cells)
        drawn: list[RenderableType] = [line]
        drawn += [Text(step.note, style="dim")] if step.note else []
        drawn += [step.table()] if step.table is not None else []
        return Group(*drawn)


def working(words: str) -> Progress:
    """Return a progress display for work without steps that may take longer than a second."""
    return Progress(words)


_Plan = TypeVar("_Plan")


class Watch(Generic[_Plan]):
    """Shows the status of a sweep or a verification.

    `table` draws the present results of its plan.
    """

    def __init__(
        self,
        name: str,
        replay: str | None,
        table: "Callable[[_Plan], RenderableType]",
        console: "Console | None" = None,
    ) -> None:
        self._progress = Progress(name, console)
        self._replay = replay
        self._table = table

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.__exit__(kind, error, traceback)

    def update(self, status: "SweepStatus", plan: _Plan) -> None:
        """Show a status."""
        total = status.spent_s + status.left_s
        note = f"{status.points} points"
        note += f", {status.known} more from before" if status.known else ""
        note += f" · replay of {self._replay}" if self._replay else ""
        # Draw here and not in the live screen's thread: the plan changes while it is measured.
        drawn = self._table(plan) if self._progress.is_live else None
        self._progress.show(
            Step(
                point_words(status),
                share=status.spent_s / total if total else 0.0,
                left_s=status.left_s,
                note=note,
                table=None if drawn is None else lambda: drawn,
            )
        )


def watch_sweep(replay: str | None, console: "Console | None" = None) -> "Watch[Plan]":
    """Return the progress display of a sweep."""
    return Watch("replay" if replay else "sweep", replay, best_table, console)


def seconds_words(seconds: float) -> str:
    """Return a duration such as `0:38`, `12:05` or `1:02:03`."""
    whole = round(max(0.0, seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def point_words(status: "SweepStatus") -> str:
    """Return the newest timing: `allreduce 64 KiB  tree/simple 141 us (default 211)`."""
    from nccltune.model.choice import choice_label
    from nccltune.model.sizes import format_bytes
    from nccltune.report.words import significant

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


def best_table(plan: "Plan") -> "RenderableType":
    """Return a table with the best choice so far and its gain, by size and collective."""
    from rich.table import Table

    from nccltune.model.choice import DEFAULT, choice_label
    from nccltune.model.sizes import format_bytes

    known = [item for item in plan.statuses() if item.states]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("best so far", justify="right")
    for item in known:
        table.add_column(item.collective.value)
    sizes = sorted({size for item in known for size in item.states})
    # Prefer powers of two; if they are too many, show evenly spaced ones.
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
