# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch sweep`: measure NCCL's choices with a site's own nccl-tests binaries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import LAUNCH, binds, option, options, output_option
from nccltune.cli.output import is_json, next_step, print_json, stdout, styled
from nccltune.cli.verb import verb
from nccltune.model.choice import choice_label
from nccltune.model.scale import count

if TYPE_CHECKING:
    from nccltune.app.bench_launch import LaunchRequest
    from nccltune.app.nccl_tests_sweep import NcclTestsPlan, NcclTestsResult
    from nccltune.measure.experiments.nccl_tests.experiment import NcclTestsScope

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
@binds(scope="nccltune.measure.experiments.nccl_tests.experiment:NcclTestsScope", request=LAUNCH)
def command(
    folder: Path,
    path: Path,
    scope: NcclTestsScope,
    request: LaunchRequest,
    launch_prefix: str | None,
    dry_run: bool,
) -> None:
    """Measure NCCL's choices with the nccl-tests binaries in DIR, one process for each choice.

    For sites where our bench cannot run: slower, and into a study as `nccltune sweep` makes it.
    Ctrl-C loses nothing: the same command goes on where it stopped.
    """
    from nccltune.app.bench_launch import nccl_tests_of
    from nccltune.app.nccl_tests_sweep import plan_nccl_tests, sweep_nccl_tests
    from nccltune.cli.experiment_screen import ExperimentScreen
    from nccltune.cli.requests import site

    binaries = nccl_tests_of(folder, request, launch_prefix, site())
    if dry_run:
        show_plan(plan_nccl_tests(path, binaries, scope))
        return
    screen = ExperimentScreen("nccl-tests", path)
    swept = screen.run(
        lambda: sweep_nccl_tests(path, binaries, scope, screen, command=screen.command)
    )
    show_swept(swept, path)


def show_plan(plan: NcclTestsPlan) -> None:
    """Print the plan of a sweep."""
    choices = {
        collective.value: [choice_label(choice) for choice in items]
        for collective, items in plan.choices.items()
    }
    if is_json():
        print_json(
            {
                "platform": plan.platform,
                "choices": choices,
                "processes": plan.processes,
                "total_seconds": plan.seconds,
            }
        )
        return
    out = stdout()
    out.print(f"platform   {plan.platform.title}")
    for name, labels in choices.items():
        out.print(f"{name:<14}{' '.join(labels)}")
    out.print(
        f"Would start {plan.processes} processes in {plan.rounds} rounds, some "
        f"{plan.seconds:.2g} s. Nothing was measured or written."
    )


def show_swept(swept: NcclTestsResult, study: Path) -> None:
    """Print how much was measured, and the choices that were left out."""
    outcome = swept.outcome
    left_out = [
        {"collective": collective, "choice": choice_label(choice), "why": why}
        for collective, choice, why in outcome.left_out
    ]
    if is_json():
        print_json({"platform": swept.platform, "sweep": swept.summary, "left_out": left_out})
        return
    out = stdout()
    before = f" and {outcome.known} from before" if outcome.known else ""
    ended = " · the budget is spent: the same command goes on" if outcome.reason == "budget" else ""
    out.print(
        f"nccl-tests {count(outcome.points, 'point')}{before} in {outcome.seconds:.1f} "
        f"seconds{ended}"
    )
    for item in left_out:
        words = f"   {item['collective']} {item['choice']}: {item['why']}"
        out.print(styled(("left out", "yellow"), words))
    out.print(f"study      {study}")
    next_step("nccltune tune", study)
