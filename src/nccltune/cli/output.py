# SPDX-License-Identifier: Apache-2.0
"""Print results on stdout and messages on stderr, with colour only on a terminal.

Rich is imported when something is printed, so that help is fast.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click
import msgspec
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

from nccltune.cli.verbosity import is_quiet
from nccltune.model.errors import UnwritableError
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.report.words import unbroken

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from nccltune.report.worth import WorthLine

_WORTH_STYLES = {"unused": "dim", "verdict": "bold"}


class PlainConsole(Console):
    """A console that prints markup and emoji names literally, and makes control characters visible.

    Pass styles separately from the text: `styled(("verdict", "bold"), "  ", words)`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(  # noqa: D102
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            if control is None and not text.isprintable():
                yield Segment(harmless(text), style)
            else:
                yield segment


_P = ParamSpec("_P")
# Matches control characters and characters that reorder a line. Text of other programs must not
# control the terminal.
_STEERING = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)

_PIPED = re.compile(r"(nccltune [\w -]*? ?)(?<= )-(?=[ ,;]|$)")


def harmless(text: str) -> str:
    """Return `text` with control characters made visible (`\\x1b`). Tabs and line ends are kept."""
    if text.isprintable():
        return text
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def print_error(message: str, hint: str | None) -> None:
    """Print `error: MESSAGE` and `hint: HINT` on stderr, coloured and wrapped on a terminal."""
    hanging(stderr(), ("error: ", "bold red"), 7, message)
    if hint:
        hanging(stderr(), ("hint:  ", "cyan"), 7, after_pipe(hint))


def write_exact(text: str) -> None:
    """Write text for a program; on a terminal control characters are made visible."""
    sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)


def stdout() -> Console:
    """Return the console for results. Colour is off without a terminal or with NO_COLOR."""
    # A pipe has no width, and Rich would cut tables to 80 columns. So use a larger fixed width.
    width = None if sys.stdout.isatty() else 120
    return _console(width=width, soft_wrap=not sys.stdout.isatty())


def stderr() -> Console:
    """Return the console for warnings and errors."""
    return _console(stderr=True, soft_wrap=not sys.stderr.isatty())


def message_console() -> Console:
    """Return the console for progress, notes and hints. With `-q` it prints nothing."""
    return _console(stderr=True, soft_wrap=not sys.stderr.isatty(), quiet=is_quiet())


def note(words: str) -> None:
    """Print a note or a line of progress on stderr, unless `-q` is set."""
    message_console().print(words, soft_wrap=True)


def warn(sentences: Iterable[str]) -> None:
    """Print each sentence as a warning on stderr."""
    for sentence in sentences:
        hanging(stderr(), ("warning    ", "yellow"), 11, sentence)


def _console(**options: Any) -> Console:
    from nccltune.cli.output import PlainConsole

    return PlainConsole(**options)


def plain_table(*names: str, padding: tuple[int, int, int, int] = (0, 1, 0, 1)) -> Table:
    """Return a table without lines; columns `>name` (right) and `<name` never wrap.

    Where it is too narrow for those, each row takes lines of its own: no figure is cut.
    """
    from rich.measure import Measurement
    from rich.table import Table

    class PlainTable(Table):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            wide = options.update(max_width=10_000)
            between = padding[1] + padding[3]
            width = -between
            for column in self.columns:
                cells = [Measurement.get(console, wide, cell) for cell in column._cells]
                cells.append(Measurement.get(console, wide, column.header))
                width += max(cell[column.no_wrap] for cell in cells) + between
            if width <= options.max_width or not self.rows:
                yield from super().__rich_console__(console, options)
                return
            heads = [str(column.header).strip() for column in self.columns]
            for row in zip(*(map(str, column._cells) for column in self.columns), strict=True):
                first, *rest = [
                    f"{head} {cell.strip()}".strip() if at else cell.strip()
                    for at, (head, cell) in enumerate(zip(heads, row, strict=True))
                    if cell.strip()
                ] or [""]
                words = f"{first}: {', '.join(rest)}" if rest else first
                room = max(20, options.max_width)
                lines = textwrap.wrap(
                    unbroken(words), room, subsequent_indent="  ", break_on_hyphens=False
                )
                yield styled("\n".join(lines).replace("\u00a0", " "))

    table = PlainTable(box=None, pad_edge=False, header_style="dim", padding=padding)
    for name in names:
        sign = name[:1] if name[:1] in "<>" else ""
        table.add_column(
            name.removeprefix(sign), justify="right" if sign == ">" else "left", no_wrap=bool(sign)
        )
    return table


def styled(*parts: str | tuple[str, str] | Text, style: str = "") -> Text:
    """Return a text of strings, or pairs of string and style, without markup."""
    from rich.text import Text

    return Text.assemble(*parts, style=style)


def warn_unsaved(errors: Iterable[UnwritableError]) -> None:
    """Print a warning for each result that could not be saved, for example in a read-only study."""
    for error in errors:
        words = f" {error}; the result is printed and not saved"
        stderr().print(styled(("warning:", "yellow"), words), soft_wrap=True)


def hanging(
    out: Console, lead: str | tuple[str, str] | Text, indent: int, words: str, style: str = ""
) -> None:
    """Print `lead` and `words`, with wrapped lines indented by `indent`, the width of `lead`.

    A number and its unit stay together, and a link or path is whole, to be copied. Without a
    terminal nothing is wrapped.
    """
    words = harmless(words)
    lines, is_whole = [words], False
    if out.is_terminal:
        room = max(20, out.width - indent)
        is_whole = any(len(word) > room and "/" in word[:8] for word in words.split())
        wrap = textwrap.TextWrapper(room, break_on_hyphens=False, break_long_words=not is_whole)
        lines = [part for line in words.split("\n") for part in wrap.wrap(unbroken(line))]
    shown = ("\n" + " " * indent).join(lines).replace("\u00a0", " ")
    out.print(styled(lead, (shown, style)), soft_wrap=is_whole or None)


def next_step(verb: str, path: Path) -> None:
    """Print `verb` with `path`, quoted for the shell, as a hint on the next command."""
    hint(f"next: {verb} {shlex.quote(str(path))}")


def hint(words: str) -> None:
    """Print a hint on what to do next, on stderr, unless `-q` is set."""
    message_console().print(after_pipe(words), style="dim", soft_wrap=True)


def after_pipe(words: str) -> str:
    """Return a hint whose command names a file in place of `-`, as the pipe has ended."""
    named = _PIPED.sub(r"\1FILE", words)
    return words if named == words else f"{named}  # FILE: what was piped, saved"


def is_json() -> bool:
    """Return whether the current verb runs with `--json`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.params.get("as_json"))


def print_result(
    document: object, show: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs
) -> None:
    """Print `document` as JSON if the verb runs with `--json`; else call `show`."""
    if is_json():
        print_json(document)
    else:
        show(*args, **kwargs)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a value, maybe of structs, as one JSON object that begins with `schema_version`."""
    document = msgspec.to_builtins(value)
    document = {"schema_version": SCHEMA_VERSION, **document}
    sys.stdout.write(json.dumps(document, indent=indent, ensure_ascii=False) + "\n")


def show_worth(lines: Iterable[WorthLine], out: Console) -> None:
    """Print what rules are worth to a job, and the command of statements that have one."""
    for line in lines:
        style = "yellow" if line.is_warning else _WORTH_STYLES.get(line.lead, "")
        hanging(out, (f"{line.lead:<11}", style), 11, line.words)
        if line.command is not None:
            hanging(out, " " * 11, 11, f"measure it: {line.command}")
