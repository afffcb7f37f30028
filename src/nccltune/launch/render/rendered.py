# SPDX-License-Identifier: Apache-2.0
"""The result of a renderer, and its inputs besides the job."""

import shlex
from collections.abc import Iterable
from typing import NamedTuple

from nccltune.launch.flavor import Flavor
from nccltune.launch.placement import Placement

RIGHT_MARGIN = 100


class Around(NamedTuple):
    """Where and how a job is started.

    `program` is the launcher's name or path where it is not its usual one, `as_root` is whether
    root starts it, `in_allocation` that Slurm has given the nodes already. `conversation` is for a
    program that rank 0 of talks with: its standard input goes to rank 0, and no line is tagged.
    """

    program: str | None = None
    as_root: bool = False
    in_allocation: bool = False
    conversation: bool = False


class CommandPart(NamedTuple):
    """Words of a command that belong together, and what they mean."""

    words: tuple[str, ...]
    meaning: str


class Rendered(NamedTuple):
    """What starts a job.

    `words` is the command, `files` what it reads, by name, beside it; `parts` are the options of
    the launcher with their meanings, wherever they stand; `placement` is what it promises.
    """

    flavor: Flavor
    words: tuple[str, ...]
    files: dict[str, str]
    parts: tuple[CommandPart, ...]
    placement: Placement

    @property
    def command(self) -> str:
        """The command, quoted for a shell, an option a line where it is long."""
        return shell_lines(self.parts, self.words)

    @property
    def text(self) -> str:
        """Everything as it is printed: the files, or the command where there are none."""
        if not self.files:
            return self.command + "\n"
        return "".join(self.files.values())


def words_of(parts: Iterable[CommandPart]) -> tuple[str, ...]:
    """Return the command that the parts make."""
    return tuple(word for part in parts for word in part.words)


def shell_lines(parts: Iterable[CommandPart], words: tuple[str, ...]) -> str:
    """`words` quoted for a shell. Where they do not fit a line and are the words of `parts`, each
    part has a line of its own."""
    line = shlex.join(words)
    parts = tuple(parts)
    if len(line) <= RIGHT_MARGIN or words_of(parts) != words:
        return line
    return " \\\n    ".join(shlex.join(part.words) for part in parts)
