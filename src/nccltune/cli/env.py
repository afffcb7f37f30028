# SPDX-License-Identifier: Apache-2.0
"""`nccltune env`: the settings that deploy the rules."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.env_screen import format_option, show_deployment
from nccltune.cli.options import option
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.env import LineFormat

EPILOG = """\b
Examples:
  eval "$(nccltune env studies/h200x4)"
  nccltune env studies/h200x4 --format nccl.conf | sudo tee -a /etc/nccl.conf
"""


@verb(epilog=EPILOG)
@click.argument("config", type=click.Path(path_type=Path), metavar="STUDY|CONFIG")
@format_option()
@option("--plugin", type=click.Path(path_type=Path), metavar="FILE")
@click.option(
    "--config-path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the configuration will be on the nodes.",
)
def command(
    config: Path,
    form: "LineFormat",
    plugin: Path | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Print the settings that make stock NCCL load the rules.

    The argument is a study or a tuner configuration. Settings of NCCL that experiments of the study
    recommend (sendrecv settings, ab) are printed, too. Nothing is installed or changed; remove the
    lines and NCCL is as it was. Settings of this shell that are in the way are named on stderr. The
    network plugin and the send/recv library have lines of their own: net env, sendrecv env.
    """
    from nccltune.app.env import rules_deployment

    show_deployment(
        rules_deployment(config, plugin=plugin, config_path=config_path), form, as_json=as_json
    )
