# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv settings`: settings of NCCL's own send/recv, each in processes of its own."""

from pathlib import Path
from typing import Any

import click

from nccltune.cli.options import budget_option, seed_option, study_option
from nccltune.cli.output import print_json
from nccltune.cli.platform_options import launch_from, platform_options
from nccltune.cli.run_options import command_line
from nccltune.cli.size_options import (
    gain_threshold_option,
    sizes_from,
    sizes_option,
    threshold_from,
)
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune sendrecv settings -o studies/h200x4
  nccltune sendrecv settings -o studies/two --launcher slurm --nodes 2
"""


@verb(epilog=EPILOG, dry_run=True)
@study_option("the study; an interrupted comparison goes on there.", required=True)
@sizes_option("4K-256M")
@platform_options
@budget_option()
@gain_threshold_option(": settings that gain less are not pursued.", "1%")
@seed_option()
@click.pass_context
def command(
    context: click.Context,
    /,
    path: Path,
    sizes: str,
    budget: float | None,
    gain_threshold: float,
    seed: int,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Compare settings of NCCL's own send/recv with its default, in alternating runs.

    NCCL reads these settings once, so that each needs processes of its own. What beats the default
    beyond noise is written to STUDY/p2p.conf, and `nccltune env` prints it. Ctrl-C loses nothing:
    the same command goes on where it stopped.
    """
    from nccltune.app.sendrecv_settings import plan_race, race_settings
    from nccltune.cli.experiment_screen import ExperimentScreen, run_shown
    from nccltune.cli.sendrecv import settings_screen
    from nccltune.measure.experiments.p2p.experiment import RaceScope

    low, high = sizes_from(sizes)
    scope = RaceScope(low, high, threshold_from(gain_threshold), budget, seed)
    launch = launch_from(options)
    if dry_run:
        settings_screen.show_race_plan(plan_race(path, launch, scope), as_json=as_json)
        return 0
    again = command_line(context)
    screen = ExperimentScreen("race", path, again, settings_screen.warn_of_settings)
    verdict = run_shown(screen, lambda: race_settings(path, launch, scope, screen, command=again))
    if isinstance(verdict, int):
        return verdict
    if as_json:
        print_json(verdict)
    else:
        settings_screen.show_race(verdict, path)
    return 0
