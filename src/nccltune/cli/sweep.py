# SPDX-License-Identifier: Apache-2.0
"""`nccltune sweep`: measure NCCL's choices at sizes where they may beat the default."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import (
    CALLS,
    LAUNCH,
    PLATFORM,
    SCOPE,
    WORKLOAD_SWEEP,
    binds,
    option,
    options,
    output_option,
)
from nccltune.cli.output import print_result
from nccltune.cli.verb import AdvancedOption, verb

if TYPE_CHECKING:
    from nccltune.app.bench_launch import LaunchRequest
    from nccltune.measure.experiments.choices import SweepScope

EPILOG = """\b
Examples:
  nccltune sweep -o studies/h200x4 --emulate-nodes 4
  nccltune sweep -o studies/first --replay examples/h200x4-as-4-nodes --budget 10
  nccltune sweep -o studies/job --workload traces/ --emulate-nodes 4
  nccltune sweep -o studies/two --launcher openmpi --set hosts=a,b --gpus 8
"""
_EXHAUSTIVE_ROUNDS = 8


@verb(epilog=EPILOG, dry_run=True)
@output_option("path", "the study; an interrupted sweep of it goes on.", required=True)
@SCOPE
@CALLS
@PLATFORM
@options(option("--workload", more=WORKLOAD_SWEEP, advanced=True), "--budget")
@click.option(
    "--exhaustive",
    is_flag=True,
    cls=AdvancedOption,
    help="Measure the full grid instead: the yardstick.",
)
@option("--rounds", more=f" of the full grid  [default: {_EXHAUSTIVE_ROUNDS}]", advanced=True)
@binds(scope="nccltune.measure.experiments.choices:SweepScope", request=LAUNCH)
def command(
    path: Path,
    scope: SweepScope,
    request: LaunchRequest,
    exhaustive: bool,
    rounds: int | None,
    dry_run: bool,
) -> None:
    """Measure NCCL's choices against its default, where a decision is still open.

    One communicator; our tuner plugin switches the choice from call to call, the default beside
    every other in the same rounds. Every timing is kept in STUDY. Ctrl-C loses nothing: the same
    command goes on where it stopped.
    """
    from nccltune.app.sweep import plan_sweep, sweep
    from nccltune.cli.measure_screen import SweepScreen
    from nccltune.cli.requests import launch_at, scope_for
    from nccltune.cli.sweep_screen import as_data, show_plan, show_result
    from nccltune.model.errors import InputError

    if rounds is not None and not exhaustive:
        raise InputError("is for --exhaustive; a sweep decides by itself", where="--rounds")
    full = (rounds or _EXHAUSTIVE_ROUNDS) if exhaustive else None
    scope = scope_for(scope)._replace(rounds=full)
    launch = launch_at(request)
    if dry_run:
        show_plan(*plan_sweep(path, launch, scope))
        return
    screen = SweepScreen(path)
    swept = screen.run(lambda: sweep(path, launch, scope, screen, command=screen.command))
    print_result(as_data(swept), show_result, swept, path, scope.workload)
