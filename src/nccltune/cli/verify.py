# SPDX-License-Identifier: Apache-2.0
"""`nccltune verify`: prove the rules, and take out what does not hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import CALLS, LAUNCH, PLATFORM, STUDY, binds, option, options
from nccltune.cli.output import is_json, note, print_json, print_result, warn, warn_unsaved
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.bench_launch import LaunchRequest
    from nccltune.app.verify_program import ProgramScope
    from nccltune.study.files import Study

EPILOG = """\b
Examples:
  nccltune verify studies/h200x4
  nccltune verify studies/h200x4 --budget 60 --check
  nccltune verify studies/h200x4 -- mpirun -n 4 all_reduce_perf -b 1K -e 64M -f 2
  nccltune verify studies/h200x4 --metric 'tps: ([0-9.]+)' -- torchrun train.py
  nccltune verify studies/two --launcher slurm --gpus 8 -- all_reduce_perf -e 64M
"""


@verb(epilog=EPILOG, dry_run=True)
@STUDY
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@CALLS
@PLATFORM
@option(
    "--rounds",
    more=" at most, with a COMMAND: each starts it twice.  [default: 12; fewer if all is decided]",
)
@option("--metric", advanced=True)
@options(
    option(
        "--workload",
        more=": judge the rules by the sizes that it sends, by its time there.",
        advanced=True,
    ),
    "--budget",
    option("--anew", more=", not only what is missing."),
)
@option("--check", more=" unless every rule holds unchanged, or the job is proven faster.")
@binds(request=LAUNCH)
def command(
    study: Path,
    program: tuple[str, ...],
    request: LaunchRequest,
    rounds: int | None,
    metric: str | None,
    workload: tuple[str, ...],
    budget_s: float | None,
    anew: bool,
    check: bool,
    registered: bool,
    group_calls: int | None,
    dry_run: bool,
) -> int:
    """Measure STUDY's rules against NCCL's default, in alternating order in one run.

    At every size that was measured, between them, and on both sides of every edge of a rule, with
    plain calls and with those that the sweep measured or a rule needs. A rule
    that does not hold is taken out of tuner.conf (the old file stays beside) and what changed is
    measured again. Without launch options it runs as the study was measured.

    With a COMMAND, it is run in rounds instead of our bench: once without and once with the plugin
    loaded by the lines of `nccltune env`. NCCL's own log shows whether the rules were followed,
    and tables of nccl-tests show whether they are faster. A COMMAND without such a table is a job,
    such as a training script: the speed that it prints, else its wall time, is compared over at
    least three pairs of starts, which proves the file as a whole for this job.
    With --launcher it is a program that this launcher starts, as `nccltune launch run` does.
    """
    from nccltune.app.bench_launch import keys_of
    from nccltune.app.verify import launch_as_measured, plan_verify, verify
    from nccltune.app.verify_program import ProgramScope
    from nccltune.cli.measure_screen import VerifyScreen
    from nccltune.cli.requests import site
    from nccltune.cli.verify_screen import show_plan, show_proof_in_full
    from nccltune.measure.bench.conditions import CallKind
    from nccltune.measure.experiments.ab.speed import user_metric
    from nccltune.model.errors import InputError
    from nccltune.study.files import Study

    opened = Study.open(study)
    # Check the options before the branch for a program: options that have no effect are an error
    # there, too.
    keys_of(request)
    if program:
        read = None if metric is None else user_metric(metric)
        scope = ProgramScope(rounds or ProgramScope().rounds, budget_s, anew, read)
        bench = bool(registered or group_calls or workload)
        return _verify_program(
            opened, program, request, scope, dry_run=dry_run, check=check, bench=bench
        )
    for flag, value in (("--rounds", rounds), ("--metric", metric)):
        if value:
            raise InputError("is for a COMMAND: our bench decides by itself", where=flag)
    if workload and (registered or group_calls):
        raise InputError("no recording states these calls", where="--registered, --pipe-ops")
    launch = launch_as_measured(opened, request, site())
    if dry_run:
        show_plan(plan_verify(opened, lambda sentence: warn([sentence]), workload))
        return 0
    screen = VerifyScreen(study)
    proof, is_changed = screen.run(
        lambda: verify(
            opened,
            launch,
            screen,
            command=screen.command,
            budget_s=budget_s,
            anew=anew,
            calls=CallKind(registered, group_calls or 1),
            workload=workload,
        )
    )
    if proof is None:
        note("nothing to verify: tuner.conf holds no rule")
        if is_json():
            print_json({"rules": []})
        return 0
    print_result(proof, show_proof_in_full, proof, opened, is_changed=is_changed)
    return int(check and (is_changed or proof.holding < len(proof.rules)))


def _verify_program(
    study: Study,
    program: tuple[str, ...],
    request: LaunchRequest,
    scope: ProgramScope,
    *,
    dry_run: bool,
    check: bool,
    bench: bool,
) -> int:
    """Run the user's program without and with the plugin. Return the exit code.

    Raises InputError for options of our `bench`, or others without use.
    """
    from nccltune.app.bench_launch import mpi_launch_of
    from nccltune.app.verify_program import verify_program
    from nccltune.cli.requests import site
    from nccltune.cli.verify_screen import (
        ProgramScreen,
        program_document,
        show_program,
        show_program_plan,
    )
    from nccltune.model.errors import InputError

    ours = (request.emulate_nodes, request.ranks_per_gpu, request.mps, request.nccl, request.replay)
    if bench or any(ours) or (request.gpus and request.launcher is None):
        raise InputError(
            "--registered, --pipe-ops, --workload and launch options are for measuring with our "
            "bench",
            hint="with a COMMAND, give it its own options behind it, or name a --launcher",
        )
    under = mpi_launch_of(request, site()) if request.launcher is not None else None
    if dry_run:
        show_program_plan(program, scope.rounds)
        return 0
    screen = ProgramScreen(study.path)
    result = screen.run(
        lambda: verify_program(study, program, under, screen, scope, command=screen.command)
    )
    warn_unsaved(result.unsaved)
    print_result(program_document(result), show_program, result, study)
    holds = result.proof is not None and result.proof.holding == len(result.proof.rules)
    holds = holds or (result.job is not None and result.job.verdict == "proven")
    harms = result.job is not None and result.job.harms
    is_wrong = harms or bool(result.deployed.problems)
    return int(is_wrong or (check and (result.is_changed or not holds)))
