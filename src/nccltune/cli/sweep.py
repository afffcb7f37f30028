# SPDX-License-Identifier: Apache-2.0
"""`nccltune sweep`: measure where NCCL's choices cost time, and only there."""

from pathlib import Path
from typing import Any

import click

from nccltune.cli.options import budget_option, rounds_option, study_option
from nccltune.cli.output import print_json
from nccltune.cli.platform_options import launch_from, platform_options
from nccltune.cli.run_options import command_line
from nccltune.cli.size_options import scope_from, scope_options
from nccltune.cli.sweep_screen import as_data, show_plan, show_result
from nccltune.cli.verb import AdvancedOption, verb

EPILOG = """\b
Examples:
  nccltune sweep -o studies/h200x4 --emulate-nodes 4
  nccltune sweep -o studies/first --replay examples/h200x4-as-4-nodes --budget 10
  nccltune sweep -o studies/two --launcher openmpi --set hosts=a,b --gpus 8
"""
_EXHAUSTIVE_ROUNDS = 8


@verb(epilog=EPILOG, dry_run=True)
@study_option("the study; an interrupted sweep of it goes on.", required=True)
@scope_options
@platform_options
@budget_option()
@click.option(
    "--exhaustive",
    is_flag=True,
    cls=AdvancedOption,
    help="Measure the full grid instead: the yardstick.",
)
@rounds_option(f" of the full grid  [default: {_EXHAUSTIVE_ROUNDS}]", advanced=True)
@click.pass_context
def command(
    context: click.Context,
    /,
    path: Path,
    budget: float | None,
    exhaustive: bool,
    rounds: int | None,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure NCCL's choices against its default, where a decision is still open.

    One communicator; our tuner plugin switches the choice from call to call, the default beside
    every other in the same rounds. Every timing is kept in STUDY. Ctrl-C loses nothing: the same
    command goes on where it stopped.
    """
    from nccltune.app.sweep import SweepRun, decide
    from nccltune.cli.measure_screen import SweepScreen, run_interruptible
    from nccltune.model.errors import InputError

    if rounds is not None and not exhaustive:
        raise InputError("is for --exhaustive; a sweep decides by itself", where="--rounds")
    scope = scope_from(options)._replace(
        rounds=(rounds or _EXHAUSTIVE_ROUNDS) if exhaustive else None, budget_s=budget
    )
    again = command_line(context)
    sweep = SweepRun(path, launch_from(options), scope, command=again)
    if dry_run:
        show_plan(*sweep.plan(), as_json=as_json)
        return 0
    swept = run_interruptible(lambda: sweep.run(SweepScreen()), lambda: sweep.kept, path, again)
    if isinstance(swept, int):
        return swept
    if as_json:
        print_json(as_data(swept))
    else:
        show_result(swept, path, decide)
    return 0
