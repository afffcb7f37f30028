# SPDX-License-Identifier: Apache-2.0
"""`nccltune net`: the network plugin for TCP.

env.py             print the settings that load the plugin
stats.py           show the traffic of the plugin's connections
"""

import click

from nccltune.cli.lazy_group import LazyGroup

EPILOG = """\b
Examples:
  nccltune net env --format mpirun
  nccltune net stats --watch
"""
SECTIONS = {
    "Verbs": {
        "env": "print the settings that make stock NCCL load the plugin",
        "stats": "show what the plugin's connections carry right now, flow by flow",
    }
}
"""Every verb with its one-line help."""


@click.group(cls=LazyGroup, sections=SECTIONS, package="nccltune.cli.net", epilog=EPILOG)
def command() -> None:
    """Load the network plugin, and watch it at work."""
