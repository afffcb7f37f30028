# SPDX-License-Identifier: Apache-2.0
"""`nccltune status`: what NCCL has loaded in running processes, and whose settings win."""

from pathlib import Path

import click
import msgspec

from nccltune.cli.options import PATH
from nccltune.cli.output import print_result
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune status
  nccltune status 41234 --json
  nccltune status --log job.out
  nccltune status -q --metrics /var/lib/node_exporter/nccltune.prom
"""


@verb(epilog=EPILOG)
@click.argument("pids", metavar="[PID]...", nargs=-1, type=click.IntRange(1))
@click.option(
    "--log",
    "logs",
    type=PATH,
    multiple=True,
    metavar="FILE",
    help="NCCL's log of one job (NCCL_DEBUG=INFO); may be given for each process.",
)
@click.option(
    "--metrics",
    type=PATH,
    metavar="FILE",
    help="Write calls of rules and traffic of the network plugin for Prometheus, by rename.",
)
def command(pids: tuple[int, ...], logs: tuple[Path, ...], metrics: Path | None) -> int:
    """Show the plugins, rules and settings of running processes, and who overrides whom.

    Without PID: all processes on this node that have NCCL loaded. The processes are not stopped,
    asked or slowed. Settings are those that a process started with and those of NCCL's files;
    --log adds what NCCL itself states, also of processes on other nodes. Exit code 1 if sources,
    ranks or libraries conflict.
    """
    from nccltune.app.status import status, write_metrics
    from nccltune.cli.status_screen import show

    found = status(pids, logs)
    if metrics is not None:
        write_metrics(found, metrics)
    print_result({**msgspec.structs.asdict(found), "conflicts": found.conflicts}, show, found)
    return int(bool(found.conflicts))
