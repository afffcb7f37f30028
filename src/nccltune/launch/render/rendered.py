# SPDX-License-Identifier: Apache-2.0
"""The result of a renderer, and the context that it gets with a job."""

import shlex
from collections.abc import Iterable
from typing import NamedTuple

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job
from nccltune.launch.placement import Placement
from nccltune.model.errors import InputError

RIGHT_MARGIN = 100


class RenderContext(NamedTuple):
    """Where and how a job is started.

    - `program`: the launcher's name or path; None for its usual name.
    - `as_root`: root starts the launcher.
    - `in_allocation`: Slurm has already allocated the nodes.
    - `conversation`: the program on rank 0 reads commands from standard input. Output lines get no
      rank prefix.
    """

    program: str | None = None
    as_root: bool = False
    in_allocation: bool = False
    conversation: bool = False


class CommandPart(NamedTuple):
    """Words of a command that belong together, such as an option and its value, with a meaning."""

    words: tuple[str, ...]
    meaning: str


class Rendered(NamedTuple):
    """The command `words` that starts a job, with the content of files that it reads.

    `parts` are the launcher's options with their meanings, `placement` where processes should run.
    """

    flavor: Flavor
    words: tuple[str, ...]
    files: dict[str, str]
    parts: tuple[CommandPart, ...]
    placement: Placement

    @property
    def command(self) -> str:
        """Return the command quoted for a shell. A long command has one line for each part."""
        return shell_lines(self.parts, self.words)

    @property
    def text(self) -> str:
        """Return the text to print: the files, or the command if there are none."""
        if not self.files:
            return self.command + "\n"
        return "".join(self.files.values())


def words_of(parts: Iterable[CommandPart]) -> tuple[str, ...]:
    """Return the words of all parts."""
    return tuple(word for part in parts for word in part.words)


def shell_lines(parts: Iterable[CommandPart], words: tuple[str, ...]) -> str:
    """Return `words` quoted for a shell, if they are long with a line for each part."""
    line = shlex.join(words)
    parts = tuple(parts)
    if len(line) <= RIGHT_MARGIN or words_of(parts) != words:
        return line
    return " \\\n    ".join(shlex.join(part.words) for part in parts)


def render_local(job: Job) -> Rendered:
    """Return the program as the command. Raises InputError for several processes."""
    total = job.placement.processes
    if total > 1:
        raise InputError(
            f"this job is {total} processes; without a launcher there is one",
            where="--launcher local",
            hint="on one node let a process drive all GPUs: --set processes=per-node"
            if job.nodes == 1
            else "name a launcher: openmpi, hydra, slurm or kubernetes",
        )
    parts = []
    if job.variables:
        pairs = tuple(f"{name}={value}" for name, value in job.variables.items())
        parts.append(CommandPart(("env", *pairs), "the variables of the job"))
    parts.append(CommandPart(tuple(job.words), "the program"))
    return Rendered(Flavor(Launcher.LOCAL), words_of(parts), {}, tuple(parts), job.placement)
