# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv sweep`: find the size from which copy engines are faster than NCCL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import COPIES, LAUNCH, binds, option
from nccltune.cli.output import next_step, print_result, stdout
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
@COPIES
@option("--sizes", default="4K-256M")
@option(
    "--rounds",
    "pairs",
    more=", each of a process with NCCL and one with copy engines  [default: 6]",
)
@click.option("--policies", is_flag=True, help="Also measure VCCL's policy with its settings.")
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
    from nccltune.cli.experiment_screen import ExperimentScreen
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


_SHORT = {"native": "native", "copy engine": "copy"}
"""Short names of the carriers of messages, for a narrow column."""


def show_plan(plan: CopiesPlan) -> None:
    """Print the plan of a comparison."""
    from nccltune.cli.experiment_screen import show_process_plan
    from nccltune.measure.experiments.copies.settings import label

    lines = [("pairs", f"{plan.pairs} of native and copy engine")]
    lines += [("policy", label(settings)) for settings in plan.policies]
    policies = [settings.recorded for settings in plan.policies]
    show_process_plan(plan, {"pairs": plan.pairs, "policies": policies}, lines)


def show(verdict: CopiesVerdict, study: Path) -> None:
    """Print a verdict and its evidence."""
    from nccltune.cli.experiment_screen import show_end, show_head, show_settings

    out = stdout()
    show_head(verdict, "compare")
    is_default = verdict.from_bytes == verdict.default_from_bytes
    lead = "because" if verdict.decided else ""
    show_settings(verdict, lead, " (the default)" if is_default else "")
    _table(out, verdict)
    _policies(out, verdict)
    show_end(verdict, study, verdict.carried)
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


def _policies(out: Console, verdict: CopiesVerdict) -> None:
    from nccltune.measure.engine.settings import Settings
    from nccltune.measure.experiments.copies.settings import label

    if not verdict.policies:
        return
    out.print(f"{'policy':<34}{'starts':>7}{'over native':>13}  95 % CI    over copy engine")
    for point in verdict.policies:
        gain = point.over_native
        out.print(
            f"{label(Settings.of(point.settings)):<34}{gain.processes:>7}{gain.gain:>12.2f}x"
            f"  {f'{gain.low:.2f}-{gain.high:.2f}':<11}{point.over_copy_engine:.2f}x"
        )
    if verdict.proof is not None:
        proof = verdict.proof
        out.print(
            f"proof      {label(Settings.of(verdict.champion or {}))} over copy engine: "
            f"{proof.gain:.2f}x ({proof.low:.2f}-{proof.high:.2f})"
        )
    elif verdict.champion is None:
        out.print("policy     none is ahead of copy engines without one beyond noise")
