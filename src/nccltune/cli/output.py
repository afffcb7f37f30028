# SPDX-License-Identifier: Apache-2.0
"""What commands print: the result on stdout, talk on stderr, colour only on a terminal."""

import json
import os
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console


def error_lines(message: str, hint: str | None) -> str:
    """`error: ...` and `hint:  ...`, coloured where stderr is a terminal."""
    coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    red, cyan, end = ("\x1b[1;31m", "\x1b[36m", "\x1b[0m") if coloured else ("", "", "")
    lines = [f"{red}error:{end} {message}"]
    if hint:
        lines.append(f"{cyan}hint:{end}  {hint}")
    return "\n".join(lines)


def stdout() -> "Console":
    """The console for results. Rich leaves out colour without a terminal or under NO_COLOR."""
    from rich.console import Console

    # Without a terminal there is no width to respect: tables must not be cut for a pipe.
    width = None if sys.stdout.isatty() else 120
    return Console(highlight=False, width=width, soft_wrap=not sys.stdout.isatty())


def stderr() -> "Console":
    """The console for talk: progress, notes, warnings."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


@contextmanager
def working(words: str) -> "Iterator[None]":
    """A sign of life on stderr, on a terminal, for what takes longer than a second."""
    console = stderr()
    if not console.is_terminal:
        yield
        return
    from threading import Timer

    status = console.status(words)
    timer = Timer(1.0, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def hanging(out: "Console", lead: str, indent: int, words: str, style: str = "") -> None:
    """Print `lead` (markup, `indent` wide) and plain `words`, wrapped under themselves where the
    terminal is too narrow; numbers keep their unit. Without a terminal it stays one line."""
    import textwrap

    from rich.markup import escape

    from nccltune.report.words import unbroken

    lines = [words]
    if out.is_terminal:
        lines = textwrap.wrap(unbroken(words), max(20, out.width - indent), break_on_hyphens=False)
    shown = escape(("\n" + " " * indent).join(lines).replace("\u00a0", " "))
    out.print(lead + (f"[{style}]{shown}[/{style}]" if style else shown))


def next_step(verb: str, path: Path) -> None:
    """Talk: the command that comes next, ready to copy whatever `path` is called."""
    command = f"next: {verb} {shlex.quote(str(path))}"
    stderr().print(command, style="dim", markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON document on stdout; msgspec structs are shown as objects."""
    import msgspec

    sys.stdout.write(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False) + "\n")


def json_option() -> "Callable[[Callable[..., Any]], Callable[..., Any]]":
    """The `--json` option, the same for every verb."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
