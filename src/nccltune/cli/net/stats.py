# SPDX-License-Identifier: Apache-2.0
"""`nccltune net stats`: what the network plugin's connections carry right now."""

from typing import TYPE_CHECKING

import click

from nccltune.cli.output import hint, note, print_json
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nccltune.native.net_processes import NetProcess

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
def command(
    pids: tuple[int, ...], interval: float, watch: bool, brief: bool, as_json: bool
) -> None:
    """Show what the connections of the network plugin carry, flow by flow, while a job runs.

    Without PID: all processes of this user on this host that use the plugin. It reads memory that
    the plugin counts in; the job is not stopped, asked or slowed. In a container it sees the
    processes of that container, on a host those of its containers, too.

    With --watch and --json it prints a document a line.
    """
    from nccltune.app.net_stats import net_stats

    found = net_stats(pids, interval_s=interval, watch=watch)
    if watch:
        _watch(found, interval, brief=brief, as_json=as_json)
        return
    for processes in found:
        if as_json:
            print_json(_document(processes, interval))
        else:
            _print(processes, brief=brief)


def _watch(
    found: "Iterable[Sequence[NetProcess]]", interval: float, *, brief: bool, as_json: bool
) -> None:
    import contextlib
    import sys

    from nccltune.cli.net.stats_screen import screen
    from nccltune.cli.output import stdout

    out = stdout()
    with contextlib.ExitStack() as stack:
        live = None
        if out.is_terminal and not as_json:
            from rich.live import Live

            live = stack.enter_context(Live(console=out, auto_refresh=False, screen=True))
        # Ctrl-C is the normal way to end this command.
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        for processes in found:
            if as_json:
                print_json(_document(processes, interval), indent=None)
            elif live is not None:
                shown = screen(processes, brief=brief, empty=_NOTHING, width=out.width)
                live.update(shown, refresh=True)
            else:
                _print(processes, brief=brief)
                out.print()
            sys.stdout.flush()


_NOTHING = "no process of this user has a connection of the network plugin"


def _print(found: "Sequence[NetProcess]", *, brief: bool) -> None:
    from nccltune.cli.net.stats_screen import screen
    from nccltune.cli.output import stdout

    if found:
        out = stdout()
        width = out.width if out.is_terminal else None
        out.print(screen(found, brief=brief, empty=_NOTHING, width=width))
        return
    note(_NOTHING)
    hint(
        "Connections are made with the first collective; NCCL_DEBUG=INFO logs at init which "
        "network NCCL takes. Processes of other users are shown to root."
    )


def _document(found: "Sequence[NetProcess]", interval: float) -> dict[str, object]:
    return {"interval_s": interval or None, "processes": list(found)}
