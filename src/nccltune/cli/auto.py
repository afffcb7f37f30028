# SPDX-License-Identifier: Apache-2.0
"""`nccltune auto`: from nothing to proven rules, in one command and one study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nccltune.cli.options import (
    CALLS,
    LAUNCH,
    PLATFORM,
    SCOPE,
    WORKLOAD_SWEEP,
    binds,
    option,
    options,
    output_option,
    tune_options,
)
from nccltune.cli.output import is_json, print_json
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.bench_launch import LaunchRequest
    from nccltune.measure.experiments.choices import SweepScope
    from nccltune.tune.result import TuneOptions

EPILOG = """\b
Examples:
  nccltune auto
  nccltune auto --emulate-nodes 4 -o studies/h200x4
  nccltune auto --emulate-nodes 4 -o studies/job --workload traces/
  nccltune auto --replay h200x4-as-4-nodes -o studies/first
"""


@verb(epilog=EPILOG, dry_run=True)
@output_option("path", "the study  [default: studies/auto, or studies/replay-of-NAME]")
@SCOPE
@CALLS
@PLATFORM
@options(option("--workload", more=WORKLOAD_SWEEP, advanced=True), "--budget")
@tune_options(advanced=True)
@binds(
    scope="nccltune.measure.experiments.choices:SweepScope",
    request=LAUNCH,
    tuning="nccltune.tune.result:TuneOptions",
)
def command(
    path: Path | None, scope: SweepScope, request: LaunchRequest, tuning: TuneOptions, dry_run: bool
) -> None:
    """Measure, tune and prove: sweep, analyze, tune, verify and report, one after the other.

    The result is an ordinary study, so that every step can be done again by its own verb. Ctrl-C
    loses nothing: the same command goes on where it stopped.
    """
    from nccltune.app.auto import auto, usual_study
    from nccltune.app.sweep import plan_sweep
    from nccltune.cli.auto_screen import AutoScreen, show_end
    from nccltune.cli.requests import launch_at, scope_for
    from nccltune.cli.sweep_screen import as_data, show_plan

    launch, scope = launch_at(request), scope_for(scope)
    study = path or usual_study(launch)
    if dry_run:
        show_plan(*plan_sweep(study, launch, scope, channels=tuning.channels))
        return
    screen = AutoScreen(study)
    found = screen.run(lambda: auto(study, launch, scope, tuning, screen, command=screen.command))
    show_end(found, screen.out)
    if is_json():
        more = {
            "tuning": found.tuning,
            "proof": found.proof,
            "report": str(found.study.report_path),
        }
        print_json(as_data(found.swept) | more)
