# SPDX-License-Identifier: Apache-2.0
"""What sweeps share whose settings need processes of their own: be planned, run in a study, be
interrupted, keep the result and show it."""

import contextlib
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast

from nccltune.cli.bench_options import platform_of_bench, show_start
from nccltune.cli.manner import Manner
from nccltune.cli.output import hanging, print_json, stderr, stdout, styled
from nccltune.cli.ticker import ticking

if TYPE_CHECKING:
    from nccltune.measure.bench import Bench, Launch
    from nccltune.measure.p2p.session import Process, Starter, Status
    from nccltune.measure.p2p.settings import Settings
    from nccltune.measure.p2p.verdict import Verdict as Raced
    from nccltune.measure.sendrecv.fairness import FairnessVerdict
    from nccltune.measure.sendrecv.verdict import Verdict as Compared
    from nccltune.model.platform import Platform
    from nccltune.model.study import Study

V = TypeVar("V", bound="Raced | Compared | FairnessVerdict")
V_co = TypeVar("V_co", covariant=True)
D = TypeVar("D", bound="Driving[Any]")
Told = Callable[["Status"], None]
INDENT = 11


class Ordered(Protocol):
    """What has run and what comes next."""

    def still_to_start(self) -> int:
        """About how many processes are still to come."""


class Driving(Protocol[V_co]):
    """A driver of `measure.p2p` or `measure.sendrecv`."""

    @property
    def order(self) -> Ordered:
        """What has run and what comes next."""

    @property
    def seconds_to_come(self) -> float:
        """About how long it takes from here."""

    def run(self) -> V_co:
        """Run until it is decided or the budget is spent."""

    def verdict(self, reason: str) -> V_co:
        """What can be said so far."""


class Plan(NamedTuple):
    """What a dry run shows of its own: for programs, and as lines of a label and words."""

    values: dict[str, object]
    lines: list[tuple[str, str]]
    beside: str = ""
    """What else runs."""


class Way(NamedTuple, Generic[D, V]):
    """One way to sweep: the `name` of what runs, the file of its `result`, the driver for a study
    and its first process, what a dry run shows of that, the words for settings while they run, who
    writes the lines to deploy and says why not, and who shows the result with that."""

    name: str
    result: str
    driver: "Callable[[Study, Process, Told], D]"
    plan: Callable[[D], Plan]
    label: "Callable[[Settings], str]"
    keep: "Callable[[Study, Platform, V], str | None]"
    show: "Callable[[V, Study, str | None], None]"
    warn: "Callable[[Platform], None]" = lambda _: None
    gains: bool = True
    """Whether gains over the default are told while it runs."""


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


def show_end(
    verdict: "Raced | Compared | FairnessVerdict",
    study: "Study",
    carried: Mapping[str, int] | None = None,
) -> None:
    """The last lines of a result: what failed, messages by who carried them, and where all of it
    is."""
    out = stdout()
    for name, why in verdict.failed.items():
        out.print(styled(("failed", "yellow"), f"     {name}: {why}"))
    if carried is not None:
        ways = ", ".join(f"{way} {messages}" for way, messages in carried.items())
        hanging(out, "messages   ", INDENT, ways)
    out.print(f"study      {study.path}")


def run_in_study(
    path: Path, launch: "Launch", start: "Starter", way: Way[D, V], manner: Manner
) -> int:
    """Sweep into the study at `path` and show what came out; the exit code."""
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
            _show_plan(platform, way.driver(study, first, lambda _: None), way, manner.as_json)
            return 0
        study = Study.create(path)
        stack.enter_context(alone(study))
        if not study.platform_path.exists():
            study.write_json(study.platform_path, platform)
        show_start(platform, first.hello.nccl.came_from)
        way.warn(platform)
        name = "replay" if platform.replay else way.name
        words = functools.partial(_words, way)
        told = stack.enter_context(ticking(stderr(), name, words))
        driver = way.driver(study, first, told)
        try:
            verdict = driver.run()
        except (KeyboardInterrupt, LaunchError, StudyError) as stop:
            stack.close()
            return _stopped(stop, driver, way, study, manner)
    verdict = _write(verdict, way, study, manner)
    not_kept = way.keep(study, platform, verdict)
    if manner.as_json:
        print_json(verdict)
    else:
        way.show(verdict, study, not_kept)
    return 0


def _write(verdict: V, way: Way[D, V], study: "Study", manner: Manner) -> V:
    import msgspec

    verdict = msgspec.structs.replace(verdict, command=manner.again)
    study.write_json(study.path / way.result, verdict)
    return verdict


def _show_plan(platform: "Platform", driver: D, way: Way[D, V], as_json: bool) -> None:
    from nccltune.cli.progress import seconds_words

    plan, processes = way.plan(driver), driver.order.still_to_start()
    if as_json:
        after = {"processes": processes, "total_seconds": driver.seconds_to_come}
        print_json({"platform": platform, **plan.values, **after})
        return
    out = stdout()
    out.print(f"platform   {platform.title}")
    for label, words in plan.lines:
        hanging(out, (f"{label:<{INDENT}}", "dim"), INDENT, words, "dim")
    out.print(
        f"Would start about {processes} processes{plan.beside}: some "
        f"{seconds_words(driver.seconds_to_come)}. Nothing was measured or written."
    )


def _words(way: Way[D, V], status: "Status") -> str:
    """Where it stands."""
    from nccltune.cli.progress import seconds_words
    from nccltune.measure.p2p.settings import DEFAULT

    known = way.gains and status.gain is not None and status.settings != DEFAULT
    gain = f" {status.gain:.3f}x" if known else ""
    return (
        f"{status.stage:<9}process {status.processes + status.known}  "
        f"{way.label(status.settings)}{gain}  {seconds_words(status.left_s)} left"
    )


def _stopped(stop: BaseException, driver: D, way: Way[D, V], study: "Study", manner: Manner) -> int:
    """Say what is kept and how to go on. The disk may be why it stopped: nothing more is tried."""
    from nccltune.launch.process import signal_of
    from nccltune.model.errors import StudyError

    verdict = driver.verdict("interrupted")
    with contextlib.suppress(StudyError):
        _write(verdict, way, study, manner)
    note = stderr()
    note.print(f"stopped; all timings so far are kept in {study.path}", markup=False)
    note.print(f"resume:  {manner.again}", markup=False, soft_wrap=True)
    if not isinstance(stop, KeyboardInterrupt):
        raise stop
    return 128 + signal_of(stop)
