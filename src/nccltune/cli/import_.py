# SPDX-License-Identifier: Apache-2.0
"""`nccltune import`: read measurements of any known format into a study."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import binds, option, options, output_option, scale_options
from nccltune.cli.output import print_result, warn
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.importing import ImportRequest

EPILOG = """\b
Examples:
  nccltune import runs/ -o studies/h200x4
  srun -l all_reduce_perf_mpi -b 8 -e 8G -f 2 | nccltune import - -o studies/a --choice tree/ll
"""


@verb(epilog=EPILOG, dry_run=True)
@click.argument("files", nargs=-1, required=True)
@output_option("study", "the study; made if it is not there.", required=True)
@options("--choice", option("--collective", more=", where nothing in a file names it."))
@scale_options(", where a file does not show it.")
@click.option(
    "--per-iteration",
    is_flag=True,
    help="From an nccl-tests JSON take each iteration's time instead of their mean.",
)
@click.option(
    "--in-rounds",
    is_flag=True,
    help="The k-th runs of all choices ran close together, in the order of the files.",
)
@click.option(
    "--split",
    is_flag=True,
    help="Write files of other platforms to studies beside this one: STUDY-2, STUDY-3.",
)
@click.option("--platform-name", metavar="NAME", help="Name of the platform in a new study.")
@binds(request="nccltune.app.importing:ImportRequest")
def command(files: tuple[str, ...], request: ImportRequest, dry_run: bool) -> int:
    """Read measurements into a study: any number of files and folders, or - for standard input.

    Known by their content: output of nccl-tests (2.0 to 2.20, with launcher prefixes, command and
    NCCL log lines in it), its JSON (-J), output and results files of rccl-tests, NVIDIA's raw CSV,
    samples of another study; and a node's hardware (NCCL_TOPO_DUMP_FILE's XML, nvidia-smi topo
    -m), which the study keeps. What cannot be read is counted and shown, never guessed; runs that
    are not what they claim are flagged. A run that is in the study already, in this or another
    file, is skipped. Runs of different platforms are refused: a study is of one. Exit code 1 if a
    flag puts the numbers in doubt or a row could not be read, 2 if a file was refused or nothing
    could be read.
    """
    from nccltune.app.importing import ImportRun
    from nccltune.cli.import_screen import BytesRead, show

    run = ImportRun(request, files)
    try:
        with BytesRead(run.total_bytes) as progress:
            result = run.run(progress.read, dry_run=dry_run)
    except KeyboardInterrupt:
        warn(["nothing was imported; the same command starts again"])
        raise
    told = ("choice", "collective", "nodes", "ranks")
    given = [
        f"--{name} {shlex.quote(str(value))}"
        for name in told
        if (value := getattr(request, name)) is not None
    ]
    given += ["--per-iteration"] * request.per_iteration + ["--in-rounds"] * request.in_rounds
    again = " ".join(["nccltune import", shlex.join(files), *given])
    print_result(result.imported, show, result.imported, request.study, again, dry_run=dry_run)
    return result.exit_code
