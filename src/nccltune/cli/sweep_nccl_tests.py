# SPDX-License-Identifier: Apache-2.0
"""`nccltune sweep --with-nccl-tests`: the samples of a site's own binaries, a process a choice."""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from nccltune.cli.bench_options import show_start
from nccltune.cli.manner import Manner
from nccltune.cli.output import next_step, print_json, stderr, stdout, styled
from nccltune.cli.ticker import ticking

if TYPE_CHECKING:
    from nccltune.measure.nccl_tests.binaries import Site
    from nccltune.measure.nccl_tests.driver import NcclTests, Outcome, Status, Wanted
    from nccltune.measure.record import Summary
    from nccltune.model.platform import Platform
    from nccltune.model.study import Study


def drive(path: Path, site: "Site", wanted: "Wanted", manner: Manner) -> int:
    """Sweep into the study at `path`; the exit code."""
    from datetime import UTC, datetime

    from nccltune.measure.identity import check_same, platform_of
    from nccltune.measure.nccl_tests.driver import NcclTests
    from nccltune.measure.record import alone
    from nccltune.model.errors import LaunchError, PlatformError, StudyError
    from nccltune.model.study import Study

    if path.is_file():
        raise StudyError("is a file, not a study folder", where=str(path))
    for collective in wanted.collectives:
        site.binary(collective)
    with contextlib.ExitStack() as stack:
        told = stack.enter_context(ticking(stderr(), "nccl-tests", _words))
        study = Study(path)
        sweep = NcclTests(site, wanted, study, os.environ, told)
        hello = sweep.hello()
        platform = platform_of(
            hello,
            path.resolve().name,
            environment=sweep.environment(),
            today=datetime.now(UTC).date().isoformat(),
            emulated_nodes=hello.nodes if sweep.emulated_nodes else None,
        )
        check_same(study, platform)
        if manner.dry_run:
            _show_plan(platform, sweep, wanted, manner.as_json)
            return 0
        Study.create(path)
        stack.enter_context(alone(study))
        if not study.platform_path.exists():
            study.write_json(study.platform_path, platform)
        show_start(platform, f"nccl-tests {hello.version}")
        sweep.recall()
        try:
            outcome = sweep.run()
        except (KeyboardInterrupt, LaunchError, PlatformError, StudyError) as stop:
            stack.close()
            return _stopped(stop, sweep, study, manner)
    summary = _summary(outcome, manner)
    study.write_json(study.path / "sweep.json", summary)
    _show(outcome, summary, platform, study, manner.as_json)
    return 0


def _words(status: "Status") -> str:
    from nccltune.cli.progress import seconds_words
    from nccltune.model.choice import choice_label

    task = status.task
    return (
        f"process {status.done + 1} of {status.processes}  {task.collective.value} "
        f"{choice_label(task.choice)} round {task.round}  {seconds_words(status.left_s)} left"
    )


def _summary(outcome: "Outcome", manner: Manner) -> "Summary":
    from nccltune.measure.record import Summary

    return Summary(
        reason=outcome.reason,
        points=outcome.points,
        known=outcome.known,
        failed=len(outcome.left_out),
        seconds=outcome.seconds,
        gain_left=None,
        replay=None,
        command=manner.again,
    )


def _stopped(stop: BaseException, sweep: "NcclTests", study: "Study", manner: Manner) -> int:
    """Say what is kept and how to go on. The disk may be why it stopped: nothing more is tried."""
    from nccltune.launch.process import signal_of
    from nccltune.model.errors import StudyError

    outcome = sweep.outcome("interrupted")
    with contextlib.suppress(StudyError):
        study.write_json(study.path / "sweep.json", _summary(outcome, manner))
    note = stderr()
    kept = outcome.points + outcome.known
    note.print(f"stopped; all {kept} points so far are kept in {study.path}", markup=False)
    note.print(f"resume:  {manner.again}", markup=False, soft_wrap=True)
    if not isinstance(stop, KeyboardInterrupt):
        raise stop
    return 128 + signal_of(stop)


def _show_plan(platform: "Platform", sweep: "NcclTests", wanted: "Wanted", as_json: bool) -> None:
    from nccltune.measure.nccl_tests.driver import FIRST_GUESS_S
    from nccltune.model.choice import choice_label

    tasks = sweep.plan()
    seconds = FIRST_GUESS_S * len(tasks)
    choices = {
        collective.value: [choice_label(choice) for choice in sweep.choices(collective)]
        for collective in wanted.collectives
    }
    if as_json:
        print_json(
            {
                "platform": platform,
                "choices": choices,
                "processes": len(tasks),
                "total_seconds": seconds,
            }
        )
        return
    out = stdout()
    out.print(f"platform   {platform.title}")
    for name, labels in choices.items():
        out.print(f"{name:<14}{' '.join(labels)}")
    out.print(
        f"Would start {len(tasks)} processes in {wanted.rounds} rounds, some {seconds:.2g} s. "
        "Nothing was measured or written."
    )


def _show(
    outcome: "Outcome", summary: "Summary", platform: "Platform", study: "Study", as_json: bool
) -> None:
    from nccltune.measure.nccl_tests.driver import words_of
    from nccltune.model.choice import choice_label
    from nccltune.model.scale import count

    if as_json:
        left_out = [
            {"collective": collective, "choice": choice_label(choice), "why": why}
            for collective, choice, why in outcome.left_out
        ]
        print_json({"platform": platform, "sweep": summary, "left_out": left_out})
        return
    out = stdout()
    before = f" and {outcome.known} from before" if outcome.known else ""
    ended = " · the budget is spent: the same command goes on" if outcome.reason == "budget" else ""
    out.print(
        f"nccl-tests {count(outcome.points, 'point')}{before} in {outcome.seconds:.1f} "
        f"seconds{ended}"
    )
    for text in words_of(outcome.left_out):
        out.print(styled(("left out", "yellow"), f"   {text}"))
    out.print(f"study      {study.path}")
    next_step("nccltune tune", study.path)
