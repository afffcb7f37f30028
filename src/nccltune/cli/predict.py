# SPDX-License-Identifier: Apache-2.0
"""`nccltune predict`: print what NCCL chooses on a machine by its own cost model, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nccltune.cli.options import PATH, binds, option
from nccltune.cli.output import is_json, print_result, stdout, write_exact
from nccltune.cli.progress import working
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.predict import PredictRequest

EPILOG = """\b
Examples:
  nccltune predict topo.xml --nodes 4
  nccltune predict topo.xml --nodes 4 --nccl-version 2.27.7 --against 2.28.9
  nccltune predict log.txt --topology topo.xml --nodes 16
  nccltune predict topo.xml NCCL_NVLS_ENABLE=0 --collectives all --export csv > times.csv
"""


@verb(epilog=EPILOG)
@click.argument("path", metavar="FILE|STUDY|LOG", type=PATH)
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE...]")
@option("--nodes", more=" like this one  [default: those of a LOG, else 1]")
@option("--gpus", more="  [default: all]")
@option("--topology", more=", where a log or a folder of runs is named.")
@option("--gpu")
@option("--nics", more="; instead of a topology the usual node of that GPU is assumed.")
@option("--collectives", default=None, more=", or `all`  [default: those of a LOG, else allreduce]")
@option("--sizes", default="8-8G", more=", by powers of two.")
@option("--nccl-version", more="  [default: that of the study, else the newest known]")
@option("--nccl", more=" whose version counts; a version such as 2.28.9 is taken, too.", type=PATH)
@click.option(
    "--against", metavar="X.Y.Z", help="Another version of NCCL: show where it chooses differently."
)
@click.option(
    "--export",
    type=click.Choice(["csv", "simai"]),
    help="Print the times of all choices as CSV, or SimAI's busbw.yaml at the last size.",
)
@binds(request="nccltune.app.predict:PredictRequest")
def command(request: PredictRequest, export: str | None) -> None:
    """Print NCCL's choice at each size on a machine, the time its model gives it, and why.

    FILE is a topology that NCCL wrote (NCCL_TOPO_DUMP_FILE). The numbers are those of NCCL's own
    cost model, which decides which algorithm and protocol run; they are no measurement. All nodes
    are equal, and a call is alone in its group. Known are NCCL 2.19 to 2.32.3. Settings that
    change paths, NICs, NVLS, CollNet, channels or the choice count.

    A study, or a LOG with the topology of its nodes, that has runs on 2 or more but fewer nodes
    than --nodes, also gives the time to expect there, with an interval of 80 %.
    """
    from nccltune.app.predict import as_csv, as_simai, predict_choices
    from nccltune.cli.predict_screen import as_data, show
    from nccltune.model.errors import InputError

    if export and is_json():
        raise InputError("has a form of its own, so it excludes --json", where="--export")
    with working("searching rings and trees"):
        if export == "simai":
            text = as_simai(request)
        else:
            found = predict_choices(request)
            text = as_csv(found) if export else ""
    if export:
        write_exact(text)
        return
    print_result(as_data(found), show, stdout(), found)
