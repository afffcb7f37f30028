# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo calibrate`: measure the efficiencies of this platform's links."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import LAUNCH, PATH, PLATFORM, binds, option, output_option
from nccltune.cli.output import hint, plain_table, print_result, stdout, styled
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.bench_launch import LaunchRequest
    from nccltune.topology.flows.derive import Derived

EPILOG = """\b
Examples:
  nccltune topo calibrate -o studies/links             on a machine with GPUs
  nccltune topo calibrate --from examples/h200x4-1-node -o calibration.json
  nccltune topo what-if topo.xml --calibration calibration.json
"""


@verb(epilog=EPILOG, dry_run=True)
@click.option(
    "--from",
    "studies",
    multiple=True,
    metavar="STUDY",
    type=PATH,
    help="Take what is measured already, of one platform; one node first, then more.",
)
@option("--topology", more="  [default: topology.xml of the study]")
@output_option(
    "output",
    "with --from a file, else the study that is measured into.",
    metavar="FILE|STUDY",
)
@PLATFORM
@binds(request=LAUNCH)
def command(
    studies: tuple[Path, ...],
    request: LaunchRequest,
    topology: Path | None,
    output: Path | None,
    dry_run: bool,
) -> None:
    """Measure the efficiencies that the flow model needs, or take them from a study.

    Large all-reduces, all-gathers and reduce-scatters show what the fullest link reaches of what
    NCCL books for it. Figures without a measurement stay at their defaults; each figure keeps where
    it comes from.
    """
    from nccltune.app.sweep import plan_sweep
    from nccltune.app.topo_calibrate import SCOPE, calibrate, measure_calibration
    from nccltune.cli.measure_screen import SweepScreen
    from nccltune.cli.requests import launch_at
    from nccltune.cli.sweep_screen import show_plan
    from nccltune.model.errors import InputError

    if studies:
        found = calibrate(studies, topology, None if dry_run else output)
    elif output is None:
        raise InputError(
            "no study to measure into is named",
            where="-o",
            hint="nccltune topo calibrate -o studies/links measures; --from STUDY needs no GPU",
        )
    else:
        launch, path = launch_at(request), output
        if dry_run:
            show_plan(*plan_sweep(path, launch, SCOPE))
            return
        screen = SweepScreen(path)
        found = screen.run(
            lambda: measure_calibration(
                path, launch, screen, topology=topology, command=screen.command
            )
        )
    derived, written = found
    document = {"calibration": derived.calibration, "used": derived.used, "left": derived.left}
    print_result(document, show, derived)
    if written is not None:
        hint(f"next: nccltune topo what-if TOPOLOGY --calibration {written}")


def show(derived: Derived) -> None:
    """Print each measured efficiency, and the timings that were left out."""
    out = stdout()

    table = plain_table("<figure", ">value", ">timings", "from", padding=(0, 2, 0, 0))
    for name, figure in derived.calibration.values.items():
        if name in derived.used:
            count = str(figure.samples)
            table.add_row(name, f"{figure.value:.3f}", count, figure.source)
    out.print(table)
    for one, why in derived.left:
        words = f"{one.words}, {one.busbw_gb_per_s:.3g} GB/s: {why}"
        out.print(styled((f"left  {words}", "dim")))
    rest = len(derived.calibration.values) - len(derived.used)
    out.print(f"{rest} figures stay at their defaults")
