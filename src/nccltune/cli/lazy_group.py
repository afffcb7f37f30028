# SPDX-License-Identifier: Apache-2.0
"""A group of verbs that imports a verb only when it runs."""

import importlib
import keyword
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_NARROWEST = 20
_NARROW = 60
_MARGIN = 2
_INDENT = 4
_LONGEST_BESIDE = 10


class HelpFormatter(click.HelpFormatter):
    """Wraps help at the terminal's width; on a narrow one texts start on their own line."""

    def __init__(
        self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None
    ) -> None:
        if width is None:
            columns = min(shutil.get_terminal_size().columns, max_width or 80)
            width = max(columns - _MARGIN, _NARROWEST)
        super().__init__(indent_increment, width, max_width)

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write names and their texts in two columns."""
        rows = list(rows)
        if self.width < _NARROW:
            # Short names, such as verbs, keep their text on the same line.
            longest = max((len(name) for name, _ in rows), default=0)
            col_max = longest if longest <= _LONGEST_BESIDE else _INDENT
        super().write_dl(rows, col_max, col_spacing)


class HelpContext(click.Context):
    """A context that formats help with `HelpFormatter`."""

    formatter_class = HelpFormatter


class LazyGroup(click.Group):
    """A group that lists its verbs in `sections` and imports no verb until it runs.

    `package` has a module for each, plus `_` if its name is a keyword. `moved` has former names.
    """

    context_class = HelpContext

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, str]],
        package: str = "nccltune.cli",
        moved: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections
        self._verbs = {name: words for verbs in sections.values() for name, words in verbs.items()}
        self._package = package
        self._moved = moved or {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the verbs in the order of the sections."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a verb and return its command; None for an unknown verb."""
        if cmd_name not in self._verbs:
            return None
        module = cmd_name.replace("-", "_")
        module += "_" if keyword.iskeyword(module) else ""
        command = importlib.import_module(f"{self._package}.{module}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a verb as click does. The error for an unknown verb names a similar verb."""
        if args and args[0] not in self._verbs and not args[0].startswith("-"):
            from nccltune.model.errors import InputError
            from nccltune.model.names import nearest

            word = args[0]
            group = "" if ctx.parent is None else f"{ctx.info_name} "
            now = self._moved.get(word)
            hint = f"it is now: nccltune {now}" if now else nearest(word, self._verbs)
            if ctx.parent is None and Path(word).exists():
                hint = f"what a log or output says of faults: nccltune doctor {word}"
            raise InputError(f"no such verb: {group}{word!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete verbs with their one-line help, and options, without importing any verb."""
        from click.shell_completion import CompletionItem

        verbs = [
            CompletionItem(name, help=meaning)
            for name, meaning in self._verbs.items()
            if name.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Write one line for each verb, by section."""
        widest = max(map(len, self._verbs))
        for title, verbs in self._sections.items():
            with formatter.section(title):
                rows = [(name.ljust(widest), words) for name, words in verbs.items()]
                formatter.write_dl(rows)
