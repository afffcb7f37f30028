# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo what-if`: the ceiling of a platform now, and after a change."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.options import nccl_version_option, option
from nccltune.cli.output import print_json, stdout
from nccltune.cli.progress import working
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.topo_what_if import Answers

EPILOG = """\b
Examples:
  nccltune topo what-if topo.xml --nodes 2
  nccltune topo what-if topo.xml --nodes 2 --gdr-read off
  nccltune topo what-if topo.xml NCCL_IB_HCA=mlx5_0 NCCL_CROSS_NIC=1 --nodes 2
  nccltune topo what-if topo.xml --move-nic mlx5_1=0000:80:00.0
  nccltune topo what-if topo.xml --to-nodes 16 --to-nodes 1024
"""
_LEVELS = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")


@verb(epilog=EPILOG)
@click.argument("path", metavar="FILE|STUDY", type=click.Path(path_type=Path))
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE...]")
@option(
    "--nodes",
    type=click.IntRange(1, 1 << 20),
    default=1,
    show_default=True,
    metavar="N",
    more=" like this one that there are now.",
)
@option("--gpus", type=click.IntRange(1, 1 << 10), metavar="N", more="  [default: all]")
@option(
    "--collective",
    default="allreduce",
    show_default=True,
    metavar="NAME",
    more=" that is run.",
)
@option("--env", "environment", multiple=True, metavar="NAME=VALUE", more=" that is in force now.")
@nccl_version_option("  [default: the newest known]")
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Measured efficiencies (`nccltune topo calibrate`)  [default: built in]",
)
@click.option(
    "--gdr-read",
    type=click.Choice(["on", "off"]),
    help="Let NICs read GPU memory, or send through host memory.",
)
@click.option(
    "--p2p-level",
    type=click.Choice(_LEVELS),
    multiple=True,
    help="Let GPUs reach each other up to there.",
)
@click.option(
    "--algorithm",
    type=click.Choice(["ring", "tree", "nvls"]),
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
@click.option(
    "--to-nodes",
    type=click.IntRange(1, 1 << 20),
    multiple=True,
    metavar="N",
    help="So many nodes.",
)
def command(path: Path, as_json: bool, **options: Any) -> int:
    """Compute what a change would do to the bandwidth of a collective, and how to prove it.

    A change is a setting of NCCL (NAME=VALUE) or an option. FILE is a topology that NCCL wrote
    (NCCL_TOPO_DUMP_FILE). A cloud's file for NCCL_TOPO_FILE has no NVLink: it is assumed by device
    ids, and figures that rest on it have a ?. Each change is answered alone, and all together where
    there are several; without any, those settings that may matter. Nothing is started and nothing
    is changed. The ceiling is what the links allow at large sizes; the network beyond the NICs
    counts as wide enough. Of a study its settings and its NCCL count.
    """
    from nccltune.app.topo_what_if import WhatIfRequest, answer
    from nccltune.cli.topo.what_if_screen import show

    request = WhatIfRequest(
        path=path,
        nodes=options["nodes"],
        gpus=options["gpus"],
        collective=options["collective"],
        environment=options["environment"],
        nccl_version=options["nccl_version"],
        calibration=options["calibration"],
        gdr_read=None if options["gdr_read"] is None else options["gdr_read"] == "on",
        p2p_levels=options["p2p_level"],
        algorithms=options["algorithm"],
        settings=options["settings"],
        moves=options["moves"],
        switches=options["switches"],
        to_nodes=options["to_nodes"],
    )
    with working("searching rings and trees"):
        answers = answer(request)
    if as_json:
        print_json(_plain(answers))
    else:
        show(stdout(), answers.case, answers.now, answers.answers, answers.unanswered)
    return 0


def _plain(answers: "Answers") -> dict[str, Any]:
    case = answers.case
    return {
        "topology": case.topology.source,
        "collective": case.collective,
        "nodes": case.nodes,
        "ranks_per_node": case.ranks_per_node,
        "settings": case.settings,
        "calibration": case.calibration.name if case.calibration else "defaults",
        "now": answers.now,
        "answers": [
            {
                "change": answer.change.words,
                "settings": answer.change.settings,
                "nodes": answer.change.nodes,
                "hardware": answer.change.hardware is not None,
                "gain": answer.gain,
                "expected": answer.expected,
                "confirm": answer.confirm,
            }
            for answer in answers.answers
        ],
        "unanswered": answers.unanswered,
    }
