# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo what-if`: compute the bandwidth limit of a platform now and after a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nccltune.cli.options import FILE, PATH, binds, option
from nccltune.cli.output import print_result, stdout
from nccltune.cli.progress import working
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.topo_what_if import WhatIfRequest

EPILOG = """\b
Examples:
  nccltune topo what-if topo.xml --nodes 2
  nccltune topo what-if topo.xml --nodes 2 --gdr-read off
  nccltune topo what-if topo.xml NCCL_IB_HCA=mlx5_0 NCCL_CROSS_NIC=1 --nodes 2
  nccltune topo what-if topo.xml --move-nic mlx5_1=0000:80:00.0
  nccltune topo what-if topo.xml --to-nodes 16 --to-nodes 1024
"""
_LEVELS = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")
_NODES = click.IntRange(1, 1 << 20)


@verb(epilog=EPILOG)
@click.argument("path", metavar="FILE|STUDY", type=PATH)
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE...]")
@option(
    "--nodes", type=_NODES, default=1, show_default=True, more=" like this one that there are now."
)
@option("--gpus", type=click.IntRange(1, 1 << 10), more="  [default: all]")
@option("--collective", default="allreduce", show_default=True, more=" that is run.")
@option("--env", "environment", more=" that is in force now.")
@option("--nccl-version", more="  [default: the newest known]")
@click.option("--calibration", help="Own figures of what links reach  [default: built in]", **FILE)
@click.option(
    "--gdr-read",
    type=click.Choice(["on", "off"]),
    help="Let NICs read GPU memory, or send through host memory.",
)
@click.option(
    "--p2p-level",
    "p2p_levels",
    type=click.Choice(_LEVELS),
    multiple=True,
    help="Let GPUs reach each other up to there.",
)
@click.option(
    "--algorithm",
    "algorithms",
    type=click.Choice(["ring", "tree", "nvls", "nvls_tree"]),
    multiple=True,
    help="This algorithm.",
)
@click.option(
    "--move-nic",
    "moves",
    multiple=True,
    metavar="NIC=PLACE",
    help="A NIC at a switch's bus id, at CPU0, or beside GPU0.",
)
@click.option(
    "--add-switch",
    "switches",
    multiple=True,
    metavar="PLACE=DEVICE,...",
    help="A PCIe switch there, with GPU0, mlx5_0 and so on below it.",
)
@click.option("--to-nodes", type=_NODES, multiple=True, metavar="N", help="So many nodes.")
@binds(request="nccltune.app.topo_what_if:WhatIfRequest")
def command(request: WhatIfRequest, gdr_read: str | None) -> None:
    """Compute what a change would do to the bandwidth of a collective, and how to prove it.

    A change is a setting of NCCL (NAME=VALUE) or an option. FILE is a topology that NCCL wrote
    (NCCL_TOPO_DUMP_FILE). A cloud's file for NCCL_TOPO_FILE has no NVLink: it is assumed by device
    ids, and figures that rest on it have a ?. Each change is answered alone, and all together where
    there are several; without any, those settings that may matter. Nothing is started and nothing
    is changed. The ceiling is what the links allow at large sizes; the network beyond the NICs
    counts as wide enough. Of a study its settings and its NCCL count.
    """
    from nccltune.app.topo_what_if import answer
    from nccltune.cli.topo.what_if_screen import as_data, show

    reads = None if gdr_read is None else gdr_read == "on"
    with working("searching rings and trees"):
        answers = answer(request._replace(gdr_read=reads))
    print_result(as_data(answers), show, stdout(), answers)
