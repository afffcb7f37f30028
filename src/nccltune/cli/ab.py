# SPDX-License-Identifier: Apache-2.0
"""`nccltune ab`: A/B-test a setting in alternating runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import LAUNCH, binds, option, options, output_option
from nccltune.cli.output import (
    hanging,
    hint,
    is_json,
    next_step,
    note,
    print_json,
    print_result,
    stdout,
    styled,
)
from nccltune.cli.progress import seconds_words
from nccltune.cli.verb import given, verb
from nccltune.model.numbers import significant
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes
from nccltune.report.words import time_text

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.app.bench_launch import LaunchRequest
    from nccltune.measure.experiments.ab.experiment import TrialRunner, TrialScope
    from nccltune.measure.experiments.ab.judge import CollectiveGain, SettingGain, TrialVerdict
    from nccltune.measure.experiments.ab.runs import SettingTrial

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
@binds(request=LAUNCH, scope="nccltune.measure.experiments.ab.experiment:TrialScope")
def command(
    words: tuple[str, ...],
    unset: tuple[str, ...],
    path: Path,
    request: LaunchRequest,
    scope: TrialScope,
    collectives: str,
    sizes: str,
    min_gain: float,
    anew: bool,
    dry_run: bool,
) -> int:
    """Measure with a setting and without it, in alternating runs; keep it only if it helps.

    Each round starts two processes, one with the settings and one without, in random order. A
    PROGRAM is any that prints tables of nccl-tests, started as it is or by --launcher (in pods:
    held for all rounds); without one our bench measures. Exit code 0 if the setting is worth
    keeping (STUDY/try.conf has it, and nccltune env prints it), 1 if not, with the reason.
    """
    from nccltune.app.ab import ab_test, trial_of
    from nccltune.cli.experiment_screen import ExperimentScreen
    from nccltune.measure.experiments.ab.settings import label, read_settings, split_words

    settings_words, program = split_words(words)
    settings = read_settings(settings_words, unset, os.environ)
    measured = {"collectives": collectives, "sizes": sizes}
    trial = trial_of(path, settings, [*_what(request, measured), *program])
    if dry_run:
        show_plan(trial, program, scope.rounds, path)
        return 0
    runner = _runner(program, settings, request, measured, scope.seed)
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
    request: LaunchRequest,
    measured: Mapping[str, str],
    seed: int,
) -> TrialRunner:
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
        low, high = sizes_from(measured["sizes"])
        collectives = collectives_from(measured["collectives"])
        return BenchRunner(launch_of(request, site()), collectives, low, high, settings)
    for name in ("collectives", "sizes", "emulate_nodes", "ranks_per_gpu", "mps", "nccl"):
        if given(name):
            raise InputError(
                "is for our bench, without a PROGRAM", where=f"--{name.replace('_', '-')}"
            )
    under = program_launch_of(request, site())
    return ProgramRunner(program, os.environ, settings, with_launcher=under)


def _what(request: LaunchRequest, measured: Mapping[str, str]) -> list[str]:
    """Return the options that define the measurement. They distinguish the tests of one study."""
    found = [f"{name}={value}" for name, value in measured.items() if given(name)]
    found += [
        f"{name}={value}"
        for name in ("launcher", "nodes", "gpus", "emulate_nodes", "ranks_per_gpu")
        if (value := getattr(request, name)) is not None
    ]
    # `--set` counts too, because another image has another NCCL.
    return [*found, *(f"set={setting}" for setting in request.settings)]


_INDENT = 11
_TABLE_WIDTH = 72
"""The width of the table in columns. A narrower terminal shows only the gains."""
_EFFECT = {"faster": "faster", "slower": "slower", "same": ""}
_STYLE = {"keep": "bold green", "failed": "bold red", "open": "bold"}
_LEAD = {
    "keep": "keep",
    "mixed": "mixed",
    "harms": "not kept",
    "no help": "not kept",
    "failed": "failed",
    "open": "open",
}


def show_plan(trial: SettingTrial, program: list[str], rounds: int, study: Path) -> None:
    """Print the processes that a test would run."""
    from nccltune.measure.experiments.ab.settings import label

    if is_json():
        print_json(
            {
                "settings": trial.settings,
                "baseline": trial.baseline,
                "program": program,
                "rounds": rounds,
                "processes": 2 * rounds,
                "study": str(study),
            }
        )
        return
    out = stdout()
    hanging(out, "setting    ", _INDENT, label(trial.settings))
    hanging(out, "program    ", _INDENT, shlex.join(program) or "our bench")
    out.print(
        f"Would start up to {2 * rounds} processes in {rounds} rounds, with and without it. "
        "Nothing was measured or written."
    )


def show(verdict: TrialVerdict, study: Path) -> None:
    """Print the verdict first, then its evidence."""
    from nccltune.measure.experiments.ab.judge import never_read, title

    out = stdout()
    style = _STYLE.get(verdict.decision, "bold yellow")
    lead = (f"{_LEAD[verdict.decision]:<{_INDENT}}", style)
    hanging(out, lead, _INDENT, f"{title(verdict)}: {verdict.why}")
    how = "replay" if verdict.replay else "measured"
    hanging(out, f"{how:<{_INDENT}}", _INDENT, _measured(verdict))
    unread = never_read(verdict)
    if unread:
        hanging(
            out,
            ("not read   ", "yellow"),
            _INDENT,
            f"NCCL's log does not show that it read {' and '.join(unread)}: misspelt, unknown to "
            "this NCCL, not needed in this run, or not handed on to its processes",
        )
    for words in verdict.changed:
        hanging(out, "changed    ", _INDENT, words)
    for item in verdict.collectives:
        _table(out, item)
    if verdict.decision == "mixed":
        hanging(
            out, "use it     ", _INDENT, "only for jobs of the calls that it makes faster; "
            "nothing was written to deploy"
        )  # fmt: skip
    if verdict.decision == "keep":
        for name, value in verdict.settings.items():
            line = f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
            out.print(styled("deploy     ", (line, "bold")), soft_wrap=True)
    out.print(f"study      {study}", soft_wrap=True)
    if verdict.decision == "keep" and any(verdict.settings.values()):
        next_step("nccltune env --format nccl.conf", study)
    elif verdict.decision == "open":
        hint("next: the same command goes on where it stopped")


def _measured(verdict: TrialVerdict) -> str:
    before = f" ({verdict.known} from before)" if verdict.known else ""
    ended = "; the budget is spent: the same command goes on" if verdict.reason == "budget" else ""
    return (
        f"{count(verdict.rounds, 'round')} with and without it in alternating order{before}, "
        f"{count(verdict.processes, 'process')} in {seconds_words(verdict.seconds)}{ended}"
    )


def _table(out: Console, item: CollectiveGain) -> None:
    noise = "noise unknown" if item.noise is None else f"A/A noise {100 * item.noise:.2g} %"
    out.print(
        f"\n{item.collective.prose}, {item.scale}: {_interval(item.overall)} over all sizes, "
        f"{noise}"
    )
    if out.is_terminal and out.width < _TABLE_WIDTH:
        for size in item.sizes:
            gain = size.gain
            words = f"{gain.gain:.2f}x  {gain.low:.2f}-{gain.high:.2f}  {_EFFECT[size.effect]}"
            out.print(f"{format_bytes(size.bytes):>10}  {words}".rstrip())
        return
    out.print(f"{'size':>10}{'default':>12}{'with it':>12}{'GB/s':>8}{'gain':>8}   95 % CI")
    for size in item.sizes:
        effect = f"  {_EFFECT[size.effect]}".rstrip()
        gain = size.gain
        out.print(
            f"{format_bytes(size.bytes):>10}{time_text(size.default_us):>12}"
            f"{time_text(size.set_us):>12}{significant(size.set_gb_per_s):>8}"
            f"{gain.gain:>7.2f}x   {gain.low:.2f}-{gain.high:.2f}{effect}"
        )


def _interval(gain: SettingGain) -> str:
    unsure = "" if gain.known else ", few rounds"
    return f"{gain.gain:.2f}x ({gain.low:.2f}-{gain.high:.2f}{unsure})"
