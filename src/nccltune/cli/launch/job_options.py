# SPDX-License-Identifier: Apache-2.0
"""The options that describe a job."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.options import apply, option
from nccltune.cli.platform_options import gpus_option, launcher_option, nodes_option, set_option
from nccltune.cli.verbosity import is_quiet

if TYPE_CHECKING:
    from nccltune.app.job import JobRequest


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments, launcher and keys of a job."""
    words = click.argument(
        "words", nargs=-1, type=click.UNPROCESSED, metavar="JOB.toml|-- PROGRAM ..."
    )
    return apply(
        command,
        words,
        launcher_option(
            ": local, openmpi, hydra, slurm or kubernetes; openmpi:5 for a version.  [default: "
            "what is found]"
        ),
        nodes_option("  [default: as many as hosts, or Slurm gave to this shell; else 1]"),
        gpus_option("  [default: 8]"),
        set_option(
            ": processes=per-node, hosts=a,b, interface=eth0, hcas=mlx5_0, nvls=false, "
            "partition=x, slurm.time=00:10:00, image=x, ..."
        ),
        option(
            "--env",
            "variables",
            multiple=True,
            metavar="NAME[=VALUE]",
            more="; without a value the one it has here.",
        ),
    )


def job_from(options: dict[str, Any]) -> "JobRequest":
    """Return the job from a verb's options, which are removed from `options`."""
    from nccltune.app.job import JobRequest

    names = ("words", "nodes", "gpus", "settings", "variables")
    return JobRequest(**{name: options.pop(name) for name in names})


class LaunchScreen:
    """Progress of a launch on stderr."""

    def note(self, words: str) -> None:
        """Print a line about nodes or the queue."""
        from nccltune.cli.output import note

        note(words)

    def warn(self, sentence: str) -> None:
        """Print a warning."""
        from nccltune.cli.output import stderr

        stderr().print(f"warning    {sentence}", soft_wrap=True)

    def starting(self, command: str) -> None:
        """Print the command."""
        self.note(f"start      {command}")

    def output(self, line: str) -> None:
        """Print a line of the job unchanged."""
        import sys

        if not is_quiet():
            print(line, file=sys.stderr, flush=True)
