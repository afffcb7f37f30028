# SPDX-License-Identifier: Apache-2.0
"""`nccltune workload show`: show what recordings of a job hold."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from nccltune.cli.options import PATH
from nccltune.cli.output import hint, print_result
from nccltune.cli.progress import working
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune workload show rank0.pt.trace.json.gz
  nccltune workload show nccl.log --json
"""


@verb(epilog=EPILOG)
@click.argument("paths", nargs=-1, required=True, type=PATH, metavar="FILES|DIR...")
@click.option(
    "--study",
    type=PATH,
    metavar="STUDY",
    help="Say what the send/recv library, the net plugin or settings are worth that it measured.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of steps that each rank ran, if the recording has none: all numbers are a step's.",
)
def command(paths: tuple[Path, ...], study: Path | None, steps: int | None) -> None:
    """Show what a job sends: bytes, calls and time by communicator, collective and range of sizes.

    Reads logs of NCCL with the calls (NCCL_DEBUG_SUBSYS=INIT,COLL), traces of the PyTorch profiler,
    PyTorch execution traces in JSON, Chakra's protobuf files, dumps of PyTorch's Flight Recorder,
    JSON lines of NCCL's Inspector, dumps of NCCLX and the folder of nccltune's recorder (nccltune
    env --record DIR), also compressed by gzip. All files are of one job: a file for each rank is
    best, and one format. Sizes are total sizes, as NCCL's tuner counts them. Numbers are means of a
    step where every rank recorded steps, else of a rank.
    """
    from nccltune.app.workload import show_workload
    from nccltune.cli.workload_screen import show_recorded

    with working("reading"):
        found = show_workload(paths, study, steps)
    print_result(found, show_recorded, found)
    words = shlex.join(word for path in paths for word in ("--workload", str(path)))
    hint(f"next: which rules pay for this job: nccltune tune STUDY {words}")
