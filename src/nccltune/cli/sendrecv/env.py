# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv env`: print the settings that load the send/recv library."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import PATH, option, options
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.env import LineFormat

EPILOG = """\b
Examples:
  eval "$(nccltune sendrecv env)"
  eval "$(nccltune sendrecv env studies/h200x4)"
"""


@verb(epilog=EPILOG)
@click.argument("study", type=PATH, required=False)
@options("--format")
@option("--library", more=", by its path on the nodes  [default: the installed one]")
def command(study: Path | None, form: "LineFormat", library: Path | None) -> None:
    """Print the settings that load the library before NCCL, for sends and receives by copy engines.

    With a STUDY also what its comparisons recommend (sendrecv sweep). Nothing is installed or
    changed. Settings of this shell that are in the way are named on stderr.
    """
    from nccltune.app.env import sendrecv_deployment
    from nccltune.cli.env_screen import show_deployment
    from nccltune.model.errors import InputError

    if form == "nccl.conf":
        raise InputError(
            "NCCL reads nccl.conf when the library is loaded already: it would come too late",
            where="--format",
            hint="--format shell, sbatch, mpirun, kubernetes or docker",
        )
    show_deployment(sendrecv_deployment(library=library, study=study), form)
