# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch render`: print the command or file that starts a test."""

from typing import Any

import click

from nccltune.cli.options import JOB
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune launch render --nodes 2 --launcher slurm -- all_reduce_perf -e 8G
  nccltune launch render examples/jobs/1x8.toml --explain
"""


@verb(epilog=EPILOG)
@JOB
@click.option("--explain", is_flag=True, help="Print what each option means instead.")
def command(launcher: str | None, explain: bool, **options: Any) -> None:
    """Print the exact command or file that starts a test; start nothing.

    The launcher need not be installed here: --launcher names it, openmpi:5 with a version.
    """
    from nccltune.app.job import JobRequest
    from nccltune.app.launch import render_job
    from nccltune.cli.launch.run_screen import LaunchScreen, show_meanings, show_rendered

    ready = render_job(JobRequest(**options), launcher, LaunchScreen())
    if explain:
        show_meanings(ready)
    else:
        show_rendered(ready.rendered)
