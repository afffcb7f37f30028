# SPDX-License-Identifier: Apache-2.0
"""`nccltune compare`: two measurements size by size, or the many runs of a fleet."""

from pathlib import Path

import click

from nccltune.cli.options import PATH, options, scale_options
from nccltune.cli.output import is_json, print_result
from nccltune.cli.progress import working
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune compare nccl-2.28.txt nccl-2.29.txt
  nccltune compare studies/before studies/after --oneline
  nccltune compare pairs/
"""


@verb(epilog=EPILOG)
@click.argument("paths", nargs=-1, required=True, type=PATH, metavar="A B|FOLDER|FILES...")
@click.option("--oneline", is_flag=True, help="Print the verdict as one line, as for a chat.")
@scale_options(", where an input does not show it.")
@options("--assume-noise")
def command(
    paths: tuple[Path, ...],
    oneline: bool,
    nodes: int | None,
    ranks: int | None,
    assumed_noise: float,
) -> int:
    """Compare two measurements, or find what is slow among many runs of one test.

    Two inputs (studies, logs, or folders of logs) are compared size by size: B is after, A before.
    Facts that differ are listed first. A range of sizes counts only if it differs beyond the noise
    of the runs, or beyond the scatter along the curve if there are too few runs.

    One folder, or three and more files, are the runs of a fleet: pairs of nodes, checks of single
    nodes, checks over time, a scaling series. Nodes, pairs, periods and scales that are slower than
    the others are listed. Nothing is written.

    Exit code 1 if B is slower beyond noise; in a fleet if anything is slow or a test gave no
    result. Exit code 2 if there is nothing to compare.
    """
    from nccltune.app.compare import compare_paths
    from nccltune.cli.compare_screen import one_line, show

    with working("comparing"):
        found = compare_paths(paths, assumed_noise=assumed_noise, nodes=nodes, ranks=ranks)
    if oneline and not is_json():
        print(one_line(found))
    else:
        print_result(found, show, found)
    return int(found.has_finding)
