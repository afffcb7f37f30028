# SPDX-License-Identifier: Apache-2.0
"""`nccltune net env`: the settings that load the network plugin."""

from pathlib import Path
from typing import TYPE_CHECKING

from nccltune.cli.options import option, options
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.env import LineFormat

EPILOG = """\b
Examples:
  eval "$(nccltune net env)"
  nccltune net env --format mpirun --nccl-version 2.20.5
"""


@verb(epilog=EPILOG)
@options("--format", "--plugin")
@option(
    "--nccl-version", more=" on the nodes: prints what it needs  [default: one that takes a path]"
)
def command(form: "LineFormat", plugin: Path | None, nccl_version: str | None) -> None:
    """Print the settings that make stock NCCL load the network plugin for TCP.

    Nothing is installed or changed; remove the lines and NCCL uses its own sockets again. Settings
    of this shell that are in the way are named on stderr.
    """
    from nccltune.app.env import net_deployment
    from nccltune.cli.env_screen import show_deployment

    show_deployment(net_deployment(plugin=plugin, nccl=nccl_version), form)
