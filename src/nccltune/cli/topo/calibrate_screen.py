# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune topo calibrate`."""

from nccltune.cli.output import plain_table, stdout, styled
from nccltune.topology.flows.derive import Derived


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
