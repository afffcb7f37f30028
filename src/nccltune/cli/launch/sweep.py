# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch sweep`: NCCL's choices, measured with a site's own nccl-tests binaries."""

from pathlib import Path
from typing import Any

import click

from nccltune.cli.options import budget_option, rounds_option, seed_option, study_option
from nccltune.cli.platform_options import (
    gpus_option,
    launcher_option,
    nodes_option,
    request_from,
    set_option,
    site,
)
from nccltune.cli.run_options import command_line
from nccltune.cli.size_options import (
    collectives_from,
    collectives_option,
    sizes_from,
    sizes_option,
)
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune launch sweep nccl-tests/build -o studies/a
  nccltune launch sweep nccl-tests/build -o a --launch-prefix 'mpirun -np 8'
  nccltune launch sweep nccl-tests/build -o two --launcher slurm --nodes 2
"""
_ROUNDS = 4
"""The number of timings of a point that show their own noise."""


@verb(epilog=EPILOG, dry_run=True)
@click.argument(
    "folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@study_option("the study; an interrupted sweep of it goes on.", required=True)
@collectives_option()
@sizes_option("1K-64M")
@rounds_option(", each with every choice.", default=_ROUNDS, show_default=True)
@gpus_option("  [default: all]")
@nodes_option()
@launcher_option()
@set_option(": hosts=a,b, processes=per-node.")
@budget_option()
@click.option(
    "--launch-prefix",
    metavar="COMMAND",
    help="Words that start a process for each GPU instead of a launcher: 'mpirun -np 8'.",
)
@seed_option()
@click.pass_context
def command(
    context: click.Context,
    /,
    folder: Path,
    path: Path,
    collectives: str,
    sizes: str,
    rounds: int,
    budget: float | None,
    launch_prefix: str | None,
    seed: int,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure NCCL's choices with the nccl-tests binaries in DIR, one process for each choice.

    For sites where our bench cannot run: slower, and into a study as `nccltune sweep` makes it.
    Ctrl-C loses nothing: the same command goes on where it stopped.
    """
    from nccltune.app.bench_launch import nccl_tests_of
    from nccltune.app.nccl_tests_sweep import plan_nccl_tests, sweep_nccl_tests
    from nccltune.cli.experiment_screen import ExperimentScreen, run_shown
    from nccltune.cli.launch import sweep_screen
    from nccltune.measure.experiments.nccl_tests.experiment import NcclTestsScope

    low, high = sizes_from(sizes)
    scope = NcclTestsScope(collectives_from(collectives), low, high, rounds, budget, seed)
    binaries = nccl_tests_of(folder, request_from(options), launch_prefix, site())
    if dry_run:
        sweep_screen.show_plan(plan_nccl_tests(path, binaries, scope), as_json=as_json)
        return 0
    again = command_line(context)
    screen = ExperimentScreen("nccl-tests", path, again)
    swept = run_shown(
        screen, lambda: sweep_nccl_tests(path, binaries, scope, screen, command=again)
    )
    if isinstance(swept, int):
        return swept
    sweep_screen.show_swept(swept, path, as_json=as_json)
    return 0
