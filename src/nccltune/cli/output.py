# SPDX-License-Identifier: Apache-2.0
"""What commands print: the result on stdout, talk on stderr, colour only on a terminal."""

import json
import os
import re
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console
    from rich.text import Text


# Control characters, and those that reorder a line: in foreign text they steer the terminal.
_STEERING = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def harmless(text: str) -> str:
    """`text` with control characters made visible (`\\x1b`); tabs and line ends stay."""
    if text.isprintable():
        return text
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def error_lines(message: str, hint: str | None) -> str:
    """`error: ...` and `hint:  ...`, coloured where stderr is a terminal."""
    coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    red, cyan, end = ("\x1b[1;31m", "\x1b[36m", "\x1b[0m") if coloured else ("", "", "")
    lines = [f"{red}error:{end} {harmless(message)}"]
    if hint:
        lines.append(f"{cyan}hint:{end}  {harmless(hint)}")
    return "\n".join(lines)


def write_exact(text: str) -> None:
    """Write what a shell or another program reads to stdout: byte for byte into a file or pipe, and
    harmless on a terminal."""
    sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)


def stdout() -> "Console":
    """The console for results. Rich leaves out colour without a terminal or under NO_COLOR."""
    # Without a terminal there is no width to respect: tables must not be cut for a pipe.
    width = None if sys.stdout.isatty() else 120
    return _console(width=width, soft_wrap=not sys.stdout.isatty())


def stderr() -> "Console":
    """The console for talk: progress, notes, warnings."""
    return _console(stderr=True, soft_wrap=not sys.stderr.isatty())


def report_console() -> "Console":
    """The console for the report, which wraps its lines itself."""
    return _console()


def _console(**options: Any) -> "Console":
    """A console on which text is only text: no markup, no emoji names, no control characters.

    Our own styles are given beside the words: `styled(("verdict", "bold"), "  ", words)`.
    """
    from rich.console import Console
    from rich.segment import Segment

    class PlainConsole(Console):
        def render(self, renderable: Any, options: Any = None) -> "Iterator[Segment]":
            for segment in super().render(renderable, options):
                text, style, control = segment
                if control is None and not text.isprintable():
                    yield Segment(harmless(text), style)
                else:
                    yield segment

    return PlainConsole(highlight=False, markup=False, emoji=False, **options)


def styled(*parts: "str | tuple[str, str] | Text", style: str = "") -> "Text":
    """Text of parts, each plain or a pair of its words and their style; nothing in them is
    markup."""
    from rich.text import Text

    return Text.assemble(*parts, style=style)


class Saving:
    """Whether a result was saved."""

    done = True


@contextmanager
def saving(asked: Path | None = None) -> "Iterator[Saving]":
    """Warn on stderr where a result cannot be saved in its study, for example a read-only one: it
    is printed all the same. A failure to write `asked`, a file that the user named, is an error."""
    from nccltune.model.errors import UnwritableError

    state = Saving()
    try:
        yield state
    except UnwritableError as error:
        if asked is not None and error.where == str(asked):
            raise
        state.done = False
        warning = ("warning:", "yellow"), f" {error}; the result is printed and not saved"
        stderr().print(styled(*warning), soft_wrap=True)


@contextmanager
def working(words: str) -> "Iterator[None]":
    """A sign of life on stderr, on a terminal, for what takes longer than a second."""
    console = stderr()
    if not console.is_terminal:
        yield
        return
    from threading import Timer

    status = console.status(styled(words))
    timer = Timer(1.0, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def hanging(
    out: "Console", lead: "str | tuple[str, str]", indent: int, words: str, style: str = ""
) -> None:
    """Print `lead` (`indent` wide; with a style as a pair) and `words`, wrapped under themselves
    where the terminal is too narrow; numbers keep their unit. Without a terminal it stays one
    line."""
    import textwrap

    from nccltune.report.words import unbroken

    words = harmless(words)
    lines = [words]
    if out.is_terminal:
        lines = textwrap.wrap(unbroken(words), max(20, out.width - indent), break_on_hyphens=False)
    shown = ("\n" + " " * indent).join(lines).replace("\u00a0", " ")
    out.print(styled(lead, (shown, style)))


def next_step(verb: str, path: Path) -> None:
    """Talk: the command that comes next, ready to copy whatever `path` is called."""
    command = f"next: {verb} {shlex.quote(str(path))}"
    stderr().print(command, style="dim", soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON document on stdout; msgspec structs are shown as objects."""
    import msgspec

    sys.stdout.write(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False) + "\n")


def json_option() -> "Callable[[Callable[..., Any]], Callable[..., Any]]":
    """The `--json` option, the same for every verb."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
