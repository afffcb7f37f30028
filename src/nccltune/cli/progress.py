# SPDX-License-Identifier: Apache-2.0
"""How a measurement is watched: a live line and a table on a terminal, plain lines elsewhere."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from nccltune.cli.output import styled

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from nccltune.measure.plan import Plan
    from nccltune.measure.sweep import Status, Watcher

_Plan = TypeVar("_Plan")
_LINE_EVERY_S = 5.0
_TABLE_ROWS = 14


def seconds_words(seconds: float) -> str:
    """`0:38`, `12:05`, `1:02:03`."""
    whole = round(max(0.0, seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextlib.contextmanager
def watching(console: "Console", replay: str | None) -> "Iterator[Watcher[Plan]]":
    """A watcher of a sweep that writes to `console` for as long as the context lasts."""
    with watching_any(console, "replay" if replay else "sweep", replay, best_table) as watcher:
        yield watcher


@contextlib.contextmanager
def watching_any(
    console: "Console",
    name: str,
    replay: str | None,
    below: "Callable[[_Plan], RenderableType]",
) -> "Iterator[PlainLines | LiveScreen[_Plan]]":
    """A watcher whose lines begin with `name`; `below` draws what stands beneath the live one."""
    if not console.is_terminal:
        yield PlainLines(console, name)
        return
    from rich.live import Live

    with Live(console=console, refresh_per_second=10, transient=True) as live:
        yield LiveScreen(live, name, replay, below)


class _Progress:
    """The share that is done. Guesses of what is left change; what is shown only grows."""

    def __init__(self) -> None:
        self._shown = 0.0

    def share(self, status: "Status") -> float:
        total = status.spent_s + status.left_s
        self._shown = max(self._shown, min(status.spent_s / total, 0.99) if total else 0.0)
        return self._shown


class PlainLines:
    """A line every few seconds."""

    def __init__(self, console: "Console", name: str) -> None:
        self._console = console
        self._name = name
        self._progress = _Progress()
        self._last = time.monotonic()

    def update(self, status: "Status", plan: object) -> None:  # noqa: ARG002
        """Write a line if the last one is old enough."""
        share = self._progress.share(status)
        if time.monotonic() - self._last < _LINE_EVERY_S:
            return
        self._last = time.monotonic()
        self._console.print(
            f"{self._name:<11}{share:4.0%}  {point_words(status)}  "
            f"{seconds_words(status.left_s)} left",
            soft_wrap=True,
            markup=False,
        )


class LiveScreen(Generic[_Plan]):
    """A line with a bar, and what is known so far beneath it."""

    def __init__(
        self,
        live: "Live",
        name: str,
        replay: str | None,
        below: "Callable[[_Plan], RenderableType]",
    ) -> None:
        self._live = live
        self._name = name
        self._replay = replay
        self._below = below
        self._progress = _Progress()

    def update(self, status: "Status", plan: _Plan) -> None:
        """Draw what is known."""
        from rich.console import Group

        share = self._progress.share(status)
        self._live.update(Group(screen(status, share, self._name, self._replay), self._below(plan)))


def point_words(status: "Status") -> str:
    """The newest timing: `allreduce 64 KiB  tree/simple 141 us (default 211)`."""
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


def screen(status: "Status", share: float, name: str, replay: str | None) -> "RenderableType":
    """The live lines: how far it is, and how many points there are."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for ratio in (None, None, None, 1, None):
        line.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
    line.add_row(
        Text(f"{name:<9}", style="bold"),
        ProgressBar(total=1.0, completed=share, width=20),
        f"{share:4.0%}",
        Text(point_words(status)),
        Text(f"{seconds_words(status.left_s)} left", style="dim"),
    )
    words = f"{status.points} points"
    if status.known:
        words += f", {status.known} more from before"
    if replay:
        words += f" · replay of {replay}"
    return Group(line, Text(words, style="dim"))


def best_table(plan: "Plan") -> "RenderableType":
    """By size and collective: the choice that leads and its gain over the default."""
    from rich.table import Table

    from nccltune.model.choice import DEFAULT, choice_label
    from nccltune.model.sizes import format_bytes

    known = [item for item in plan.known() if item.views]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("best so far", justify="right")
    for item in known:
        table.add_column(item.collective.value)
    sizes = sorted({size for item in known for size in item.views})
    # The powers of two first; where even these are too many, evenly spread ones of them.
    sizes = [size for size in sizes if size & (size - 1) == 0] or sizes
    step = math.ceil(len(sizes) / _TABLE_ROWS) or 1
    for size in sizes[::step]:
        cells: list[RenderableType] = []
        for item in known:
            view = item.views.get(size)
            if view is None:
                cells.append("")
            elif view.best == DEFAULT:
                cells.append(styled(("default", "dim")))
            else:
                style = "green" if view.better else "dim"
                gain = f"{math.exp(view.gain):.2f}x"
                cells.append(styled(f"{choice_label(view.best)} ", (f"{gain}", style)))
        table.add_row(format_bytes(size), *cells)
    return table
