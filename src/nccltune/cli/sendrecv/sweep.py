# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv sweep`: find the size from which copy engines are faster than NCCL."""

from pathlib import Path
from typing import Any

import click

from nccltune.cli.options import COPIES, option
from nccltune.cli.output import print_result
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune sendrecv sweep -o studies/h200x4
  nccltune sendrecv sweep -o studies/first --replay h200x2-1-node
"""


@verb(epilog=EPILOG, dry_run=True)
@COPIES
@option("--sizes", default="4K-256M")
@option(
    "--rounds",
    "pairs",
    more=", each of a process with NCCL and one with copy engines  [default: 6]",
)
@click.option("--policies", is_flag=True, help="Also measure VCCL's policy with its settings.")
@click.option("--load", is_flag=True, help="Compare while the GPUs compute, as training does.")
def command(path: Path, dry_run: bool, **options: Any) -> None:
    """Find the size from which copy engines carry sends and receives faster than NCCL.

    Pairs of processes run NCCL alone, and with our library loaded before it. What is decided is
    written to STUDY/sendrecv.conf, and `nccltune sendrecv env` prints it. Ctrl-C loses nothing: the
    same command goes on where it stopped.
    """
    from nccltune.app.sendrecv_sweep import compare_copies, plan_copies
    from nccltune.cli.experiment_screen import ExperimentScreen
    from nccltune.cli.requests import copies_from
    from nccltune.cli.sendrecv.sweep_screen import show, show_plan
    from nccltune.measure.experiments.copies.experiment import CopiesScope

    launch, library, scope = copies_from(CopiesScope, options)
    if dry_run:
        show_plan(plan_copies(path, launch, scope, library=library))
        return
    screen = ExperimentScreen("compare", path)
    verdict = screen.run(
        lambda: compare_copies(path, launch, scope, screen, library=library, command=screen.command)
    )
    print_result(verdict, show, verdict, path)
