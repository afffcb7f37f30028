# SPDX-License-Identifier: Apache-2.0
"""`nccltune sweep`: measure where NCCL's choices cost time, and only there."""

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from nccltune.cli.bench_options import (
    command_line,
    launch_from,
    launch_options,
    platform_of_bench,
    show_start,
    terminated_like_interrupted,
)
from nccltune.cli.context import budget_option, study_option
from nccltune.cli.output import json_option, print_json, stderr
from nccltune.cli.sweep_screen import as_data, show_plan, show_result
from nccltune.cli.sweep_ways import other_way, ways_options
from nccltune.cli.what_options import wanted_from, what_options

if TYPE_CHECKING:
    from nccltune.analyze.timings import Timings
    from nccltune.measure.bench import Launch
    from nccltune.measure.conversation import Hello
    from nccltune.measure.plan import Plan
    from nccltune.measure.record import Record, Summary
    from nccltune.measure.sweep import Outcome, Wanted
    from nccltune.model.choice import AnyChoice
    from nccltune.model.platform import Platform

EPILOG = """\b
Examples:
  nccltune sweep -o studies/h200x4 --emulate-nodes 4
  nccltune sweep -o studies/try --replay examples/h200x4-as-4-nodes --budget 10
  nccltune sweep --sendrecv -o studies/h200x4
"""
_EXHAUSTIVE_ROUNDS = 8


@click.command(epilog=EPILOG)
@study_option("The study to measure into; an interrupted sweep of it goes on.", required=True)
@what_options
@launch_options
@ways_options
@budget_option()
@click.option("--exhaustive", is_flag=True, help="Measure the full grid instead: the yardstick.")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    help=f"Rounds of the full grid, pairs of --sendrecv  [default: {_EXHAUSTIVE_ROUNDS}; 6]",
)
@click.option("--dry-run", is_flag=True, help="Say what would be measured first, and how long.")
@json_option()
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
    from nccltune.model.errors import InputError

    code = other_way(
        context,
        path,
        options,
        budget=budget,
        exhaustive=exhaustive,
        rounds=rounds,
        dry_run=dry_run,
        as_json=as_json,
    )
    if code is not None:
        return code
    if rounds is not None and not exhaustive:
        raise InputError("is for --exhaustive; a sweep decides by itself", where="--rounds")
    wanted = wanted_from(options)._replace(
        rounds=(rounds or _EXHAUSTIVE_ROUNDS) if exhaustive else None, budget_s=budget
    )
    launch = launch_from(options)
    told = partial(show_plan, as_json=as_json) if dry_run else None
    with terminated_like_interrupted():
        swept = run_sweep(path, launch, wanted, command_line(context), instead=told)
    if isinstance(swept, int):
        return swept
    if as_json:
        print_json(as_data(swept))
    else:
        show_result(swept, path, decide)
    return 0


def _start(platform: "Platform", hello: "Hello") -> None:
    show_start(platform, hello.nccl.came_from)


class Swept(NamedTuple):
    """A sweep that came to its end, or to that of its budget."""

    platform: "Platform"
    plan: "Plan"
    outcome: "Outcome"
    summary: "Summary"


def run_sweep(
    path: Path,
    launch: "Launch",
    wanted: "Wanted",
    again: str,
    *,
    start: "Callable[[Platform, Hello], None]" = _start,
    meanwhile: "Callable[[], None]" = lambda: None,
    instead: "Callable[[Platform, Plan], None] | None" = None,
    channels: Literal["default", "any"] = "default",
) -> Swept | int:
    """Sweep into the study at `path` and show progress; return what was found, or the exit code of
    an interruption. `again` is the command that resumes, `start` shows what is measured on,
    `meanwhile` is called while the bench starts, `channels` is the option of `tune`. With `instead`
    the plan is given to it and nothing is measured or written: 0."""
    from nccltune.cli.progress import watching
    from nccltune.launch.process import signal_of
    from nccltune.measure.bench import Bench
    from nccltune.measure.hardware import keep_hardware, settings_for, written_by_nccl
    from nccltune.measure.identity import check_same
    from nccltune.measure.record import Record, alone
    from nccltune.measure.survey import make_plan, survey
    from nccltune.measure.sweep import Sweep
    from nccltune.model.errors import LaunchError, StudyError
    from nccltune.model.scale import Scale
    from nccltune.model.study import Study

    if path.is_file():
        raise StudyError("is a file, not a study folder", where=str(path))
    with contextlib.ExitStack() as stack:
        hardware = stack.enter_context(written_by_nccl(launch))
        bench = stack.enter_context(
            Bench(
                launch,
                meanwhile=partial(_meanwhile, meanwhile),
                settings=settings_for(hardware),
            )
        )
        hello = bench.hello
        platform = platform_of_bench(path, launch, bench)
        check_same(Study(path), platform)
        surveys = survey(bench, wanted)
        plan = make_plan(
            surveys,
            wanted,
            Scale(hello.nodes, hello.ranks),
            partial(decide, channels=channels),
            chunks=hello.can.chunk,
        )
        if instead is not None:
            instead(platform, plan)
            return 0
        study = Study.create(path)
        stack.enter_context(alone(study))
        if not study.platform_path.exists():
            study.write_json(study.platform_path, platform)
        keep_hardware(study, launch, hardware)
        record = Record(study, hello)
        record.keep_tables({item.grid.collective: item.costs for item in surveys})
        start(platform, hello)
        watcher = stack.enter_context(watching(stderr(), hello.replay))
        sweep = Sweep(plan, bench, record, wanted, watcher)
        try:
            outcome = sweep.run()
        except (KeyboardInterrupt, LaunchError, StudyError) as stop:
            stack.close()
            _stopped(sweep.outcome, plan, record, again, hello.replay)
            if not isinstance(stop, KeyboardInterrupt):
                raise
            return 128 + signal_of(stop)
    summary = _summary(outcome.reason, outcome, plan, hello.replay, again)
    record.write_summary(summary)
    return Swept(platform, plan, outcome, summary)


def _meanwhile(also: "Callable[[], None]") -> None:
    """While the GPUs are made ready: `also`, and import what the sweep will need."""
    import importlib

    also()
    for name in ("nccltune.tune.search", "scipy.special", "rich.live", "rich.table"):
        importlib.import_module(name)


def decide(
    timings: "Timings", channels: Literal["default", "any"] = "default"
) -> "Mapping[int, AnyChoice]":
    """Return what the rules would choose at every size, if they were made now with `tune
    --channels`: of what looks better, however few timings it has, since that is worth measuring.
    """
    from nccltune.model.choice import DEFAULT
    from nccltune.tune.result import TuneOptions
    from nccltune.tune.search import search

    return {
        decision.bytes: decision.choice or DEFAULT
        for group in search([timings], TuneOptions(channels=channels, include_unsure=True))
        for decision in group.decisions
    }


def _summary(
    reason: str, outcome: "Outcome", plan: "Plan", replay: str | None, again: str
) -> "Summary":
    from nccltune.measure.record import Summary

    return Summary(
        reason=reason,
        points=outcome.points,
        known=outcome.known,
        failed=len(outcome.failures),
        seconds=outcome.seconds,
        gain_left=plan.gain_left,
        replay=replay,
        command=again,
    )


def _stopped(
    outcome: "Outcome", plan: "Plan", record: "Record", again: str, replay: str | None
) -> None:
    """Say what is kept and how to go on. The disk may be why it stopped: nothing more is tried."""
    from nccltune.model.errors import StudyError

    with contextlib.suppress(StudyError):
        record.write_summary(_summary("interrupted", outcome, plan, replay, again))
    note = stderr()
    kept = outcome.points + outcome.known
    note.print(f"stopped; all {kept} points so far are kept in {record.study.path}", markup=False)
    note.print(f"resume:  {again}", markup=False, soft_wrap=True)
