# SPDX-License-Identifier: Apache-2.0
"""`nccltune env`: the lines that deploy the rules."""

import os
import shlex
from pathlib import Path

import click

from nccltune.cli.output import json_option, print_json, stderr

EPILOG = """\b
Examples:
  eval "$(nccltune env studies/h200x4)"
  nccltune env studies/h200x4 --format nccl.conf | sudo tee -a /etc/nccl.conf
"""

FORMATS = ("shell", "nccl.conf", "sbatch", "mpirun", "kubernetes", "docker")


@click.command(epilog=EPILOG)
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="shell",
    show_default=True,
    help="Where the lines will stand.",
)
@click.option(
    "--plugin", type=click.Path(path_type=Path), help="Where the plugin will be on the nodes."
)
@click.option(
    "--config-path", type=click.Path(path_type=Path), help="Where the file will be on the nodes."
)
@json_option()
def command(
    config: Path, form: str, plugin: Path | None, config_path: Path | None, as_json: bool
) -> None:
    """Print the two settings that make stock NCCL load the rules.

    CONFIG is a study or a tuner configuration. Settings of send/recv that a study recommends
    (sweep --p2p) are printed, too. Nothing is installed or changed; remove the lines and NCCL is
    as it was. Settings already in this shell that would get in the way are named on stderr.
    """
    from rich.markup import escape

    from nccltune.formats.nccl_conf import read_conf
    from nccltune.formats.tuner_csv import read_rules
    from nccltune.model.errors import InputError
    from nccltune.model.scale import count

    path = config / "tuner.conf" if config.is_dir() else config
    p2p = config / "p2p.conf"
    settings = read_conf(p2p) if p2p.is_file() else {}
    if not path.is_file() and not settings:
        raise InputError(
            "no such configuration", where=str(path), hint=f"make it: nccltune tune {config}"
        )
    read = read_rules(path) if path.is_file() else None
    if read is not None:
        settings |= deployment(path, plugin=plugin, config_path=config_path)
    if as_json:
        print_json({"settings": settings, "rules": len(read.rules) if read else 0})
    else:
        click.echo(_lines(settings, form))
    note = stderr()
    if read is not None and read.problems:
        note.print(
            f"[yellow]warning:[/yellow] {escape(str(path))} has "
            f"{count(len(read.problems), 'bad line')} for the plugin to leave out: nccltune lint "
            f"{escape(shlex.quote(str(path)))}"
        )
    for warning in conflicts(os.environ.copy()):
        note.print(f"[yellow]warning:[/yellow] {escape(warning)}")


def deployment(
    config: Path, *, plugin: Path | None = None, config_path: Path | None = None
) -> dict[str, str]:
    """The settings that make stock NCCL load the rules in `config`; `plugin` and `config_path` are
    where the two will be, if not where they are here. Raises PlatformError without a plugin."""
    from nccltune.native import tuner_path

    return {
        "NCCL_TUNER_PLUGIN": str(plugin or tuner_path()),
        "NCCL_TUNER_CONFIG_FILE": str(config_path or config.resolve()),
    }


def conflicts(environment: dict[str, str]) -> list[str]:
    """What in `environment` would keep the rules from being used."""
    found = []
    for name in ("NCCL_ALGO", "NCCL_PROTO"):
        if environment.get(name):
            found.append(
                f"{name}={environment[name]} is set: NCCL filters by it first, and rules for "
                "anything else are passed over"
            )
    if environment.get("NCCL_TUNER_PLUGIN"):
        found.append(
            f"NCCL_TUNER_PLUGIN={environment['NCCL_TUNER_PLUGIN']} is set and will be replaced"
        )
    if environment.get("NCCLTUNE_CONFIG"):
        found.append(
            f"NCCLTUNE_CONFIG={environment['NCCLTUNE_CONFIG']} is set: our plugin reads it rather "
            "than NCCL_TUNER_CONFIG_FILE"
        )
    return found


def _lines(settings: dict[str, str], form: str) -> str:
    from nccltune.model.errors import InputError

    pairs = settings.items()
    if form == "nccl.conf":
        for name, value in pairs:
            if "\n" in value:
                raise InputError(f"{name}: nccl.conf cannot hold a path with a line break")
        # NCCL takes everything behind the sign, quotes included.
        return "\n".join(f"{name}={value}" for name, value in pairs)
    if form == "mpirun":
        return " ".join(f"-x {shlex.quote(f'{name}={value}')}" for name, value in pairs)
    if form == "docker":
        return " ".join(f"-e {shlex.quote(f'{name}={value}')}" for name, value in pairs)
    if form == "kubernetes":
        import json

        return "env:\n" + "\n".join(
            f"- name: {name}\n  value: {json.dumps(value)}" for name, value in pairs
        )
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in pairs)
