# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv sweep`: find the size from which copy engines are faster than NCCL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import LAUNCH, binds, option, options, output_option
from nccltune.cli.output import (
    hanging,
    is_json,
    next_step,
    print_json,
    print_result,
    stdout,
    styled,
)
from nccltune.cli.progress import seconds_words
from nccltune.cli.verb import verb
from nccltune.model.sizes import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.app.bench_launch import LaunchRequest
    from nccltune.app.sendrecv_sweep import CopiesPlan
    from nccltune.measure.experiments.copies.experiment import CopiesScope
    from nccltune.measure.experiments.copies.verdict import CopiesVerdict, SizePoint

EPILOG = """\b
Examples:
  nccltune sendrecv sweep -o studies/h200x4
  nccltune sendrecv sweep -o studies/first --replay h200x2-1-node
"""


@verb(epilog=EPILOG, dry_run=True)
@output_option("path", "the study; an interrupted comparison goes on there.", required=True)
@option("--library", more=" to measure  [default: the installed one]")
@option("--gpus", more="  [default: all]")
@options("--replay", "--budget")
@option("--gain-threshold", "noise_floor", more=": a difference below it is noise.", default="2%")
@options("--nccl", "--seed")
@option("--sizes", default="4K-256M")
@option(
    "--rounds",
    "pairs",
    more=", each of a process with NCCL and one with copy engines  [default: 6]",
)
@click.option("--load", is_flag=True, help="Compare while the GPUs compute, as training does.")
@binds(scope="nccltune.measure.experiments.copies.experiment:CopiesScope", request=LAUNCH)
def command(
    path: Path, scope: CopiesScope, request: LaunchRequest, library: Path | None, dry_run: bool
) -> None:
    """Find the size from which copy engines carry sends and receives faster than NCCL.

    Pairs of processes run NCCL alone, and with our library loaded before it. What is decided is
    written to STUDY/sendrecv.conf, and `nccltune sendrecv env` prints it. Ctrl-C loses nothing: the
    same command goes on where it stopped.
    """
    from nccltune.app.sendrecv_sweep import compare_copies, plan_copies
    from nccltune.cli.measure_screen import ExperimentScreen
    from nccltune.cli.requests import launch_at
    from nccltune.model.errors import InputError

    launch = launch_at(request)
    if launch.replay is not None and library is not None:
        raise InputError("is not for a replay", where="--library")
    if dry_run:
        show_plan(plan_copies(path, launch, scope, library=library))
        return
    screen = ExperimentScreen("compare", path)
    verdict = screen.run(
        lambda: compare_copies(path, launch, scope, screen, library=library, command=screen.command)
    )
    print_result(verdict, show, verdict, path)


_INDENT = 11
_SHORT = {"native": "native", "copy engine": "copy"}
"""Short names of the carriers of messages, for a narrow column."""


def show_plan(plan: CopiesPlan) -> None:
    """Print the plan of a comparison."""
    if is_json():
        cost = {"processes": plan.processes, "total_seconds": plan.seconds}
        print_json({"platform": plan.platform, "pairs": plan.pairs, **cost})
        return
    out = stdout()
    out.print(f"platform   {plan.platform.title}")
    hanging(out, ("pairs      ", "dim"), _INDENT, f"{plan.pairs} of native and copy engine", "dim")
    out.print(
        f"Would start about {plan.processes} processes: some {seconds_words(plan.seconds)}. "
        "Nothing was measured or written."
    )


def show(verdict: CopiesVerdict, study: Path) -> None:
    """Print a verdict and its evidence."""
    out = stdout()
    before = f" and {verdict.known} from before" if verdict.known else ""
    ended = " · the budget is spent: the same command goes on" if verdict.reason == "budget" else ""
    recorded = " recorded" if verdict.replay else ""
    out.print(
        f"{'replay' if verdict.replay else 'compare':<11}{verdict.processes} processes{before} in "
        f"{seconds_words(verdict.seconds)}{recorded} · one start's mean repeats within "
        f"{100 * verdict.noise:.2g} %{ended}"
    )
    note = " (the default)" if verdict.from_bytes == verdict.default_from_bytes else ""
    for name, value in verdict.settings.items():
        out.print(styled("set        ", (f"{name}={value}", "bold green"), note))
    if verdict.decided:
        hanging(out, "because    ", _INDENT, verdict.why)
    else:
        hanging(out, ("set nothing  ", "bold"), 13, verdict.why)
    _table(out, verdict)
    for name, why in verdict.failed.items():
        out.print(styled(("failed", "yellow"), f"     {name}: {why}"))
    if verdict.carried is not None:
        ways = ", ".join(f"{way} {messages}" for way, messages in verdict.carried.items())
        hanging(out, "messages   ", _INDENT, ways)
    out.print(f"study      {study}")
    if verdict.decided:
        next_step("nccltune sendrecv env", study)


def _table(out: Console, verdict: CopiesVerdict) -> None:
    if not verdict.points:
        return
    out.print(
        f"{'size':>10}{'native':>12}{'copy engine':>13}{'GB/s':>7}{'gain':>8}"
        f"  95 % CI             taken{'   load slower' if verdict.load else ''}"
    )
    for point in verdict.points:
        gain = point.gain
        interval = f"{gain.low:.2f}-{gain.high:.2f}  {point.effect.value}"
        taken = _SHORT[point.taken] if verdict.decided else "open"
        out.print(
            f"{format_bytes(point.bytes):>10}{point.native_us:>9.4g} us"
            f"{point.copy_engine_us:>10.4g} us{point.bytes / point.copy_engine_us / 1e3:>7.3g}"
            f"{gain.gain:>7.2f}x  {interval:<20}"
            f"{taken:<8}{_loads(point)}".rstrip()
        )


def _loads(point: SizePoint) -> str:
    """Return how much both slow down a compute load; empty without a load."""
    both = (point.native_load_slower, point.copy_engine_load_slower)
    if both == (None, None):
        return ""
    return " / ".join("-" if value is None else f"{value:.2f}x" for value in both)
