# SPDX-License-Identifier: Apache-2.0
"""How settings to deploy are printed, for rules, network plugin and send/recv library."""

import click

from nccltune.app.env import WITHOUT_COMMENTS, Deployment, LineFormat, lines
from nccltune.cli.output import is_json, print_json, stderr, styled, talk


def show_deployment(deployed: Deployment, form: LineFormat) -> None:
    """Print the lines on stdout; warnings, and meanings that the format cannot hold, on stderr."""
    if is_json():
        document: dict[str, object] = {"settings": deployed.settings, "rules": deployed.rules}
        document |= {"meanings": deployed.meanings} if deployed.meanings else {}
        print_json(document)
    else:
        click.echo(lines(deployed, form))
        if form in WITHOUT_COMMENTS:
            for name, meaning in deployed.meanings.items():
                talk().print(f"{name}: {meaning}", style="dim")
    for warning in deployed.warnings:
        stderr().print(styled(("warning:", "yellow"), f" {warning}"))
