# SPDX-License-Identifier: Apache-2.0
"""`nccltune ab`: A/B-test a setting in alternating runs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.options import (
    budget_option,
    min_gain_option,
    option,
    rounds_option,
    seed_option,
    study_option,
)
from nccltune.cli.output import note, print_json
from nccltune.cli.platform_options import (
    emulate_option,
    gpus_option,
    launcher_option,
    nccl_option,
    nodes_option,
    replay_option,
    request_from,
    set_option,
    site,
)
from nccltune.cli.run_options import command_line, given
from nccltune.cli.size_options import (
    collectives_from,
    collectives_option,
    sizes_from,
    sizes_option,
)
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.bench_launch import LaunchRequest
    from nccltune.measure.experiments.ab.experiment import TrialRunner

EPILOG = """\b
Examples:
  nccltune ab NCCL_NET_GDR_READ=0 --launcher slurm -- all_reduce_perf -e 1G
  nccltune ab NCCL_P2P_LEVEL=PXB -- all_reduce_perf -b 1M -e 1G -f 2 -g 4
  nccltune ab --unset NCCL_ALGO -o studies/a -- mpirun -n 8 all_reduce_perf -e 1G
  nccltune ab NCCL_IB_TC=106 --launcher kubernetes --set image=nccl-tests:1 \\
      --nodes 2 -- all_reduce_perf -b 1M -e 1G -f 2
"""
_ROUNDS = 8
_SIZES = "4K-256M"


@verb(epilog=EPILOG, dry_run=True)
@click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, metavar="NAME=VALUE... [-- PROGRAM ARGS...]"
)
@click.option("--unset", multiple=True, metavar="NAME", help="Test without this setting.")
@study_option(
    "the study that keeps every timing; an interrupted test goes on there.",
    default=Path("studies/ab"),
    show_default=True,
)
@rounds_option(
    ", each of a process with the setting and one without; a verdict needs 4.",
    default=_ROUNDS,
    show_default=True,
)
@sizes_option(_SIZES, ", without a PROGRAM.")
@gpus_option()
@nodes_option()
@launcher_option()
@set_option()
@replay_option()
@budget_option()
@collectives_option(", without a PROGRAM", advanced=True)
@emulate_option(advanced=True)
@min_gain_option(": a range of sizes must gain this for the setting to be kept.", advanced=True)
@option("--anew", is_flag=True, more=", not only what is missing.", advanced=True)
@nccl_option()
@seed_option()
@click.pass_context
def command(
    context: click.Context,
    /,
    words: tuple[str, ...],
    unset: tuple[str, ...],
    path: Path,
    rounds: int,
    min_gain: float,
    budget: float | None,
    anew: bool,
    seed: int,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure with a setting and without it, in alternating runs; keep it only if it helps.

    Each round starts two processes, one with the settings and one without, in random order. A
    PROGRAM is any that prints tables of nccl-tests, started as it is or by --launcher (in pods:
    held for all rounds); without one our bench measures. Exit code 0 if the setting is worth
    keeping (STUDY/try.conf has it, and nccltune env prints it), 1 if not, with the reason.
    """
    from nccltune.app.ab import ab_test, trial_of
    from nccltune.cli.ab_screen import show, show_plan
    from nccltune.cli.experiment_screen import ExperimentScreen, run_shown
    from nccltune.measure.experiments.ab.experiment import TrialScope
    from nccltune.measure.experiments.ab.settings import label, read_settings, split_words

    settings_words, program = split_words(words)
    settings = read_settings(settings_words, unset, os.environ)
    request = request_from(options)
    trial = trial_of(path, settings, [*_what(context, request, options), *program])
    if dry_run:
        show_plan(trial, program, rounds, path, as_json=as_json)
        return 0
    runner = _runner(context, program, settings, request, options, seed)
    if trial.baseline:
        note(f"baseline   with {label(trial.baseline)}, kept before")
    again = command_line(context)
    screen = ExperimentScreen("ab", path, again)
    verdict = run_shown(
        screen,
        lambda: ab_test(
            path,
            runner,
            trial,
            TrialScope(rounds, budget, seed),
            screen,
            min_gain=min_gain,
            anew=anew,
            command=again,
        ),
    )
    if isinstance(verdict, int):
        return verdict
    if as_json:
        print_json(verdict)
    else:
        show(verdict, path)
    return int(verdict.decision != "keep")


def _runner(
    context: click.Context,
    program: list[str],
    settings: dict[str, str | None],
    request: "LaunchRequest",
    options: dict[str, Any],
    seed: int,
) -> "TrialRunner":
    """Return the runner of the test's processes.

    Raises InputError for options that contradict each other.
    """
    from nccltune.app.bench_launch import check_request, launch_of, program_launch_of
    from nccltune.examples import recording
    from nccltune.measure.experiments.ab.bench import BenchRunner
    from nccltune.measure.experiments.ab.program import ProgramRunner
    from nccltune.measure.experiments.ab.replay import ReplayRunner
    from nccltune.model.errors import InputError

    check_request(request)
    if request.replay is not None:
        return ReplayRunner(recording(request.replay), seed)
    if not program:
        low, high = sizes_from(options["sizes"])
        collectives = collectives_from(options["collectives"])
        return BenchRunner(launch_of(request, site()), collectives, low, high, settings)
    for name in ("collectives", "sizes", "emulate_nodes", "nccl"):
        if given(context, name):
            raise InputError(
                "is for our bench, without a PROGRAM", where=f"--{name.replace('_', '-')}"
            )
    under = program_launch_of(request, site())
    return ProgramRunner(program, os.environ, settings, with_launcher=under)


def _what(context: click.Context, request: "LaunchRequest", options: dict[str, Any]) -> list[str]:
    """Return the options that define the measurement. They distinguish the tests of one study."""
    found = [f"{name}={options[name]}" for name in ("collectives", "sizes") if given(context, name)]
    found += [
        f"{name}={value}"
        for name in ("launcher", "nodes", "gpus", "emulate_nodes")
        if (value := getattr(request, name)) is not None
    ]
    # `--set` counts too, because another image has another NCCL.
    return [*found, *(f"set={setting}" for setting in request.settings)]
