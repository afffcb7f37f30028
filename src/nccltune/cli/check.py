# SPDX-License-Identifier: Apache-2.0
"""`nccltune check`: whether deployed rules still hold, in half a minute."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import LAUNCH, PATH, PLATFORM, binds, option
from nccltune.cli.output import print_result
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.bench_launch import LaunchRequest
    from nccltune.app.check import CheckRequest

EPILOG = """\b
Examples:
  nccltune check studies/h200x4
  nccltune check /etc/nccltune/tuner.conf --budget 0 --max-age 90d
  nccltune check studies/h200x4 --against-nccl /opt/nccl-2.32/lib/libnccl.so.2
  nccltune check studies/two --launcher slurm --gpus 8 --apply
"""


def _days(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """Return the days in `90d`, `12w` or `90`."""
    match = re.fullmatch(r"(\d{1,5})([dw]?)", text or "")
    if match is None and text is not None:
        raise click.BadParameter(f"{text!r} is not a number of days; write 90d or 12w")
    return None if match is None else int(match[1]) * (7 if match[2] == "w" else 1)


@verb(epilog=EPILOG, dry_run=True)
@click.argument("path", type=PATH, metavar="STUDY|tuner.conf")
@PLATFORM
@option(
    "--budget",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    more="; 0 compares only the file and the platform, without NCCL.",
)
@click.option(
    "--max-age",
    "max_age_days",
    callback=_days,
    metavar="DAYS",
    help="The most days since the rules were measured: 90d.",
)
@click.option(
    "--against-nccl",
    "against",
    type=PATH,
    metavar="FILE",
    help="The libnccl.so.2 of another release, to check for before it is rolled out.",
)
@option("--topology", more=" now  [default: by nvidia-smi]", advanced=True)
@click.option(
    "--apply", is_flag=True, help="Remove rules that no longer hold; the old file is kept."
)
@binds(request=LAUNCH, asked="nccltune.app.check:CheckRequest")
def command(path: Path, request: LaunchRequest, asked: CheckRequest, dry_run: bool) -> int:
    """Check whether deployed rules still hold: for a prolog, cron or an upgrade of NCCL.

    Compare the file, NCCL, driver, GPUs, topology, settings and age with what the rules rest on.
    Then measure the rules that carry most against NCCL's default, in alternating order, until each
    is decided or the time is over: keep, drop or measure again. Without launch options it runs as
    the study was measured; with --launcher, file and platform of every node are compared, too. The
    exit code is 0 if all that was checked holds, 1 if not.
    """
    from nccltune.app.check import check, launch_to_check, nodes_to_check, target_of, with_nodes
    from nccltune.cli.check_screen import CheckScreen, show_check, show_plan
    from nccltune.cli.requests import site

    target = target_of(path)
    if dry_run:
        show_plan(target.read.rules, asked.budget_s)
        return 0
    launch = launch_to_check(target, request, asked, site())
    under = nodes_to_check(launch, request, site())
    screen = CheckScreen(path)
    result = screen.run(lambda: check(target, launch, screen, asked, request))
    if under is not None:
        result = with_nodes(result, target.config, asked, under)
    print_result(result, show_check, result, path)
    return int(not result.holds)
