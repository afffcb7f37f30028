# SPDX-License-Identifier: Apache-2.0
"""Print settings to deploy, for rules, the network plugin and the send/recv library."""

import click

from nccltune.app.env import WITHOUT_COMMENTS, Deployment, LineFormat, lines
from nccltune.cli.output import is_json, message_console, print_json, stderr, styled


def show_deployment(deployed: Deployment, form: LineFormat) -> None:
    """Print the settings as lines of `form` or JSON; meanings go beside or to stderr."""
    if is_json():
        document: dict[str, object] = {"settings": deployed.settings, "rules": deployed.rules}
        document |= {"meanings": deployed.meanings} if deployed.meanings else {}
        document |= {"warnings": deployed.warnings} if deployed.warnings else {}
        print_json(document)
    else:
        if deployed.settings:
            click.echo(lines(deployed, form))
        if form in WITHOUT_COMMENTS:
            for name, meaning in deployed.meanings.items():
                message_console().print(f"{name}: {meaning}", style="dim", soft_wrap=True)
    for warning in deployed.warnings:
        stderr().print(styled(("warning:", "yellow"), f" {warning}"))
