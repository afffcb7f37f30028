# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv fairness`: whether copies are cut so that other messages pass between."""

from pathlib import Path
from typing import Any

import click

from nccltune.cli.options import rounds_option
from nccltune.cli.output import print_json
from nccltune.cli.run_options import command_line
from nccltune.cli.sendrecv.copies_options import copies_from, copies_options
from nccltune.cli.size_options import sizes_from, sizes_option
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune sendrecv fairness -o studies/h200x4
  nccltune sendrecv fairness -o studies/first --replay h200x2-1-node
"""


@verb(epilog=EPILOG, dry_run=True)
@copies_options
@sizes_option("256K-16M", " of the messages beside large ones.")
@rounds_option(", each of a process for NCCL, for whole messages and for each chunk.")
@click.pass_context
def command(
    context: click.Context,
    /,
    path: Path,
    sizes: str,
    rounds: int | None,
    budget: float | None,
    seed: int,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Find the chunk that lets other messages pass between the parts of large ones.

    Messages are timed beside large ones, which copy engines carry whole or in chunks. A chunk that
    pays is added to STUDY/sendrecv.conf, and `nccltune sendrecv env` prints it. Ctrl-C loses
    nothing: the same command goes on where it stopped.
    """
    from nccltune.app.sendrecv_fairness import compare_fairness, plan_fairness
    from nccltune.cli.experiment_screen import ExperimentScreen, run_shown
    from nccltune.cli.sendrecv import fairness_screen
    from nccltune.measure.experiments.copies.fairness_experiment import ROUNDS, FairnessScope

    low, high = sizes_from(sizes)
    launch, library, floor = copies_from(options)
    scope = FairnessScope(
        low, high, rounds=rounds or ROUNDS, noise_floor=floor, budget_s=budget, seed=seed
    )
    if dry_run:
        plan = plan_fairness(path, launch, scope, library=library)
        fairness_screen.show_fairness_plan(plan, as_json=as_json)
        return 0
    again = command_line(context)
    screen = ExperimentScreen("fairness", path, again)
    result = run_shown(
        screen,
        lambda: compare_fairness(path, launch, scope, screen, library=library, command=again),
    )
    if isinstance(result, int):
        return result
    if as_json:
        print_json(result.verdict)
    else:
        fairness_screen.show_fairness(result.verdict, path, result.not_written)
    return 0
