# SPDX-License-Identifier: Apache-2.0
"""`nccltune status`: what NCCL has loaded in running processes, and whose settings win."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from nccltune.cli.options import LAUNCH, PATH, binds, options
from nccltune.cli.output import print_result
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.bench_launch import LaunchRequest

EPILOG = """\b
Examples:
  nccltune status
  nccltune status 41234 --json
  nccltune status --log job.out
  nccltune status --launcher slurm
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
@options("--launcher", "--nodes", "--set")
@binds(request=LAUNCH)
def command(
    pids: tuple[int, ...], logs: tuple[Path, ...], metrics: Path | None, request: LaunchRequest
) -> int:
    """Show the plugins, rules and settings of running processes, and who overrides whom.

    Without PID: all processes on this node that have NCCL loaded. The processes are not stopped,
    asked or slowed. Settings are those that a process started with and those of NCCL's files;
    --log adds what NCCL itself states, also of processes on other nodes. With --launcher every
    node is looked at, and the processes of a job on all nodes are compared. Exit code 1 if
    sources, ranks or libraries conflict, or a node does not answer.
    """
    from nccltune.app.bench_launch import keys_of
    from nccltune.app.status import status, status_of_nodes, write_metrics
    from nccltune.cli.requests import site
    from nccltune.cli.status_screen import show
    from nccltune.model.errors import InputError

    keys_of(request)
    if request.is_launched:
        if pids or logs or metrics:
            raise InputError(
                "looks at every node, without PID, --log and --metrics", where="‹launcher›"
            )
        found = status_of_nodes(request, site())
    else:
        found = status(pids, logs)
    if metrics is not None:
        write_metrics(found, metrics)
    print_result({**msgspec.structs.asdict(found), "conflicts": found.conflicts}, show, found)
    return int(bool(found.conflicts or found.unread))
