# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch sweep`: measure NCCL's choices with a site's own nccl-tests binaries."""

from pathlib import Path
from typing import Any

import click

from nccltune.cli.options import option, options, output_option
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune launch sweep nccl-tests/build -o studies/a
  nccltune launch sweep nccl-tests/build -o a --launch-prefix 'mpirun -np 8'
  nccltune launch sweep nccl-tests/build -o two --launcher slurm --nodes 2
"""
_ROUNDS = 4
"""Noise can be measured from four timings of a point or more."""


@verb(epilog=EPILOG, dry_run=True)
@click.argument(
    "folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@output_option("path", "the study; an interrupted sweep of it goes on.", required=True)
@options("--collectives", option("--sizes", default="1K-64M"))
@option("--rounds", more=", each with every choice.", default=_ROUNDS, show_default=True)
@options(option("--gpus", more="  [default: all]"), "--nodes", "--launcher")
@option("--set", more=": hosts=a,b, processes=per-node.")
@options("--budget")
@click.option(
    "--launch-prefix",
    metavar="COMMAND",
    help="Words that start a process for each GPU instead of a launcher: 'mpirun -np 8'.",
)
@options("--seed")
def command(
    folder: Path, path: Path, launch_prefix: str | None, dry_run: bool, **options: Any
) -> None:
    """Measure NCCL's choices with the nccl-tests binaries in DIR, one process for each choice.

    For sites where our bench cannot run: slower, and into a study as `nccltune sweep` makes it.
    Ctrl-C loses nothing: the same command goes on where it stopped.
    """
    from nccltune.app.bench_launch import LaunchRequest, nccl_tests_of
    from nccltune.app.nccl_tests_sweep import plan_nccl_tests, sweep_nccl_tests
    from nccltune.cli.experiment_screen import ExperimentScreen
    from nccltune.cli.launch.sweep_screen import show_plan, show_swept
    from nccltune.cli.requests import scope_from, site, struct_from
    from nccltune.measure.experiments.nccl_tests.experiment import NcclTestsScope

    scope = scope_from(NcclTestsScope, options)
    binaries = nccl_tests_of(folder, struct_from(LaunchRequest, options), launch_prefix, site())
    if dry_run:
        show_plan(plan_nccl_tests(path, binaries, scope))
        return
    screen = ExperimentScreen("nccl-tests", path)
    swept = screen.run(
        lambda: sweep_nccl_tests(path, binaries, scope, screen, command=screen.command)
    )
    show_swept(swept, path)
