# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv sweep`: from which size a message is worth a copy engine."""

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
  nccltune sendrecv sweep -o studies/h200x4
  nccltune sendrecv sweep -o studies/first --replay h200x2-1-node
"""


@verb(epilog=EPILOG, dry_run=True)
@copies_options
@sizes_option("4K-256M")
@rounds_option(", each of a process with NCCL and one with copy engines  [default: 6]")
@click.option("--policies", is_flag=True, help="Also measure VCCL's policy with its settings.")
@click.option("--load", is_flag=True, help="Compare while the GPUs compute, as training does.")
@click.pass_context
def command(
    context: click.Context,
    /,
    path: Path,
    sizes: str,
    rounds: int | None,
    budget: float | None,
    policies: bool,
    load: bool,
    seed: int,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Find the size from which copy engines carry sends and receives faster than NCCL.

    Pairs of processes run NCCL alone, and with our library loaded before it. What is decided is
    written to STUDY/sendrecv.conf, and `nccltune sendrecv env` prints it. Ctrl-C loses nothing: the
    same command goes on where it stopped.
    """
    from nccltune.app.sendrecv_sweep import compare_copies, plan_copies
    from nccltune.cli.experiment_screen import ExperimentScreen, run_shown
    from nccltune.cli.sendrecv import sweep_screen
    from nccltune.measure.experiments.copies.experiment import PAIRS, CopiesScope

    low, high = sizes_from(sizes)
    launch, library, floor = copies_from(options)
    scope = CopiesScope(
        low,
        high,
        pairs=rounds or PAIRS,
        policies=policies,
        load=load,
        noise_floor=floor,
        budget_s=budget,
        seed=seed,
    )
    if dry_run:
        plan = plan_copies(path, launch, scope, library=library)
        sweep_screen.show_copies_plan(plan, as_json=as_json)
        return 0
    again = command_line(context)
    screen = ExperimentScreen("compare", path, again)
    verdict = run_shown(
        screen,
        lambda: compare_copies(path, launch, scope, screen, library=library, command=again),
    )
    if isinstance(verdict, int):
        return verdict
    if as_json:
        print_json(verdict)
    else:
        sweep_screen.show_copies(verdict, path)
    return 0
