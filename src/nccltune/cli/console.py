# SPDX-License-Identifier: Apache-2.0
"""A Rich console for text of other programs."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from nccltune.cli.output import harmless


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
