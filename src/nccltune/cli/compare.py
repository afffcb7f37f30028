# SPDX-License-Identifier: Apache-2.0
"""`nccltune compare`: one measurement among published ones, two size by size, or a fleet."""

from pathlib import Path

import click

from nccltune.cli.options import FILE, PATH, option, options, output_option, scale_options
from nccltune.cli.output import is_json, print_result
from nccltune.cli.progress import working
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune compare run.txt --nics 8x400
  nccltune compare nccl-2.28.txt nccl-2.29.txt
  nccltune compare studies/before studies/after --oneline
  nccltune compare pairs/
"""


@verb(epilog=EPILOG)
@click.argument("paths", nargs=-1, required=True, type=PATH, metavar="LOG|A B|FOLDER|FILES...")
@click.option("--oneline", is_flag=True, help="Print the verdict as one line, as for a chat.")
@scale_options(", where an input does not show it.")
@option("--collective", more=", where an input does not show it.")
@options("--gpu", "--nics")
@option("--topology", more=", for the ceiling of its links and the times of NCCL's model.")
@click.option(
    "--reference",
    "references",
    multiple=True,
    help="More reference systems: a file that `-o` wrote, or a folder of them.",
    **FILE,
)
@output_option(
    "output", "append the curves of LOG to a reference file, named for the system.", metavar="FILE"
)
@options("--assume-noise")
def command(
    paths: tuple[Path, ...],
    oneline: bool,
    nodes: int | None,
    ranks: int | None,
    collective: str | None,
    gpu: str | None,
    nics: str | None,
    topology: Path | None,
    references: tuple[Path, ...],
    output: Path | None,
    assumed_noise: float,
) -> int:
    """Compare one measurement with published ones, two with each other, or find what is slow.

    One log, study or file with tables of several collectives is placed among published systems that
    are alike: the bandwidth at its largest size, the latency at its smallest.

    Two inputs (studies, logs, or folders of logs) are compared size by size: B is after, A before.
    Facts that differ are listed first. A range of sizes counts only if it differs beyond the noise
    of the runs, or beyond the scatter along the curve if there are too few runs.

    One folder, or three and more files, are the runs of a fleet: pairs of nodes, checks of single
    nodes, checks over time, a scaling series. Nodes, pairs, periods and scales that are slower than
    the others are listed. Only -o writes a file.

    Exit code 1 if LOG is clearly below what it is compared with, or B is slower beyond noise; in a
    fleet if anything is slow or a test gave no result. Exit code 2 if there is nothing to compare.
    """
    from nccltune.app.compare import FleetCompared, compare_paths
    from nccltune.app.compare_reference import ReferenceCompared, ReferenceRequest
    from nccltune.cli.compare_screen import one_line, show
    from nccltune.cli.output import next_step
    from nccltune.cli.reference_screen import placed_line, show_placed
    from nccltune.doctor.evidence.folder import is_known

    request = ReferenceRequest(gpu, nics, topology, references, output)
    with working("comparing"):
        found = compare_paths(
            paths,
            assumed_noise=assumed_noise,
            nodes=nodes,
            ranks=ranks,
            collective=collective,
            reference=request,
        )
    if isinstance(found, ReferenceCompared):
        if oneline and not is_json():
            print(placed_line(found))
        else:
            print_result(found, show_placed, found)
            if found.exit_code == 1 and not is_json() and is_known(paths[0]):
                next_step("nccltune doctor", paths[0])
        return found.exit_code
    if oneline and not is_json():
        print(one_line(found))
    else:
        print_result(found, show, found)
    if isinstance(found, FleetCompared) and not found.is_judged:
        if len(paths) == 1:
            next_step("nccltune analyze", paths[0])
        return 2
    return int(found.has_finding)
