# SPDX-License-Identifier: Apache-2.0
"""Format help texts for terminals of any width."""

import shutil
from collections.abc import Iterable

import click

_NARROWEST = 20
_NARROW = 60
_MARGIN = 2
_INDENT = 4
_LONGEST_BESIDE = 10


class HelpFormatter(click.HelpFormatter):
    """Wraps help at the width of the terminal.

    On a narrow terminal the text of an option starts on the line after its name.
    """

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
