# SPDX-License-Identifier: Apache-2.0
"""`nccltune ab`: A/B-test a setting, or two NCCLs, in alternating runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.options import LAUNCH, PATH, binds, option, options, output_option
from nccltune.cli.output import note, print_result
from nccltune.cli.verb import given, verb

if TYPE_CHECKING:
    from nccltune.app.ab_releases import ReleaseVerdict
    from nccltune.app.bench_launch import LaunchRequest
    from nccltune.measure.experiments.ab.experiment import TrialRunner, TrialScope

EPILOG = """\b
Examples:
  nccltune ab NCCL_NET_GDR_READ=0 --launcher slurm -- all_reduce_perf -e 1G
  nccltune ab NCCL_P2P_LEVEL=PXB -- all_reduce_perf -b 1M -e 1G -f 2 -g 4
  nccltune ab --unset NCCL_ALGO -o studies/a -- mpirun -n 8 all_reduce_perf -e 1G
  nccltune ab NCCL_IB_TC=106 --launcher kubernetes --set image=nccl-tests:1 \\
      --nodes 2 -- all_reduce_perf -b 1M -e 1G -f 2
  nccltune ab --nccl 2.28.9 --nccl /opt/nccl-2.32.3/lib/libnccl.so.2 --gpus 8
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
    "--collectives", more=", or `all` of those that NCCL tunes, without a PROGRAM.", advanced=True
)
@option("--registered", more=", beside plain calls, without a PROGRAM.", advanced=True)
@option("--graphs", more=", beside the calls without one, without a PROGRAM.", advanced=True)
@option("--emulate-nodes", advanced=True)
@options("--ranks-per-gpu", "--mps")
@option(
    "--min-gain",
    more=": a range of sizes must gain this for the setting to be kept.",
    advanced=True,
)
@option("--anew", more=", not only what is missing.", advanced=True)
@option(
    "--nccl",
    "libraries",
    multiple=True,
    type=PATH,
    metavar="FILE",
    more=" for our bench; twice: compare two, each a file or a release that is installed.",
)
@options("--seed")
@binds(request=LAUNCH, scope="nccltune.measure.experiments.ab.experiment:TrialScope")
def command(
    words: tuple[str, ...],
    unset: tuple[str, ...],
    path: Path,
    request: LaunchRequest,
    libraries: tuple[Path, ...],
    scope: TrialScope,
    collectives: str,
    sizes: str,
    registered: bool,
    graphs: bool,
    min_gain: float,
    anew: bool,
    dry_run: bool,
) -> int:
    """Measure with a setting and without it, or with two NCCLs, in alternating runs.

    Each round starts two processes, one with the settings and one without, in random order. A
    PROGRAM is any that prints tables of nccl-tests, started as it is or by --launcher (in pods:
    held for all rounds); without one our bench measures. Exit code 0 if the setting is worth
    keeping (STUDY/try.conf has it, and nccltune env prints it), 1 if not, with the reason.
    Of two NCCLs: exit code 0 if the second is slower nowhere beyond noise. What it chooses
    otherwise is shown; where that is slower, a rule with the old choice is written to be proven.
    """
    from nccltune.app.ab import ab_test, trial_of
    from nccltune.app.ab_releases import ReleaseVerdict, two_libraries
    from nccltune.cli.ab_screen import show, show_plan, show_releases
    from nccltune.cli.measure_screen import ExperimentScreen
    from nccltune.measure.experiments.ab.settings import LIBRARY, label, read_settings, split_words
    from nccltune.model.errors import InputError

    settings_words, program = split_words(words)
    measured = {
        "collectives": collectives,
        "sizes": sizes,
        "registered": registered,
        "graphs": graphs,
    }
    if len(libraries) < 2:
        request = request._replace(nccl=_file(libraries))
    what = [*_what(request, measured), *program]
    if len(libraries) > 1:
        if settings_words or unset:
            raise InputError("of two libraries are compared without settings", where="‹nccl›")
        first, second = two_libraries(
            [str(one) for one in libraries], request, preloaded=bool(program)
        )
        settings: dict[str, str | None] = {LIBRARY: second}
        trial = trial_of(path, settings, what, first)
    else:
        settings = read_settings(settings_words, unset, os.environ)
        trial = trial_of(path, settings, what)
    if dry_run:
        show_plan(trial, program, scope.rounds, path)
        return 0
    runner = _runner(program, settings, request, measured, scope.seed)
    kept = {name: value for name, value in trial.baseline.items() if name != LIBRARY}
    if kept:
        note(f"baseline   with {label(kept)}, kept before")
    screen = ExperimentScreen("ab", path)
    verdict = screen.run(
        lambda: ab_test(
            path, runner, trial, scope, screen, min_gain=min_gain, anew=anew, command=screen.command
        )
    )
    if isinstance(verdict, ReleaseVerdict):
        prove = _prove_command(verdict, request, program)
        print_result(verdict, show_releases, verdict, path, prove)
        return int(not verdict.holds)
    print_result(verdict, show, verdict, path)
    return int(verdict.decision != "keep")


def _file(libraries: tuple[Path, ...]) -> Path | None:
    from nccltune.model.errors import InputError

    path = libraries[0] if libraries else None
    if path is not None and not path.is_file():
        raise InputError("no such library", where=str(path), hint="name a libnccl.so.2")
    return path


def _prove_command(verdict: ReleaseVerdict, request: LaunchRequest, program: list[str]) -> str:
    """Return the command that proves the candidates of a verdict with the second release."""
    from nccltune.measure.experiments.ab.settings import LIBRARY, PRELOAD, applied

    library, study = str(verdict.settings[LIBRARY]), str(verdict.candidate)
    if program and request.launcher is None:
        preload = applied(os.environ, {LIBRARY: library})[PRELOAD]
        return f"{PRELOAD}={shlex.quote(preload)} " + shlex.join(
            ["nccltune", "verify", study, "--", *program]
        )
    words = ["nccltune", "verify", study, "--nccl", library]
    for name, value in _placement(request):
        words += [f"--{name.replace('_', '-')}", value]
    words += ["--mps"] if request.mps else []
    words += [word for setting in request.settings for word in ("--set", setting)]
    return shlex.join(words)


def _runner(
    program: list[str],
    settings: dict[str, str | None],
    request: LaunchRequest,
    measured: Mapping[str, Any],
    seed: int,
) -> TrialRunner:
    """Return the runner of a recording, of the bench, or of a program. Raises InputError."""
    from nccltune.app.bench_launch import keys_of, launch_of, program_launch_of
    from nccltune.cli.requests import collectives_from, site, sizes_from
    from nccltune.examples import recording
    from nccltune.measure.bench.conditions import CallKind
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
        low, high = sizes_from(measured["sizes"])
        collectives = collectives_from(measured["collectives"])
        calls = [
            CallKind(registered=registered, graph=graph)
            for graph in sorted({False, measured["graphs"]})
            for registered in sorted({False, measured["registered"]})
        ]
        launch = launch_of(request, site())
        return BenchRunner(launch, collectives, low, high, settings, calls=calls)
    for name in (*measured, "emulate_nodes", "ranks_per_gpu", "mps", "nccl"):
        if given(name) or (name == "nccl" and request.nccl is not None):
            raise InputError(
                "is for our bench, without a PROGRAM", where=f"--{name.replace('_', '-')}"
            )
    under = program_launch_of(request, site())
    return ProgramRunner(program, os.environ, settings, with_launcher=under)


def _what(request: LaunchRequest, measured: Mapping[str, Any]) -> list[str]:
    """Return the options that define the measurement. They distinguish the tests of one study."""
    found = [f"{name}={value}" for name, value in measured.items() if given(name)]
    found += [f"{name}={value}" for name, value in _placement(request)]
    found += [] if request.nccl is None else [f"nccl={request.nccl.absolute()}"]
    found += ["mps"] if request.mps else []
    # `--set` counts too, because another image has another NCCL.
    return [*found, *(f"set={setting}" for setting in request.settings)]


def _placement(request: LaunchRequest) -> list[tuple[str, str]]:
    """Return the options that are given of those that place the ranks, with their values."""
    names = ("launcher", "nodes", "gpus", "emulate_nodes", "ranks_per_gpu")
    return [(name, str(value)) for name in names if (value := getattr(request, name)) is not None]
