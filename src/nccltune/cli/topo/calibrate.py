# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo calibrate`: measure the efficiencies of this platform's links."""

from pathlib import Path
from typing import Any

import click

from nccltune.cli.options import PATH, PLATFORM, option, output_option
from nccltune.cli.output import hint, print_result
from nccltune.cli.verb import verb

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
def command(
    studies: tuple[Path, ...],
    topology: Path | None,
    output: Path | None,
    dry_run: bool,
    **options: Any,
) -> None:
    """Measure the efficiencies that the flow model needs, or take them from a study.

    Large all-reduces, all-gathers and reduce-scatters show what the fullest link reaches of what
    NCCL books for it. Figures without a measurement stay at their defaults; each figure keeps where
    it comes from.
    """
    from nccltune.app.topo_calibrate import calibrate, measure_calibration, plan_calibration
    from nccltune.cli.measure_screen import SweepScreen
    from nccltune.cli.requests import launch_from
    from nccltune.cli.sweep_screen import show_plan
    from nccltune.cli.topo.calibrate_screen import show
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
        launch, path = launch_from(options), output
        if dry_run:
            show_plan(*plan_calibration(path, launch))
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
