# SPDX-License-Identifier: Apache-2.0
"""One line that says where a long run stands: live on a terminal, else a line now and then."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from nccltune.cli.output import styled

if TYPE_CHECKING:
    from rich.console import Console

_Status = TypeVar("_Status")
_LINE_EVERY_S = 5.0


@contextlib.contextmanager
def ticking(
    console: "Console", name: str, words: Callable[[_Status], str]
) -> Iterator[Callable[[_Status], None]]:
    """Something to be told statuses, which shows `words` of them behind `name`."""
    lead = f"{name:<11}"
    if console.is_terminal:
        with console.status(styled(f"{lead}NCCL starts")) as live:
            yield lambda status: live.update(styled(lead + words(status)))
        return
    last = time.monotonic()

    def line(status: _Status) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_EVERY_S:
            last = time.monotonic()
            console.print(lead + words(status), markup=False, soft_wrap=True)

    yield line
