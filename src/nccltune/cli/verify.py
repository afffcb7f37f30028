# SPDX-License-Identifier: Apache-2.0
"""`nccltune verify`: prove the rules, and take out what does not hold."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.options import STUDY, budget_option, option
from nccltune.cli.output import next_step, note, print_json, saving
from nccltune.cli.platform_options import platform_options, request_from, site
from nccltune.cli.run_options import command_line, terminated_like_interrupted
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.bench_launch import LaunchRequest
    from nccltune.study.files import Study

EPILOG = """\b
Examples:
  nccltune verify studies/h200x4
  nccltune verify studies/h200x4 --budget 60 --check
  nccltune verify studies/h200x4 -- mpirun -n 4 all_reduce_perf -b 1K -e 64M -f 2
  nccltune verify studies/two --launcher slurm --gpus 8 -- all_reduce_perf -e 64M
"""


@verb(epilog=EPILOG, dry_run=True)
@STUDY
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@platform_options
@budget_option()
@option("--anew", is_flag=True, more=", not only what is missing.")
@option("--check", is_flag=True, more=" unless every rule holds unchanged.")
@click.pass_context
def command(
    context: click.Context,
    /,
    study: Path,
    program: tuple[str, ...],
    budget: float | None,
    anew: bool,
    check: bool,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure STUDY's rules against NCCL's default, in alternating order in one run.

    At every size that was measured, between them, and on both sides of every edge of a rule. A rule
    that does not hold is taken out of tuner.conf (the old file stays beside) and what changed is
    measured again. Without launch options it runs as the study was measured.

    With a COMMAND, nothing of ours is measured: it is run twice, without and with the plugin
    loaded by the lines of `nccltune env`, and NCCL's own log shows whether the rules were followed.
    With --launcher it is a program that this launcher starts, as `nccltune launch run` does.
    """
    from nccltune.app.bench_launch import check_request
    from nccltune.app.verify import VerifyRun, launch_as_measured
    from nccltune.cli import verify_screen as screen
    from nccltune.cli.measure_screen import VerifyScreen, run_interruptible
    from nccltune.study.files import Study

    opened = Study.open(study)
    request = request_from(options)
    check_request(request)
    if program:
        return _verify_program(
            opened, program, request, as_json, dry_run=dry_run, bench=bool(budget or anew)
        )
    again = command_line(context)
    launch = launch_as_measured(opened, request, site())
    run = VerifyRun(opened, launch, command=again, budget_s=budget, anew=anew)
    if dry_run:
        screen.show_plan(run.plan(VerifyScreen()), as_json=as_json)
        return 0
    proof = run_interruptible(lambda: run.run(VerifyScreen()), lambda: run.kept, study, again)
    if isinstance(proof, int):
        return proof
    if proof is None:
        note("nothing to verify: tuner.conf holds no rule")
        if as_json:
            print_json({"rules": []})
        return 0
    if as_json:
        print_json(proof)
    else:
        screen.show_proof_in_full(proof)
        if run.is_changed:
            screen.show_changed(opened)
        next_step("nccltune report", study)
    return int(check and (run.is_changed or proof.holding < len(proof.rules)))


def _verify_program(
    study: "Study",
    program: tuple[str, ...],
    request: "LaunchRequest",
    as_json: bool,
    *,
    dry_run: bool,
    bench: bool,
) -> int:
    """Run the user's program without and with the plugin. Return the exit code.

    `bench` is True if options of our bench were given.
    """
    from nccltune.app.bench_launch import mpi_launch_of
    from nccltune.app.verify_program import save_program_proof, verify_program
    from nccltune.cli import verify_screen as screen
    from nccltune.launch.process import signal_of
    from nccltune.model.errors import InputError

    ours = (request.emulate_nodes, request.nccl, request.replay)
    if bench or any(ours) or (request.gpus and request.launcher is None):
        raise InputError(
            "--budget, --anew and launch options are for measuring with our bench",
            hint="with a COMMAND, give it its own options behind it, or name a --launcher",
        )
    under = mpi_launch_of(request, site()) if request.launcher is not None else None
    if dry_run:
        note(f"would run twice, without and with the plugin: {' '.join(program)}")
        if as_json:
            print_json({"program": list(program)})
        return 0
    try:
        with terminated_like_interrupted():
            proof, reach = verify_program(study, program, under, screen.ProgramScreen())
    except KeyboardInterrupt as stop:
        note("stopped; nothing was changed")
        return 128 + signal_of(stop)
    with saving():
        save_program_proof(study, proof)
    if as_json:
        print_json(proof)
    else:
        screen.show_program(proof, reach)
    return int(bool(proof.problems))
