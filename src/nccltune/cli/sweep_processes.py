# SPDX-License-Identifier: Apache-2.0
"""What sweeps share whose settings need processes of their own: run in a study, be interrupted,
keep the result."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar, cast

from nccltune.cli.bench_options import platform_of_bench, show_start
from nccltune.cli.manner import Manner
from nccltune.cli.output import stderr, stdout
from nccltune.cli.ticker import ticking

if TYPE_CHECKING:
    from nccltune.measure.bench import Bench, Launch
    from nccltune.measure.p2p.session import Process, Starter, Status
    from nccltune.measure.p2p.verdict import Verdict as Raced
    from nccltune.measure.sendrecv.fairness import FairnessVerdict
    from nccltune.measure.sendrecv.verdict import Verdict as Compared
    from nccltune.model.platform import Platform
    from nccltune.model.study import Study

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
Told = Callable[["Status"], None]


class Driving(Protocol[V_co]):
    """A driver of `measure.p2p` or `measure.sendrecv`."""

    def run(self) -> V_co:
        """Run until it is decided or the budget is spent."""

    def verdict(self, reason: str) -> V_co:
        """What can be said so far."""


class Way(NamedTuple, Generic[V]):
    """One way to sweep: the `name` of what runs, the driver for a study and its first process,
    what a dry run shows of them, what is said before the start, the words of where it stands, and
    who writes the result, whole or interrupted."""

    name: str
    driver: "Callable[[Study, Process, Told], Driving[V]]"
    show_plan: "Callable[[Platform, Study, Process], None]"
    warn: "Callable[[Platform], None]"
    words: "Callable[[Status], str]"
    write: "Callable[[Study, V], V]"


class Done(NamedTuple, Generic[V]):
    """A sweep that came to its end, or to that of its budget."""

    study: "Study"
    platform: "Platform"
    verdict: V


def show_head(verdict: "Raced | Compared | FairnessVerdict", name: str) -> None:
    """The first line of a result: how many processes of a sweep called `name`, and how well one
    repeats."""
    from nccltune.cli.progress import seconds_words

    before = f" and {verdict.known} from before" if verdict.known else ""
    ended = " · the budget is spent: the same command goes on" if verdict.reason == "budget" else ""
    recorded = " recorded" if verdict.replay else ""
    stdout().print(
        f"{'replay' if verdict.replay else name:<11}{verdict.processes} processes{before} in "
        f"{seconds_words(verdict.seconds)}{recorded} · one start's mean repeats within "
        f"{100 * verdict.noise:.2g} %{ended}"
    )


def run_in_study(
    path: Path, launch: "Launch", start: "Starter", way: Way[V], manner: Manner
) -> Done[V] | int:
    """Sweep into the study at `path`; the exit code of a dry run or an interruption."""
    from nccltune.measure.identity import check_same
    from nccltune.measure.p2p.settings import DEFAULT
    from nccltune.measure.record import alone
    from nccltune.model.errors import LaunchError, StudyError
    from nccltune.model.study import Study

    if path.is_file():
        raise StudyError("is a file, not a study folder", where=str(path))
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(start(DEFAULT, 0))
        # Only its hello is asked for.
        platform = platform_of_bench(path, launch, cast("Bench", first))
        study = Study(path)
        check_same(study, platform)
        if manner.dry_run:
            way.show_plan(platform, study, first)
            return 0
        study = Study.create(path)
        stack.enter_context(alone(study))
        if not study.platform_path.exists():
            study.write_json(study.platform_path, platform)
        show_start(platform, first.hello.nccl.came_from)
        way.warn(platform)
        name = "replay" if platform.replay else way.name
        told = stack.enter_context(ticking(stderr(), name, way.words))
        driver = way.driver(study, first, told)
        try:
            verdict = driver.run()
        except (KeyboardInterrupt, LaunchError, StudyError) as stop:
            stack.close()
            return _stopped(stop, driver, way, study, manner)
    return Done(study, platform, way.write(study, verdict))


def _stopped(
    stop: BaseException, driver: Driving[V], way: Way[V], study: "Study", manner: Manner
) -> int:
    """Say what is kept and how to go on. The disk may be why it stopped: nothing more is tried."""
    from nccltune.launch.process import signal_of
    from nccltune.model.errors import StudyError

    verdict = driver.verdict("interrupted")
    with contextlib.suppress(StudyError):
        way.write(study, verdict)
    note = stderr()
    note.print(f"stopped; all timings so far are kept in {study.path}", markup=False)
    note.print(f"resume:  {manner.again}", markup=False, soft_wrap=True)
    if not isinstance(stop, KeyboardInterrupt):
        raise stop
    return 128 + signal_of(stop)
