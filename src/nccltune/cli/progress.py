# SPDX-License-Identifier: Apache-2.0
"""Show the progress of a long run on stderr.

On a terminal the display is live. Elsewhere a line is printed every few seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Self

from nccltune.cli.output import message_console

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

_LINE_EVERY_S = 5.0
_SHOW_AFTER_S = 1.0
_TABLE_ROWS = 14
_NAME_WIDTH = 11


class Step(NamedTuple):
    """The progress of a run: completed `share`, and seconds left, if known.

    `note` and `table` stand below.
    """

    words: str = ""
    share: float | None = None
    left_s: float | None = None
    note: str = ""
    table: Callable[[], RenderableType] | None = None


class Progress:
    """Shows the steps of a run: live on a terminal, else a line every five seconds.

    `name` begins each line. With `-q` nothing is shown.
    """

    def __init__(self, name: str, console: Console | None = None, words: str = "") -> None:
        self._name = name
        self._console = message_console() if console is None else console
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

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if self._live is not None:
            self._live.stop()

    @property
    def is_live(self) -> bool:
        """Return whether the progress is drawn live on a terminal."""
        return self._live is not None

    def show(self, step: Step) -> None:
        """Show the progress, whose share never decreases and stays below 100 %."""
        if step.share is not None:
            self._share = max(self._share, min(step.share, 0.99))
            step = step._replace(share=self._share)
        self._step = step
        if self._live is None and time.monotonic() - self._last >= _LINE_EVERY_S:
            self._last = time.monotonic()
            self._console.print(self._line(), soft_wrap=True)

    def _line(self) -> str:
        step = self._step
        parts = [f"{self._name:<{_NAME_WIDTH - 1}}"]
        parts += [f"{step.share:4.0%} "] if step.share is not None else []
        parts += [step.words] if step.words else []
        parts += [f" {seconds_words(step.left_s)} left"] if step.left_s is not None else []
        return " ".join(parts)

    def _draw(self) -> RenderableType:
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


def seconds_words(seconds: float) -> str:
    """Return a duration such as `0:38`, `12:05` or `1:02:03`."""
    whole = round(max(0.0, seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
