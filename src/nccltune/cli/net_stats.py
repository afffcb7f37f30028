# SPDX-License-Identifier: Apache-2.0
"""`nccltune net-stats`: what the network plugin's connections do right now."""

import time
from typing import TYPE_CHECKING

import click

from nccltune.cli.output import json_option, print_json, stderr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nccltune.native.net_processes import NetProcess, NetWatch

EPILOG = """\b
Examples:
  nccltune net-stats
  nccltune net-stats 41234 --watch
  nccltune net-stats --json --interval 10 > stats.json
"""


@click.command(epilog=EPILOG)
@click.argument("pids", metavar="[PID]...", nargs=-1, type=click.IntRange(1))
@click.option(
    "--interval",
    type=click.FloatRange(0, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Rates are those within this time; with --watch also between two looks. 0: no rates.",
)
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@click.option("--brief", is_flag=True, help="Connections without their flows.")
@json_option()
def command(
    pids: tuple[int, ...], interval: float, watch: bool, brief: bool, as_json: bool
) -> None:
    """Show what the connections of the network plugin carry, flow by flow, while a job runs.

    Without PID: all processes of this user on this host that use the plugin. It reads memory that
    the plugin counts in; the job is not stopped, asked or slowed. In a container it sees the
    processes of that container, on a host those of its containers, too.

    With --watch and --json it prints one line a look.
    """
    from nccltune.model.errors import InputError
    from nccltune.native.net_processes import NetWatch

    if watch and interval < 0.1:
        raise InputError("--watch needs --interval of 0.1 or more")
    processes = NetWatch(pids)
    found = processes.read()
    if watch:
        _watch(processes, interval, brief=brief, as_json=as_json, until_gone=bool(pids))
        return
    if interval and any(process.connections for process in found):
        time.sleep(interval)
        found = processes.read()
    if as_json:
        print_json(_document(found, interval))
        return
    _print(found, brief=brief)


def _watch(
    watch: "NetWatch", interval: float, *, brief: bool, as_json: bool, until_gone: bool
) -> None:
    import contextlib
    import json
    import sys

    import msgspec

    from nccltune.cli.net_stats_screen import screen
    from nccltune.cli.output import stdout

    out = stdout()
    with contextlib.ExitStack() as stack:
        live = None
        if out.is_terminal and not as_json:
            from rich.live import Live

            live = stack.enter_context(Live(console=out, auto_refresh=False, screen=True))
        # To stop is how it is meant to end.
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        while True:
            time.sleep(interval)
            found = watch.read()
            if until_gone and not found:
                break
            if as_json:
                document = msgspec.to_builtins(_document(found, interval))
                sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
                sys.stdout.flush()
            elif live is not None:
                shown = screen(found, brief=brief, empty=_NOTHING, width=out.width)
                live.update(shown, refresh=True)
            else:
                _print(found, brief=brief)
                out.print()
                sys.stdout.flush()


_NOTHING = "no process of this user has a connection of the network plugin"


def _print(found: "Sequence[NetProcess]", *, brief: bool) -> None:
    from nccltune.cli.net_stats_screen import screen
    from nccltune.cli.output import stdout

    if found:
        out = stdout()
        width = out.width if out.is_terminal else None
        out.print(screen(found, brief=brief, empty=_NOTHING, width=width))
        return
    note = stderr()
    note.print(_NOTHING)
    note.print(
        "Connections are made with the first collective; NCCL_DEBUG=INFO says at init which "
        "network NCCL takes. Processes of other users are shown to root.",
        style="dim",
    )


def _document(found: "Sequence[NetProcess]", interval: float) -> dict[str, object]:
    return {"schema_version": 1, "interval_s": interval or None, "processes": list(found)}
