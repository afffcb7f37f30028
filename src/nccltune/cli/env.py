# SPDX-License-Identifier: Apache-2.0
"""`nccltune env`: the lines that deploy the rules, the network plugin, and send/recv."""

import json
import os
import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path

import click

from nccltune.cli.output import json_option, print_json, stderr, styled

EPILOG = """\b
Examples:
  eval "$(nccltune env studies/h200x4)"
  nccltune env studies/h200x4 --format nccl.conf | sudo tee -a /etc/nccl.conf
  nccltune env --net --format mpirun
  eval "$(nccltune env --sendrecv)"
  eval "$(nccltune env --sendrecv studies/h200x4)"
"""

FORMATS = ("shell", "nccl.conf", "sbatch", "mpirun", "kubernetes", "docker")
WITHOUT_COMMENTS = ("mpirun", "docker")
"""These are parts of one line: what a setting means is said on stderr."""


@click.command(epilog=EPILOG)
@click.argument("config", type=click.Path(path_type=Path), required=False)
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
@click.option("--net", is_flag=True, help="The network plugin for TCP, too, or alone.")
@click.option(
    "--net-plugin",
    type=click.Path(path_type=Path),
    help="Where the network plugin will be on the nodes.",
)
@click.option(
    "--nccl", metavar="VERSION", help="NCCL on the nodes (2.28.9): what it needs for --net."
)
@click.option("--sendrecv", is_flag=True, help="Sends and receives by copy engines, too, or alone.")
@click.option(
    "--sendrecv-library",
    type=click.Path(path_type=Path),
    help="Where the library for them will be on the nodes.",
)
@json_option()
def command(
    config: Path | None,
    form: str,
    plugin: Path | None,
    config_path: Path | None,
    net: bool,
    net_plugin: Path | None,
    nccl: str | None,
    sendrecv: bool,
    sendrecv_library: Path | None,
    as_json: bool,
) -> None:
    """Print the settings that make stock NCCL load the rules, with --net the network plugin, with
    --sendrecv the library before NCCL.

    CONFIG is a study or a tuner configuration. Settings that a study recommends (sweep --p2p, and
    with --sendrecv those of sweep --sendrecv) or has kept (try) are printed, too. Nothing is
    installed or changed; remove the lines and NCCL is as it was. Settings already in this shell
    that would get in the way are named on stderr.
    """
    from nccltune.cli.env_net import net_conflicts, net_deployment
    from nccltune.cli.env_sendrecv import sendrecv_conflicts, sendrecv_deployment

    if config is None and not net and not sendrecv:
        raise click.UsageError(
            "Missing argument 'CONFIG' (or --net for the network plugin, --sendrecv for sends and "
            "receives by copy engines)."
        )
    if not net and (net_plugin is not None or nccl is not None):
        raise click.UsageError("--net-plugin and --nccl are for --net.")
    if not sendrecv and sendrecv_library is not None:
        raise click.UsageError("--sendrecv-library is for --sendrecv.")
    if sendrecv and form == "nccl.conf":
        raise click.UsageError("--sendrecv is not for nccl.conf, which NCCL reads: too late.")
    rules: int | None = None
    settings: dict[str, str] = {}
    meanings: dict[str, str] = {}
    warnings: list[str] = []
    if config is not None:
        settings, rules, warnings = _deploy_rules(config, plugin, config_path, sendrecv=sendrecv)
        warnings += conflicts(os.environ.copy())
    if net:
        deployed = net_deployment(plugin=net_plugin, nccl=nccl)
        settings |= deployed.settings
        meanings |= deployed.meanings
        warnings += deployed.notes + net_conflicts(os.environ.copy(), deployed.settings)
    if sendrecv:
        before = sendrecv_deployment(library=sendrecv_library, study=config)
        settings |= before.settings
        meanings |= before.meanings
        warnings += before.notes + sendrecv_conflicts(os.environ.copy(), before.settings)
    note = stderr()
    if as_json:
        shown: dict[str, object] = {"settings": settings, "rules": rules}
        print_json(shown | ({"meanings": meanings} if meanings else {}))
    else:
        click.echo(_lines(settings, form, meanings))
        if form in WITHOUT_COMMENTS:
            for name, meaning in meanings.items():
                note.print(f"{name}: {meaning}", style="dim", markup=False)
    for warning in warnings:
        note.print(styled(("warning:", "yellow"), f" {warning}"))


def _deploy_rules(
    config: Path, plugin: Path | None, config_path: Path | None, *, sendrecv: bool
) -> tuple[dict[str, str], int, list[str]]:
    """The settings, how many rules they load, and what is wrong with those. With `sendrecv` a study
    that tells of nothing else has none."""
    from nccltune.cli.env_sendrecv import has_threshold
    from nccltune.formats.nccl_conf import read_conf
    from nccltune.formats.tuner_csv import read_rules
    from nccltune.model.errors import InputError
    from nccltune.model.scale import count

    path = config / "tuner.conf" if config.is_dir() else config
    settings: dict[str, str] = {}
    for name in ("p2p.conf", "try.conf"):
        kept = config / name
        settings |= read_conf(kept) if kept.is_file() else {}
    if not path.is_file():
        compared = has_threshold(config)
        if settings or (sendrecv and compared):
            return settings, 0, []
        hint = f"make it: nccltune tune {config}"
        if sendrecv:
            hint = f"find its threshold: nccltune sweep --sendrecv -o {config}"
        elif compared:
            hint = f"it has a threshold for copy engines: nccltune env --sendrecv {config}"
        raise InputError("no such configuration", where=str(path), hint=hint)
    read = read_rules(path)
    settings |= deployment(path, plugin=plugin, config_path=config_path)
    bad = count(len(read.problems), "bad line")
    command = f"nccltune lint {shlex.quote(str(path))}"
    wrong = [f"{path} has {bad} for the plugin to leave out: {command}"] if read.problems else []
    return settings, len(read.rules), wrong


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


def _lines(settings: dict[str, str], form: str, meanings: Mapping[str, str]) -> str:
    """The settings as they stand in `form`, each under what it means where that is known."""
    from nccltune.model.errors import InputError

    pairs = settings.items()
    if form == "mpirun":
        return " ".join(f"-x {shlex.quote(f'{name}={value}')}" for name, value in pairs)
    if form == "docker":
        return " ".join(f"-e {shlex.quote(f'{name}={value}')}" for name, value in pairs)
    lines = ["env:"] if form == "kubernetes" else []
    for name, value in pairs:
        if name in meanings:
            lines += textwrap.wrap(meanings[name], 96, initial_indent="# ", subsequent_indent="# ")
        if form == "kubernetes":
            lines += [f"- name: {name}", f"  value: {json.dumps(value)}"]
        elif form == "nccl.conf":
            if "\n" in value:
                raise InputError(f"{name}: nccl.conf cannot hold a path with a line break")
            # NCCL takes everything behind the sign, quotes included.
            lines.append(f"{name}={value}")
        else:
            lines.append(f"export {name}={shlex.quote(value)}")
    return "\n".join(lines)
