# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo show`: show a machine as a tree, with NCCL's paths."""

from pathlib import Path

import click

from nccltune.cli.options import PATH, option
from nccltune.cli.output import is_json, next_step, print_json, stdout
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune topo show                               this machine
  nccltune topo show topo.xml
  nccltune topo show topo.txt                      of nvidia-smi topo -m
  nccltune topo show topo.xml --env NCCL_P2P_LEVEL=SYS --json
"""


@verb(epilog=EPILOG)
@click.argument("what", required=False, type=PATH, metavar="[FILE|STUDY]")
@option("--nccl-version", more=" whose rules hold  [default: the newest known]")
@option("--env", "settings", more=", here one that changes paths: NCCL_NET_GDR_LEVEL=SYS.")
def command(what: Path | None, nccl_version: str | None, settings: tuple[str, ...]) -> None:
    """Show a machine as NCCL sees it: what hangs on what, what each link carries and how that was
    derived, and the type of NCCL's path between every two GPUs and NICs.

    FILE is what NCCL dumps (NCCL_TOPO_DUMP_FILE), a file for NCCL_TOPO_FILE, RCCL's or FlagCX's,
    or the output of nvidia-smi topo -m. Without one it is this machine. A bandwidth with ? is a
    guess: NCCL's, or what a device id shows of NVLinks that the file leaves to detection.
    """
    from nccltune.app.topo_show import show_topology
    from nccltune.cli.topo.show_screen import as_data, show

    shown = show_topology(what, settings=settings, nccl_version=nccl_version)
    if is_json():
        print_json(as_data(shown))
        return
    show(stdout(), shown)
    if what is not None and what.is_file():
        next_step("nccltune lint", what)
