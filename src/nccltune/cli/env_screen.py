# SPDX-License-Identifier: Apache-2.0
"""How settings to deploy are printed, for rules, network plugin and send/recv library."""

from typing import TYPE_CHECKING

import click

from nccltune.cli.options import Decorator, option
from nccltune.cli.output import print_json, stderr, styled, talk

if TYPE_CHECKING:
    from nccltune.app.env import Deployment, LineFormat

_FORMATS = ("shell", "nccl.conf", "sbatch", "mpirun", "kubernetes", "docker")


def format_option() -> Decorator:
    """Return `--format`."""
    kind = click.Choice(_FORMATS)
    return option("--format", "form", type=kind, default="shell", show_default=True)


def show_deployment(deployed: "Deployment", form: "LineFormat", *, as_json: bool) -> None:
    """Print the lines on stdout; warnings, and meanings that the format cannot hold, on stderr."""
    from nccltune.app.env import WITHOUT_COMMENTS, lines

    if as_json:
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
