# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune topo calibrate`."""

from rich.table import Table

from nccltune.cli.output import stdout, styled
from nccltune.topology.flows.derive import Derived


def show(derived: Derived) -> None:
    """Print each measured efficiency, and the timings that were left out."""
    out = stdout()

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
