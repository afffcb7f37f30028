# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv settings`: compare settings of NCCL's own send/recv in separate processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nccltune.cli.options import LAUNCH, PLATFORM, binds, option, options, output_option
from nccltune.cli.output import hanging, next_step, print_result, stderr, stdout, styled
from nccltune.cli.verb import verb
from nccltune.model.platform import Platform
from nccltune.model.sizes import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.app.bench_launch import LaunchRequest
    from nccltune.app.sendrecv_settings import RacePlan
    from nccltune.measure.experiments.p2p.experiment import RaceScope
    from nccltune.measure.experiments.p2p.verdict import Effects, RaceVerdict

EPILOG = """\b
Examples:
  nccltune sendrecv settings -o studies/h200x4
  nccltune sendrecv settings -o studies/two --launcher slurm --nodes 2
"""


@verb(epilog=EPILOG, dry_run=True)
@output_option("path", "the study; an interrupted comparison goes on there.", required=True)
@option("--sizes", default="4K-256M")
@PLATFORM
@options("--budget")
@option("--gain-threshold", more=": settings that gain less are not pursued.", default="1%")
@options("--seed")
@binds(scope="nccltune.measure.experiments.p2p.experiment:RaceScope", request=LAUNCH)
def command(path: Path, scope: RaceScope, request: LaunchRequest, dry_run: bool) -> None:
    """Compare settings of NCCL's own send/recv with its default, in alternating runs.

    NCCL reads these settings once, so that each needs processes of its own. What beats the default
    beyond noise is written to STUDY/p2p.conf, and `nccltune env` prints it. Ctrl-C loses nothing:
    the same command goes on where it stopped.
    """
    from nccltune.app.sendrecv_settings import plan_race, race_settings
    from nccltune.cli.experiment_screen import ExperimentScreen
    from nccltune.cli.requests import launch_at

    launch = launch_at(request)
    if dry_run:
        show_plan(plan_race(path, launch, scope))
        return
    screen = ExperimentScreen("race", path, warn_of_settings)
    verdict = screen.run(lambda: race_settings(path, launch, scope, screen, command=screen.command))
    print_result(verdict, show, verdict, path)


def warn_of_settings(platform: Platform) -> None:
    """Print a warning for each send/recv setting of this environment."""
    from nccltune.app.sendrecv_settings import settings_in_force

    for name, value in settings_in_force(platform).items():
        stderr().print(
            styled(
                ("warning", "yellow"),
                f"    {name}={value} is set: it is part of the default here",
            ),
            soft_wrap=True,
        )


def show_plan(plan: RacePlan) -> None:
    """Print the plan of a race: settings compared in alternating processes."""
    from nccltune.cli.experiment_screen import show_process_plan

    lines = [("first", settings.label) for settings in plan.first]
    details = {"first": [settings.numbers for settings in plan.first]}
    show_process_plan(plan, details, lines, ", a default for every two of others")


def show(verdict: RaceVerdict, study: Path) -> None:
    """Print a verdict and its evidence."""
    from nccltune.app.sendrecv_settings import effect_lines
    from nccltune.cli.experiment_screen import INDENT, show_end, show_head, show_settings

    out = stdout()
    show_head(verdict, "race")
    champion = verdict.champion
    show_settings(verdict, "because" if verdict.settings else "")
    if champion is not None:
        if not verdict.settings:
            out.print(f"what led   {_label(champion)}")
        _table(out, champion)
        for line in effect_lines(champion):
            out.print(line)
        _memory(out, verdict)
        for part in verdict.parts:
            hanging(out, "alone      ", INDENT, f"{_label(part)}: {_in_short(part)}")
    show_end(verdict, study)
    if verdict.settings:
        next_step("nccltune env --format nccl.conf", study)


def _label(effects: Effects) -> str:
    return " ".join(f"{name}={value}" for name, value in effects.settings.items())


def _table(out: Console, champion: Effects) -> None:
    from nccltune.measure.engine.workload import RACED

    out.print(f"{'size':>10}{'default':>12}{'settings':>12}{'GB/s':>7}{'gain':>8}   95 % CI")
    for point in champion.sizes.get(RACED, []):
        gain = point.gain
        told = {"faster": "", "slower": "  slower", "same": "  within noise"}[point.effect]
        out.print(
            f"{format_bytes(point.bytes):>10}{point.default_us:>9.4g} us{point.time_us:>9.4g} us"
            f"{point.bytes / point.time_us / 1e3:>7.3g}{gain.gain:>7.2f}x"
            f"   {gain.low:.2f}-{gain.high:.2f}{told}"
        )


def _memory(out: Console, verdict: RaceVerdict) -> None:
    champion = verdict.champion
    if champion is None or champion.memory_bytes is None or verdict.default_memory_bytes is None:
        return
    out.print(
        "memory     buffers for all peers on a GPU: up to "
        f"{format_bytes(champion.memory_bytes)}, by default "
        f"{format_bytes(verdict.default_memory_bytes)}"
    )


def _in_short(part: Effects) -> str:
    from nccltune.app.sendrecv_settings import interval_words

    words = []
    for collective, gain in part.overall.items():
        ranges = [
            f"{item.effect} {interval_words(item.gain)} at "
            f"{format_bytes(item.from_bytes)} - {format_bytes(item.to_bytes)}"
            for item in part.ranges
            if item.collective is collective and item.effect != "same"
        ]
        told = "; ".join(ranges) or f"as before, {interval_words(gain)}"
        words.append(f"{collective.prose} {told}")
    return " · ".join(words)
