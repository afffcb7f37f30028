# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch render`: print the command or file that starts a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nccltune.cli.options import JOB, binds
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.job import JobRequest

EPILOG = """\b
Examples:
  nccltune launch render --nodes 2 --launcher slurm -- all_reduce_perf -e 8G
  nccltune launch render examples/jobs/1x8.toml --explain
"""


@verb(epilog=EPILOG)
@JOB
@click.option("--explain", is_flag=True, help="Print what each option means instead.")
@binds(request="nccltune.app.job:JobRequest")
def command(request: JobRequest, launcher: str | None, explain: bool) -> None:
    """Print the exact command or file that starts a test; start nothing.

    The launcher need not be installed here: --launcher names it, openmpi:5 with a version.
    """
    from nccltune.app.launch import render_job
    from nccltune.cli.launch.run_screen import LaunchScreen, show_meanings, show_rendered

    ready = render_job(request, launcher, LaunchScreen())
    if explain:
        show_meanings(ready)
    else:
        show_rendered(ready.rendered)
