# SPDX-License-Identifier: Apache-2.0
"""Run a sweep or a verification with its progress on the terminal."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rich.console import RenderableType
from rich.table import Table

from nccltune.cli.output import note, styled, talk, warn
from nccltune.cli.platform_options import show_start
from nccltune.cli.progress import Watch, watch_sweep
from nccltune.cli.run_options import terminated_like_interrupted
from nccltune.launch.process import signal_of
from nccltune.measure.adaptive.plan import Plan
from nccltune.measure.bench.conversation import Hello
from nccltune.measure.engine.communicator import Watcher
from nccltune.model.errors import LaunchError, StudyError
from nccltune.model.platform import Platform
from nccltune.model.scale import count
from nccltune.prove.plan import ProofPlan
from nccltune.prove.result import Dropped
from nccltune.report.words import range_text


class SweepScreen:
    """Progress of a sweep on stderr."""

    def starting(self) -> None:
        """Print nothing. If the start fails, an error reports the reason."""

    def started(self, platform: Platform, hello: Hello) -> None:
        """Print the platform."""
        show_start(platform, hello.nccl.came_from)

    def watching(self, hello: Hello) -> contextlib.AbstractContextManager[Watcher[Plan]]:
        """Return the live screen, or plain lines if stderr is no terminal."""
        return watch_sweep(hello.replay)


class VerifyScreen:
    """Progress of a verification on stderr. With `quiet` the platform is not printed."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def warn(self, sentence: str) -> None:
        """Print a warning."""
        warn([sentence])

    def started(self, platform: Platform, hello: Hello) -> None:
        """Print the platform."""
        if not self._quiet:
            show_start(platform, hello.nccl.came_from)

    def watching(self, hello: Hello) -> contextlib.AbstractContextManager[Watcher[ProofPlan]]:
        """Return a display of every rule and its gain so far."""
        return Watch("verify", hello.replay, rules_so_far)

    def dropped(self, rules: list[Dropped]) -> None:
        """Print how many rules did not hold."""
        talk().print(
            f"again      {count(len(rules), 'rule')} did not hold as measured; measuring what "
            "changes",
            soft_wrap=True,
        )


_Result = TypeVar("_Result")


def run_interruptible(
    run: Callable[[], _Result], kept: Callable[[], int | None], path: Path, command: str
) -> _Result | int:
    """Run a measurement into the study at `path`. Return its result, or the exit code of a signal.

    SIGTERM stops it like Ctrl-C. `kept` returns the number of points in the study, or None before
    the first measurement. `command` is printed as the command that resumes the run.
    """
    try:
        with terminated_like_interrupted():
            return run()
    except (KeyboardInterrupt, LaunchError, StudyError) as stop:
        points = kept()
        if points:
            _show_stopped(points, path, command)
        if points is None or not isinstance(stop, KeyboardInterrupt):
            raise
        return 128 + signal_of(stop)


def _show_stopped(kept: int, path: Path, command: str) -> None:
    note(f"stopped; all {kept} points so far are kept in {path}")
    note(f"resume:  {command}")


def rules_so_far(plan: ProofPlan) -> RenderableType:
    """Return a table of the rules of a verification and their gains so far."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("rule", "", "", "sizes", "rounds", "gain so far (95 % CI)"):
        table.add_column(name, justify="right" if name in ("sizes", "rounds") else "left")
    for item in plan.verdicts({}):
        gain = ""
        if item.gain is not None:
            gain = f"{item.gain:.2f}x ({item.gain_low:.2f}-{item.gain_high:.2f})"
        rule = item.rule
        table.add_row(
            rule.collective.value,
            range_text(rule.min_bytes, rule.max_bytes, "-"),
            rule.choice.label,
            str(item.sizes),
            str(item.rounds),
            styled(f"{gain} ", ("holds" if item.verdict == "holds" else "", "green")),
        )
    return table
