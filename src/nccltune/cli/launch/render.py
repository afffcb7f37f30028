# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch render`: the command or file that starts a test."""

from typing import Any

import click

from nccltune.cli.launch.job_options import LaunchScreen, job_from, job_options
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune launch render --nodes 2 --launcher slurm -- all_reduce_perf -e 8G
  nccltune launch render examples/jobs/1x8.toml --explain
"""


@verb(epilog=EPILOG)
@job_options
@click.option("--explain", is_flag=True, help="Print what each option means instead.")
def command(launcher: str | None, explain: bool, as_json: bool, **options: Any) -> int:
    """Print the exact command or file that starts a test; start nothing.

    The launcher need not be installed here: --launcher names it, openmpi:5 with a version.
    """
    from nccltune.app.launch import render_job
    from nccltune.cli.launch import run_screen

    ready = render_job(job_from(options), launcher, LaunchScreen())
    if explain:
        run_screen.show_meanings(ready, as_json=as_json)
    else:
        run_screen.show_rendered(ready.rendered, as_json=as_json)
    return 0
