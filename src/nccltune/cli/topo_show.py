# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo show`: the machine as a tree, a picture, and NCCL's paths."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.output import json_option, next_step, print_json, stdout

if TYPE_CHECKING:
    from nccltune.model.topology import Topology
    from nccltune.topology.links import LinkGraph
    from nccltune.topology.paths import Paths

EPILOG = """\b
Examples:
  nccltune topo show                               this machine
  nccltune topo show topo.xml
  nccltune topo show topo.txt --svg topo.svg       from nvidia-smi topo -m > topo.txt
  nccltune topo show topo.xml --set NCCL_P2P_LEVEL=SYS --nccl-version 2.28.9 --json
"""


@click.command(epilog=EPILOG)
@click.argument("what", required=False, type=click.Path(path_type=Path), metavar="[FILE|STUDY]")
@click.option("--svg", type=click.Path(path_type=Path), help="Write a picture to this file.")
@click.option("--nccl-version", metavar="X.Y.Z", help="Whose rules; without it the newest known.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help="A setting of NCCL that changes paths, such as NCCL_NET_GDR_LEVEL=SYS.",
)  # fmt: skip
@json_option()
def command(
    what: Path | None,
    svg: Path | None,
    nccl_version: str | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show a machine as NCCL sees it: what hangs on what, what each link carries and how that was
    derived, and the type of NCCL's path between every two GPUs and NICs.

    FILE is what NCCL dumps (NCCL_TOPO_DUMP_FILE), a file for NCCL_TOPO_FILE, RCCL's or FlagCX's,
    or the output of nvidia-smi topo -m. Without one it is this machine. A bandwidth with ? is a
    guess: NCCL's, or what a device id says of NVLinks that the file leaves to detection.
    """
    from nccltune.topology.build import link_graph
    from nccltune.topology.fill_in import filled
    from nccltune.topology.load import load_topology
    from nccltune.topology.machine import this_machine
    from nccltune.topology.paths import paths
    from nccltune.topology.settings import parse_settings, parse_version, path_settings

    version = parse_version(nccl_version) if nccl_version is not None else None
    chosen = parse_settings(settings)
    topology = load_topology(what) if what is not None else this_machine()
    whole = filled(topology)
    graph = link_graph([whole], nccl_version=version)
    ways = paths(graph, settings=path_settings(chosen), nccl_version=version)
    if svg is not None:
        _write_picture(svg, whole, graph)
    if as_json:
        print_json(_plain(topology, whole, graph, ways))
        return 0
    from nccltune.cli.topo_screen import show

    show(stdout(), whole, graph, ways)
    if what is not None and what.is_file():
        next_step("nccltune topo lint", what)
    return 0


def _write_picture(path: Path, topology: "Topology", graph: "LinkGraph") -> None:
    from nccltune.model.errors import InputError
    from nccltune.topology.fill_in import nvlink_is_open
    from nccltune.topology.picture import svg

    try:
        title = topology.name or topology.source
        drawn = svg(graph, title=title, detected=nvlink_is_open(topology))
        path.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", where=str(path), hint="name another file"
        ) from None


def _plain(
    topology: "Topology", whole: "Topology", graph: "LinkGraph", ways: "Paths"
) -> dict[str, Any]:
    """The file as it is, and the graph with what it leaves to detection (`assumed`)."""
    from nccltune.topology.fill_in import leaves_nvlink_out
    from nccltune.topology.links import NodeKind

    ends = [vertex.name for vertex in graph.vertices if vertex.kind in (NodeKind.GPU, NodeKind.NET)]
    shown = [ways.between(one, other) for one in ends for other in ends]
    return {
        "topology": topology,
        "nvlink_left_to_detection": leaves_nvlink_out(topology),
        "assumed": whole.assumed,
        "vertices": graph.vertices,
        "links": [
            {"name": link.name, "source": link.source, "target": link.target,
             "kind": link.kind, "gb_per_s": link.gb_per_s, "how": link.how, "sure": link.sure}
            for link in graph.links
        ],
        "paths": [
            {"source": path.source, "target": path.target, "kind": path.kind.name,
             "gb_per_s": path.gb_per_s, "hops": path.hops, "stops": path.stops, "why": path.why}
            for path in shown
        ],
    }  # fmt: skip
