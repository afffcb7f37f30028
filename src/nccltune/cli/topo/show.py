# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo show`: the machine as a tree, a picture, and NCCL's paths."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.options import nccl_version_option, option
from nccltune.cli.output import next_step, print_json, stdout
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.topo_show import ShownTopology

EPILOG = """\b
Examples:
  nccltune topo show                               this machine
  nccltune topo show topo.xml
  nccltune topo show topo.txt --svg topo.svg    of nvidia-smi topo -m
  nccltune topo show topo.xml --env NCCL_P2P_LEVEL=SYS --json
"""


@verb(epilog=EPILOG, dry_run=True)
@click.argument("what", required=False, type=click.Path(path_type=Path), metavar="[FILE|STUDY]")
@click.option(
    "--svg", type=click.Path(path_type=Path), metavar="FILE", help="Write a picture to this file."
)
@nccl_version_option(" whose rules hold  [default: the newest known]")
@option(
    "--env",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    more=", here one that changes paths: NCCL_NET_GDR_LEVEL=SYS.",
)
def command(
    what: Path | None,
    svg: Path | None,
    nccl_version: str | None,
    settings: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> int:
    """Show a machine as NCCL sees it: what hangs on what, what each link carries and how that was
    derived, and the type of NCCL's path between every two GPUs and NICs.

    FILE is what NCCL dumps (NCCL_TOPO_DUMP_FILE), a file for NCCL_TOPO_FILE, RCCL's or FlagCX's,
    or the output of nvidia-smi topo -m. Without one it is this machine. A bandwidth with ? is a
    guess: NCCL's, or what a device id shows of NVLinks that the file leaves to detection.
    """
    from nccltune.app.topo_show import show_topology

    shown = show_topology(
        what, settings=settings, nccl_version=nccl_version, picture=None if dry_run else svg
    )
    if as_json:
        print_json(_plain(shown))
        return 0
    from nccltune.cli.topo.show_screen import show

    show(stdout(), shown.whole, shown.graph, shown.paths)
    if what is not None and what.is_file():
        next_step("nccltune lint", what)
    return 0


def _plain(shown: "ShownTopology") -> dict[str, Any]:
    """Return the file's content, and the graph with the assumed GPUs and NVLinks (`assumed`)."""
    from nccltune.topology.hardware.links import NodeKind

    graph, between = shown.graph, shown.paths.between
    ends = [vertex.name for vertex in graph.vertices if vertex.kind in (NodeKind.GPU, NodeKind.NET)]
    return {
        "topology": shown.topology,
        "nvlink_left_to_detection": shown.leaves_nvlink_out,
        "assumed": shown.whole.assumed,
        "vertices": graph.vertices,
        "links": [
            {"name": link.name, "source": link.source, "target": link.target,
             "kind": link.kind, "gb_per_s": link.gb_per_s, "how": link.how, "sure": link.sure}
            for link in graph.links
        ],
        "paths": [
            {"source": path.source, "target": path.target, "kind": path.kind.name,
             "gb_per_s": path.gb_per_s, "hops": path.hops, "stops": path.stops, "why": path.why}
            for path in (between(one, other) for one in ends for other in ends)
        ],
    }  # fmt: skip
