# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv fairness`: find the chunk size of copies that lets other messages pass."""

from pathlib import Path
from typing import Any

from nccltune.cli.options import COPIES, option
from nccltune.cli.output import print_result
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune sendrecv fairness -o studies/h200x4
  nccltune sendrecv fairness -o studies/first --replay h200x2-1-node
"""


@verb(epilog=EPILOG, dry_run=True)
@COPIES
@option("--sizes", default="256K-16M", more=" of the messages beside large ones.")
@option("--rounds", more=", each of a process for NCCL, for whole messages and for each chunk.")
def command(path: Path, dry_run: bool, **options: Any) -> None:
    """Find the chunk that lets other messages pass between the parts of large ones.

    Messages are timed beside large ones, which copy engines carry whole or in chunks. A chunk that
    pays is added to STUDY/sendrecv.conf, and `nccltune sendrecv env` prints it. Ctrl-C loses
    nothing: the same command goes on where it stopped.
    """
    from nccltune.app.sendrecv_fairness import compare_fairness, plan_fairness
    from nccltune.cli.experiment_screen import ExperimentScreen
    from nccltune.cli.requests import copies_from
    from nccltune.cli.sendrecv.fairness_screen import show, show_plan
    from nccltune.measure.experiments.copies.fairness_experiment import FairnessScope

    launch, library, scope = copies_from(FairnessScope, options)
    if dry_run:
        show_plan(plan_fairness(path, launch, scope, library=library))
        return
    screen = ExperimentScreen("fairness", path)
    verdict, not_written = screen.run(
        lambda: compare_fairness(
            path, launch, scope, screen, library=library, command=screen.command
        )
    )
    print_result(verdict, show, verdict, path, not_written)
