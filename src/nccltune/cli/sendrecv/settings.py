# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv settings`: compare settings of NCCL's own send/recv in separate processes."""

from pathlib import Path
from typing import Any

from nccltune.cli.options import PLATFORM, option, options, output_option
from nccltune.cli.output import print_result
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune sendrecv settings -o studies/h200x4
  nccltune sendrecv settings -o studies/two --launcher slurm --nodes 2
"""


@verb(epilog=EPILOG, dry_run=True)
@output_option("path", "the study; an interrupted comparison goes on there.", required=True)
@option("--sizes", default="4K-256M")
@PLATFORM
@options("--budget")
@option("--gain-threshold", more=": settings that gain less are not pursued.", default="1%")
@options("--seed")
def command(path: Path, dry_run: bool, **options: Any) -> None:
    """Compare settings of NCCL's own send/recv with its default, in alternating runs.

    NCCL reads these settings once, so that each needs processes of its own. What beats the default
    beyond noise is written to STUDY/p2p.conf, and `nccltune env` prints it. Ctrl-C loses nothing:
    the same command goes on where it stopped.
    """
    from nccltune.app.sendrecv_settings import plan_race, race_settings
    from nccltune.cli.experiment_screen import ExperimentScreen
    from nccltune.cli.requests import launch_from, scope_from
    from nccltune.cli.sendrecv.settings_screen import show, show_plan, warn_of_settings
    from nccltune.measure.experiments.p2p.experiment import RaceScope

    scope = scope_from(RaceScope, options)
    launch = launch_from(options)
    if dry_run:
        show_plan(plan_race(path, launch, scope))
        return
    screen = ExperimentScreen("race", path, warn_of_settings)
    verdict = screen.run(lambda: race_settings(path, launch, scope, screen, command=screen.command))
    print_result(verdict, show, verdict, path)
