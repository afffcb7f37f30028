# SPDX-License-Identifier: Apache-2.0
"""`nccltune try`: a proposed setting against how it is, in turn, kept only if it helps."""

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.bench_options import (
    LAUNCH,
    check_pods,
    command_line,
    launch_from,
    launch_options_with,
    program_under_from,
    recording,
    terminated_like_interrupted,
)
from nccltune.cli.context import (
    budget_option,
    given,
    min_gain_option,
    seed_option,
    study_option,
)
from nccltune.cli.output import json_option, print_json, stderr
from nccltune.cli.ticker import ticking
from nccltune.cli.what_options import collectives_from, collectives_option, sizes_from, sizes_option

if TYPE_CHECKING:
    from nccltune.measure.conversation import Hello
    from nccltune.measure.trial.driver import Driver, Runner, Status, Wanted
    from nccltune.measure.trial.judge import Verdict
    from nccltune.measure.trial.runs import Trial
    from nccltune.model.platform import Platform
    from nccltune.model.study import Study

EPILOG = """\b
Examples:
  nccltune try NCCL_NET_GDR_READ=0 --launcher openmpi --hosts a,b --gpus 4 -- all_reduce_perf -e 1G
  nccltune try NCCL_P2P_LEVEL=PXB -- all_reduce_perf -b 1M -e 1G -f 2 -g 4
  nccltune try --unset NCCL_ALGO -o studies/a -- mpirun -n 8 all_reduce_perf -b 1K -e 1G -f 2
  nccltune try NCCL_IB_TC=106 --launcher kubernetes --image nccl-tests:1 --nodes 2 \\
      -- all_reduce_perf -b 1M -e 1G -f 2
"""
CONF = "try.conf"
RESULT = "try.json"
_ROUNDS = 8
_SIZES = "4K-256M"


@click.command(epilog=EPILOG)
@click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, metavar="NAME=VALUE... [-- PROGRAM ARGS...]"
)
@click.option("--unset", multiple=True, metavar="NAME", help="Try it without this setting.")
@study_option(
    "The study that keeps every timing; an interrupted trial goes on there.",
    default=Path("studies/try"),
    show_default=True,
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=_ROUNDS,
    show_default=True,
    help="Rounds of a process with the setting and one without; 4 are the least that decide.",
)
@min_gain_option("What a range of sizes must gain for the setting to be kept.")
@collectives_option("Without a PROGRAM: ")
@sizes_option(_SIZES, "Without a PROGRAM: ")
@launch_options_with("nccltune, or with the PROGRAM")
@budget_option()
@click.option("--anew", is_flag=True, help="Leave out the rounds measured before.")
@seed_option()
@json_option()
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
    as_json: bool,
    **options: Any,
) -> int:
    """Measure a proposed setting against how it is now, interleaved, and keep it only where it
    helps beyond noise.

    Each round starts two processes, one with the settings and one without, in random order. A
    PROGRAM is any that prints tables of nccl-tests, started as it is or by --launcher (in pods:
    held for all rounds); without one our bench measures. Exit code 0 if the setting is worth
    keeping (STUDY/try.conf has it, and nccltune env prints it), 1 if not, with the reason.
    """
    from nccltune.measure.trial.driver import Wanted
    from nccltune.measure.trial.replay import ReplayRunner
    from nccltune.measure.trial.settings import read_settings, split_words

    settings_words, program = split_words(words)
    settings = read_settings(settings_words, unset, os.environ)
    runner = _runner(context, program, settings, options, seed)
    wanted = Wanted(rounds, budget, seed)
    trial = _trial(context, path, settings, program, options)
    if isinstance(runner, ReplayRunner):
        runner.choose(trial.of("default"), trial.of("set"))
    again = _again(context, settings_words, program)
    with terminated_like_interrupted():
        verdict = _measure(path, runner, trial, wanted, min_gain, again, anew=anew)
    if isinstance(verdict, int):
        return verdict
    if as_json:
        print_json(verdict)
    else:
        from nccltune.cli.try_screen import show

        show(verdict, path)
    return int(verdict.decision != "keep")


def _runner(
    context: click.Context,
    program: list[str],
    settings: dict[str, str | None],
    options: dict[str, Any],
    seed: int,
) -> "Runner":
    """What runs a process, by what was asked for. Raises InputError for what does not go
    together."""
    from nccltune.measure.trial.bench import BenchRunner
    from nccltune.measure.trial.program import ProgramRunner
    from nccltune.measure.trial.replay import ReplayRunner
    from nccltune.model.errors import InputError

    launch = {name: options[name] for name in LAUNCH}
    check_pods(launch["launcher"], launch["image"], launch["settings"])
    if launch["replay"] is not None:
        return ReplayRunner(recording(launch["replay"]), seed)
    if not program:
        low, high = sizes_from(options["sizes"])
        collectives = collectives_from(options["collectives"])
        return BenchRunner(launch_from(launch), collectives, low, high, settings)
    for name in ("collectives", "sizes", "emulate_nodes", "nccl"):
        if given(context, name):
            option = f"--{name.replace('_', '-')}"
            raise InputError("is for our bench, without a PROGRAM", where=option)
    return ProgramRunner(program, os.environ, settings, under=program_under_from(launch))


def _again(context: click.Context, settings: list[str], program: list[str]) -> str:
    """The command that resumes, with the `--` that click took off."""
    words = shlex.split(command_line(context))
    options = words[: len(words) - len(settings) - len(program)]
    return shlex.join([*options, *settings, *(["--", *program] if program else [])])


def _trial(
    context: click.Context,
    path: Path,
    settings: dict[str, str | None],
    program: list[str],
    options: dict[str, Any],
) -> "Trial":
    """What is compared. Settings that earlier trials have kept are there on both sides."""
    from nccltune.measure.trial.runs import Trial
    from nccltune.measure.trial.settings import label

    kept = _kept(path)
    baseline = {name: value for name, value in kept.items() if name not in settings}
    if baseline:
        stderr().print(f"baseline   with {label(baseline)}, kept before", markup=False)
    told = [
        f"{name}={options[name]}"
        for name in ("collectives", "sizes", "launcher", "nodes", "hosts", "gpus", "emulate_nodes")
        if given(context, name)
    ]
    # Another image has another NCCL.
    told += [f"image={options['image']}"] if options["image"] is not None else []
    told += [f"set={setting}" for setting in options["settings"]]
    return Trial(settings=settings, baseline=baseline, what=[*told, *program])


def _kept(path: Path) -> dict[str, str | None]:
    from nccltune.formats.nccl_conf import read_conf

    conf = path / CONF
    return {**read_conf(conf)} if conf.is_file() else {}


def _measure(
    path: Path,
    runner: "Runner",
    trial: "Trial",
    wanted: "Wanted",
    min_gain: float,
    again: str,
    *,
    anew: bool,
) -> "Verdict | int":
    """Measure into the study; the verdict, or the exit code of an interruption."""
    from nccltune.measure.identity import check_same
    from nccltune.measure.record import alone
    from nccltune.measure.trial.driver import Driver
    from nccltune.measure.trial.runs import Runs
    from nccltune.model.errors import LaunchError, PlatformError, StudyError
    from nccltune.model.study import Study

    if path.is_file():
        raise StudyError("is a file, not a study folder", where=str(path))
    with contextlib.ExitStack() as stack:
        told = stack.enter_context(ticking(stderr(), "try", _words))
        study = Study(path)
        driver = Driver(runner, Runs(study), trial, wanted, told, anew=anew)
        hello = driver.look()
        platform = None if hello is None else _platform(path, hello, runner)
        if platform is not None:
            check_same(study, platform)
            study = Study.create(path)
        stack.enter_context(alone(study))
        if platform is not None:
            if not study.platform_path.exists():
                study.write_json(study.platform_path, platform)
            driver.keep_look()
        try:
            outcome = driver.run()
        except (KeyboardInterrupt, LaunchError, PlatformError, StudyError) as stop:
            stack.close()
            return _stopped(stop, driver, study, again)
        return _keep(study, driver, trial, outcome.reason, min_gain, again)


def _platform(path: Path, hello: "Hello", runner: "Runner") -> "Platform":
    from datetime import UTC, datetime

    from nccltune.measure.identity import platform_of
    from nccltune.measure.trial.replay import ReplayRunner

    return platform_of(
        hello,
        path.resolve().name,
        environment=os.environ,
        today=datetime.now(UTC).date().isoformat(),
        recording=runner.study.platform() if isinstance(runner, ReplayRunner) else None,
    )


def _stopped(stop: BaseException, driver: "Driver", study: "Study", again: str) -> int:
    """Say what is kept and how to go on."""
    from nccltune.launch.process import signal_of

    note = stderr()
    rounds = len(driver.outcome("interrupted").rounds)
    note.print(
        f"stopped; all timings so far ({rounds} whole rounds) are kept in {study.path}",
        markup=False,
    )
    note.print(f"resume:  {again}", markup=False, soft_wrap=True)
    if not isinstance(stop, KeyboardInterrupt):
        raise stop
    return 128 + signal_of(stop)


def _keep(
    study: "Study", driver: "Driver", trial: "Trial", reason: str, min_gain: float, again: str
) -> "Verdict":
    """Judge, and write the result and the lines to deploy. Lines of the same settings that are no
    longer confirmed are taken away."""
    import msgspec

    from nccltune.formats.nccl_conf import render_conf
    from nccltune.measure.trial.judge import judge
    from nccltune.measure.trial.runs import Runs

    verdict = judge(trial, Runs(study).samples(), driver.outcome(reason), min_gain=min_gain)
    replay = study.platform().replay if study.platform_path.exists() else None
    verdict = msgspec.structs.replace(verdict, command=again, replay=replay)
    study.write_json(study.path / RESULT, verdict)
    conf, kept = study.path / CONF, _kept(study.path)
    wanted = dict(trial.baseline)
    if verdict.decision == "keep":
        wanted |= {name: value for name, value in trial.settings.items() if value is not None}
    elif verdict.decision == "open":
        wanted = kept
    values = {name: value for name, value in wanted.items() if value is not None}
    if values and values != kept:
        comments = [f"Settings kept by nccltune try: {study.platform().title}", verdict.why]
        study.write_text(conf, render_conf(values, comments))
    elif not values:
        conf.unlink(missing_ok=True)
    return verdict


def _words(status: "Status") -> str:
    from nccltune.cli.progress import seconds_words

    side = "with it" if status.side == "set" else "without it"
    return (
        f"process {status.process + 1} of {status.processes}  {side}  "
        f"{seconds_words(status.left_s)} left"
    )
