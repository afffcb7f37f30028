# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch run`: start a test with a launcher of the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import JOB, binds, options, output_option
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.job import JobRequest

EPILOG = """\b
Examples:
  nccltune launch run job.toml --set hosts=node1,node2 -o studies/a
  nccltune launch run --nodes 2 --launcher slurm -- all_reduce_perf -e 8G
"""


@verb(epilog=EPILOG, dry_run=True)
@JOB
@output_option("study", "the study that keeps output, job and samples; made if it is not there.")
@options("--choice")
@click.option(
    "--start-within",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Cancel a job that a queue has not started by then.  [default: wait]",
)
@binds(request="nccltune.app.job:JobRequest")
def command(
    request: JobRequest,
    launcher: str | None,
    study: Path | None,
    choice: str | None,
    start_within: float | None,
    dry_run: bool,
) -> int:
    """Start a test on one node or many: render the right command, run it, follow it, keep its
    table in a study, and end it cleanly on Ctrl-C.

    A job is a TOML file, flags, or flags over a file. Exit code 1 if something else ran than was
    asked for or the numbers are in doubt, 4 if the job failed.
    """
    from nccltune.app.launch import render_job, run_job
    from nccltune.cli.launch.run_screen import LaunchScreen, show_rendered, show_result
    from nccltune.cli.measure_screen import terminated_like_interrupted

    screen = LaunchScreen()
    ready = render_job(request, launcher, screen, to_run=not dry_run)
    if dry_run:
        show_rendered(ready.rendered)
        return 0
    with terminated_like_interrupted():
        result = run_job(ready, screen, study=study, choice=choice, start_within=start_within)
    return show_result(result, study)
