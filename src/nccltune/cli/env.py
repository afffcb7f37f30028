# SPDX-License-Identifier: Apache-2.0
"""`nccltune env`: the settings that deploy the rules."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import FILE, PATH, options
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.env import LineFormat

EPILOG = """\b
Examples:
  eval "$(nccltune env studies/h200x4)"
  nccltune env studies/h200x4 --format nccl.conf | sudo tee -a /etc/nccl.conf
"""


@verb(epilog=EPILOG)
@click.argument("config", type=PATH, metavar="STUDY|CONFIG")
@options("--format", "--plugin")
@click.option("--config-path", help="Where the configuration will be on the nodes.", **FILE)
def command(config: Path, form: "LineFormat", plugin: Path | None, config_path: Path | None) -> int:
    """Print the settings that make stock NCCL load the rules.

    The argument is a study or a tuner configuration. Settings of NCCL that experiments of the study
    recommend (sendrecv settings, ab) are printed, too. Nothing is installed or changed; remove the
    lines and NCCL is as it was. Warnings on stderr name settings of this shell that are in the way,
    rules that are only candidates, and rules that were not measured on real nodes. Without a rule
    or setting the exit code is 1. The network plugin and the send/recv library have lines of their
    own: net env, sendrecv env.
    """
    from nccltune.app.env import rules_deployment
    from nccltune.cli.env_screen import show_deployment

    deployed = rules_deployment(config, plugin=plugin, config_path=config_path)
    show_deployment(deployed, form)
    return int(not deployed.settings)
