# SPDX-License-Identifier: Apache-2.0
"""`nccltune env`: the settings that deploy the rules."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import FILE, PATH, options, output_option
from nccltune.cli.output import hint
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.env import LineFormat

EPILOG = """\b
Examples:
  eval "$(nccltune env studies/h200x4)"
  nccltune env studies/h200x4 --format nccl.conf | sudo tee -a /etc/nccl.conf
  nccltune env studies/2-nodes studies/4-nodes -o tuner.conf
  nccltune env --record /shared/calls
"""


@verb(epilog=EPILOG, dry_run=True)
@click.argument("configs", nargs=-1, type=PATH, metavar="[STUDY|CONFIG...]")
@output_option("output", "one configuration with the rules of all arguments.", metavar="FILE")
@options("--format", "--plugin")
@click.option("--config-path", help="Where the configuration will be on the nodes.", **FILE)
@click.option(
    "--record", type=PATH, metavar="DIR", help="Record what the job calls, in this folder."
)
def command(
    configs: tuple[Path, ...],
    output: Path | None,
    form: "LineFormat",
    plugin: Path | None,
    config_path: Path | None,
    record: Path | None,
    dry_run: bool,
) -> int:
    """Print the settings that make stock NCCL load the rules.

    The argument is a study or a tuner configuration. Several, such as those of 2, 4 and 8 nodes,
    become one file with -o. Settings of NCCL that experiments of the study
    recommend (ab) are printed, too. Nothing is installed or changed; remove the
    lines and NCCL is as it was. Warnings on stderr name settings of this shell that are in the way,
    rules that are only candidates, and rules that were not measured on real nodes. Without a rule
    or setting the exit code is 1. With --record, also without an argument, NCCL counts the calls of
    each process in a folder, which workload show and tune --workload read; the recorder is beside
    --plugin. The network plugin and the send/recv library have lines of their own: net env,
    sendrecv env.
    """
    from nccltune.app.env import (
        POD_CONFIG,
        POD_PLUGIN,
        Deployment,
        joined_deployment,
        record_deployment,
        rules_deployment,
    )
    from nccltune.cli.env_screen import show_deployment
    from nccltune.model.errors import InputError
    from nccltune.native.locate import RECORDER

    if not configs and record is None:
        raise click.UsageError("Missing argument 'STUDY|CONFIG...', or --record DIR.")
    if not configs and (output or config_path):
        name = "-o" if output else "--config-path"
        raise click.UsageError(f"{name} is for rules: name a study or a configuration.")
    if form == "kubernetes":
        # A pod has none of this machine's paths.
        plugin, config_path = plugin or POD_PLUGIN, config_path or POD_CONFIG
        parts = [str(plugin), str(config_path)] if configs else []
        parts += [str(plugin.with_name(RECORDER.name))] if record else []
        hint(f"the pod needs {' and '.join(parts)}: docs/guides/deploying.md")
    if not configs:
        deployed = Deployment({}, {}, [])
    elif output is not None:
        deployed = joined_deployment(
            configs, output, plugin=plugin, config_path=config_path, dry_run=dry_run
        )
    elif len(configs) > 1:
        raise InputError(
            "several studies need one file that holds the rules of all of them",
            hint="add -o tuner.conf",
        )
    else:
        deployed = rules_deployment(configs[0], plugin=plugin, config_path=config_path)
    if record is not None:
        beside = None if plugin is None else plugin.with_name(RECORDER.name)
        recording = record_deployment(record, recorder=beside)
        deployed = deployed._replace(
            settings=deployed.settings | recording.settings,
            meanings=deployed.meanings | recording.meanings,
            warnings=deployed.warnings + recording.warnings,
        )
    show_deployment(deployed, form)
    return int(not deployed.settings)
