# SPDX-License-Identifier: Apache-2.0
"""`nccltune ab`: A/B-test a setting in alternating runs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.options import option, options, output_option
from nccltune.cli.output import note, print_result
from nccltune.cli.verb import given, verb

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


@verb(epilog=EPILOG, dry_run=True)
@click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, metavar="NAME=VALUE... [-- PROGRAM ARGS...]"
)
@click.option("--unset", multiple=True, metavar="NAME", help="Test without this setting.")
@output_option(
    "path",
    "the study that keeps every timing; an interrupted test goes on there.",
    default=Path("studies/ab"),
    show_default=True,
)
@option(
    "--rounds",
    more=", each of a process with the setting and one without; a verdict needs 4.",
    default=8,
    show_default=True,
)
@option("--sizes", default="4K-256M", more=", without a PROGRAM.")
@options("--gpus", "--nodes", "--launcher", "--set", "--replay", "--budget")
@option(
    "--collectives",
    more=", or `all` of those that NCCL tunes, without a PROGRAM.",
    advanced=True,
)
@option("--emulate-nodes", advanced=True)
@options("--ranks-per-gpu", "--mps")
@option(
    "--min-gain",
    more=": a range of sizes must gain this for the setting to be kept.",
    advanced=True,
)
@option("--anew", more=", not only what is missing.", advanced=True)
@options("--nccl", "--seed")
def command(
    words: tuple[str, ...],
    unset: tuple[str, ...],
    path: Path,
    min_gain: float,
    anew: bool,
    dry_run: bool,
    **options: Any,
) -> int:
    """Measure with a setting and without it, in alternating runs; keep it only if it helps.

    Each round starts two processes, one with the settings and one without, in random order. A
    PROGRAM is any that prints tables of nccl-tests, started as it is or by --launcher (in pods:
    held for all rounds); without one our bench measures. Exit code 0 if the setting is worth
    keeping (STUDY/try.conf has it, and nccltune env prints it), 1 if not, with the reason.
    """
    from nccltune.app.ab import ab_test, trial_of
    from nccltune.app.bench_launch import LaunchRequest
    from nccltune.cli.ab_screen import show, show_plan
    from nccltune.cli.experiment_screen import ExperimentScreen
    from nccltune.cli.requests import struct_from
    from nccltune.measure.experiments.ab.experiment import TrialScope
    from nccltune.measure.experiments.ab.settings import label, read_settings, split_words

    settings_words, program = split_words(words)
    settings = read_settings(settings_words, unset, os.environ)
    request, scope = struct_from(LaunchRequest, options), struct_from(TrialScope, options)
    trial = trial_of(path, settings, [*_what(request, options), *program])
    if dry_run:
        show_plan(trial, program, scope.rounds, path)
        return 0
    runner = _runner(program, settings, request, options, scope.seed)
    if trial.baseline:
        note(f"baseline   with {label(trial.baseline)}, kept before")
    screen = ExperimentScreen("ab", path)
    verdict = screen.run(
        lambda: ab_test(
            path,
            runner,
            trial,
            scope,
            screen,
            min_gain=min_gain,
            anew=anew,
            command=screen.command,
        )
    )
    print_result(verdict, show, verdict, path)
    return int(verdict.decision != "keep")


def _runner(
    program: list[str],
    settings: dict[str, str | None],
    request: "LaunchRequest",
    options: dict[str, Any],
    seed: int,
) -> "TrialRunner":
    """Return the runner of the test's processes: of a recording, of the bench, or of a program.

    Raises InputError for options that contradict each other, and what `launch_of` raises.
    """
    from nccltune.app.bench_launch import keys_of, launch_of, program_launch_of
    from nccltune.cli.requests import collectives_from, site, sizes_from
    from nccltune.examples import recording
    from nccltune.measure.experiments.ab.bench import BenchRunner
    from nccltune.measure.experiments.ab.program import ProgramRunner
    from nccltune.measure.experiments.ab.replay import ReplayRunner
    from nccltune.model.errors import InputError

    # Check the options before the branch for a recording: options that have no effect are an error
    # there, too.
    keys_of(request)
    if request.replay is not None:
        return ReplayRunner(recording(request.replay), seed)
    if not program:
        low, high = sizes_from(options["sizes"])
        collectives = collectives_from(options["collectives"])
        return BenchRunner(launch_of(request, site()), collectives, low, high, settings)
    for name in ("collectives", "sizes", "emulate_nodes", "ranks_per_gpu", "mps", "nccl"):
        if given(name):
            raise InputError(
                "is for our bench, without a PROGRAM", where=f"--{name.replace('_', '-')}"
            )
    under = program_launch_of(request, site())
    return ProgramRunner(program, os.environ, settings, with_launcher=under)


def _what(request: "LaunchRequest", options: dict[str, Any]) -> list[str]:
    """Return the options that define the measurement. They distinguish the tests of one study."""
    found = [f"{name}={options[name]}" for name in ("collectives", "sizes") if given(name)]
    found += [
        f"{name}={value}"
        for name in ("launcher", "nodes", "gpus", "emulate_nodes", "ranks_per_gpu")
        if (value := getattr(request, name)) is not None
    ]
    # `--set` counts too, because another image has another NCCL.
    return [*found, *(f"set={setting}" for setting in request.settings)]
