# SPDX-License-Identifier: Apache-2.0
"""`nccltune net stats`: show the current traffic of the network plugin's connections."""

import click

from nccltune.cli.output import print_result
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune net stats
  nccltune net stats 41234 --watch
  nccltune net stats --json --interval 10 > stats.json
"""


@verb(epilog=EPILOG)
@click.argument("pids", metavar="[PID]...", nargs=-1, type=click.IntRange(1))
@click.option(
    "--interval",
    type=click.FloatRange(0, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Rates are those within this time; with --watch also the time between two. 0: no rates.",
)
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option("--brief", is_flag=True, help="Connections without their flows.")
def command(pids: tuple[int, ...], interval: float, watch: bool, brief: bool) -> None:
    """Show what the connections of the network plugin carry, flow by flow, while a job runs.

    Without PID: all processes of this user on this host that use the plugin. It reads memory that
    the plugin counts in; the job is not stopped, asked or slowed. In a container it sees the
    processes of that container, on a host those of its containers, too.

    With --watch and --json it prints a document a line.
    """
    from nccltune.app.net_stats import net_stats
    from nccltune.cli.net.stats_screen import document, show, show_watched

    found = net_stats(pids, interval_s=interval, watch=watch)
    if watch:
        show_watched(found, interval, brief=brief)
        return
    for processes in found:
        print_result(document(processes, interval), show, processes, brief=brief)
