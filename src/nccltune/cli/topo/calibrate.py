# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo calibrate`: what links of this platform reach, for the flow model."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.options import output_option
from nccltune.cli.output import hint, print_json, stdout, styled
from nccltune.cli.platform_options import launch_from, platform_options
from nccltune.cli.run_options import command_line
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from rich.console import Console

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
    type=click.Path(path_type=Path),
    help="Take what is measured already, of one platform; one node first, then more.",
)
@click.option(
    "--topology",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The platform's topology  [default: topology.xml of the study]",
)
@output_option(
    "output",
    "with --from a file, else the study that is measured into.",
    metavar="FILE|STUDY",
)
@platform_options
@click.pass_context
def command(
    context: click.Context,
    /,
    studies: tuple[Path, ...],
    topology: Path | None,
    output: Path | None,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure the efficiencies that the flow model needs, or take them from a study.

    Large all-reduces, all-gathers and reduce-scatters show what the fullest link reaches of what
    NCCL books for it. Figures without a measurement stay at their defaults; each figure keeps where
    it comes from.
    """
    from nccltune.app.topo_calibrate import CalibrationRun, calibrate, save_calibration
    from nccltune.cli.measure_screen import SweepScreen, run_interruptible
    from nccltune.cli.sweep_screen import show_plan
    from nccltune.model.errors import InputError

    if not studies:
        if output is None:
            raise InputError(
                "no study to measure into is named",
                where="-o",
                hint="nccltune topo calibrate -o studies/links measures; --from STUDY needs no GPU",
            )
        again = command_line(context)
        measured = CalibrationRun(output, launch_from(options), command=again)
        if dry_run:
            show_plan(*measured.plan(), as_json=as_json)
            return 0
        path = output
        swept = run_interruptible(
            lambda: measured.run(SweepScreen()), lambda: measured.kept, path, again
        )
        if isinstance(swept, int):
            return swept
        studies = (output,)
    derived = calibrate(studies, topology)
    written = None
    if output is not None and not dry_run:
        written = save_calibration(derived.calibration, output)
    if as_json:
        print_json({"calibration": derived.calibration, "used": derived.used, "left": derived.left})
    else:
        _show(stdout(), derived)
    if written is not None:
        hint(f"next: nccltune topo what-if TOPOLOGY --calibration {written}")
    return 0


def _show(out: "Console", derived: "Derived") -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("figure", no_wrap=True)
    table.add_column("value", justify="right")
    table.add_column("timings", justify="right")
    table.add_column("from")
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
