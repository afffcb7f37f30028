# SPDX-License-Identifier: Apache-2.0
"""`nccltune net stats`: show the current traffic of the network plugin's connections."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from nccltune.cli.output import hint, is_json, note, print_json, print_result, stdout
from nccltune.cli.verb import verb
from nccltune.model.scale import count

if TYPE_CHECKING:
    from rich.text import Text

    from nccltune.native.net_processes import NetProcess
    from nccltune.native.net_stats import NetConnection, NetFlow

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

    found = net_stats(pids, interval_s=interval, watch=watch)
    if watch:
        show_watched(found, interval, brief=brief)
        return
    for processes in found:
        print_result(document(processes, interval), show, processes, brief=brief)


_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SPEEDS = ("B/s", "kB/s", "MB/s", "GB/s")


_NOTHING = "no process of this user has a connection of the network plugin"


def show(found: Sequence[NetProcess], *, brief: bool) -> None:
    """Print every process, or a message if there is none."""
    if found:
        out = stdout()
        out.print(screen(found, brief=brief, width=out.width if out.is_terminal else None))
        return
    note(_NOTHING)
    hint(
        "Connections are made with the first collective; NCCL_DEBUG=INFO logs at init which "
        "network NCCL takes. Processes of other users are shown to root."
    )


def show_watched(found: Iterable[Sequence[NetProcess]], interval: float, *, brief: bool) -> None:
    """Print the processes repeatedly until Ctrl-C; with `--json`, as one JSON object a line."""
    from rich.live import Live

    out = stdout()
    with contextlib.ExitStack() as stack:
        live = None
        if out.is_terminal and not is_json():
            live = stack.enter_context(Live(console=out, auto_refresh=False, screen=True))
        # Ctrl-C is the normal way to end this command.
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        for processes in found:
            if is_json():
                print_json(document(processes, interval), indent=None)
            elif live is not None:
                live.update(screen(processes, brief=brief, width=out.width), refresh=True)
            else:
                show(processes, brief=brief)
                out.print()
            sys.stdout.flush()


def document(found: Sequence[NetProcess], interval: float) -> dict[str, object]:
    """Return the processes in the form that `--json` prints."""
    return {"interval_s": interval or None, "processes": list(found)}


def screen(found: Sequence[NetProcess], *, brief: bool, width: int | None) -> Text:
    """Return processes, connections and flows (not if `brief`) as text of this width."""
    from rich.text import Text

    lines: list[Text] = []
    for process in found:
        line = Text(f"pid {process.pid}", style="bold")
        line.append(f"  {count(len(process.connections), 'connection')}  {process.command}", "dim")
        if width is not None:
            line.truncate(width, overflow="ellipsis")
        lines.append(line)
        lines += [Text(f"warning    {problem}", "yellow") for problem in process.problems]
        for connection in process.connections:
            lines.append(_connection(connection))
            if not brief:
                lines += _flows(connection, width)
    return Text("\n").join(lines or [Text(_NOTHING, "dim")])


def _connection(item: NetConnection) -> Text:
    from rich.text import Text

    way = "to" if item.role == "sends" else "from"
    line = Text(f"{item.role:<10} {way} {item.peer} on {item.device}")
    rate = "" if item.bytes_per_s is None else f" · {speed_text(item.bytes_per_s)}"
    line.append(f" · {size_text(item.bytes)}{rate} · {item.outstanding} outstanding")
    for number, words in (
        (item.sent_twice, "sent twice"),
        (item.sent_again, "resent"),
        (item.duplicates, "duplicates"),
        (item.deaths, "flow deaths"),
    ):
        if number:
            line.append(f" · {number} {words}", "yellow")
    line.append(f" · {item.messages} messages")
    if item.kinds is not None:
        kinds = item.kinds
        line.append(f" ({kinds.eager} eager, {kinds.bulk} bulk)")
    if item.uncopied_bytes:
        line.append(f" · {size_text(item.uncopied_bytes)} without a copy")
    return line


def _flows(item: NetConnection, width: int | None) -> list[Text]:
    from rich.text import Text

    rows = [_HEADERS, *(_row(number, flow) for number, flow in enumerate(item.flows))]
    wide = [max(len(row[i]) for row in rows) for i in range(len(_HEADERS))]
    # Omit columns that have no value in any row.
    shown = [
        i for i in range(len(_HEADERS)) if any(row[i] != "-" for row in rows[1:]) or i in _ALWAYS
    ]
    while width is not None and len(shown) > 1 and sum(wide[i] + 2 for i in shown) > width:
        shown.pop()
    lines = []
    for at, row in enumerate(rows):
        cells = [row[i].ljust(wide[i]) if i == 0 else row[i].rjust(wide[i]) for i in shown]
        up = at == 0 or item.flows[at - 1].up
        lines.append(Text("  ".join(cells), "dim" if at == 0 else "" if up else "red"))
    return lines


_HEADERS = ("  flow", "bytes", "share", "rate", "busy", "owed", "rtt", "retr", "again", "deaths")
_ALWAYS = range(4)


def _row(number: int, flow: NetFlow) -> tuple[str, ...]:
    name = "express" if flow.express else str(number)
    ends = f"{flow.local} - {flow.peer}"
    again = flow.duplicates if flow.taken_over is None else flow.taken_over
    return (
        f"  {name:>7} {ends}" + ("" if flow.up else " down"),
        size_text(flow.bytes),
        "-" if flow.share is None else f"{100 * flow.share:.1f} %",
        _or_dash(flow.bytes_per_s, speed_text),
        _or_dash(flow.busy_bytes_per_s, speed_text),
        _or_dash(flow.undelivered_bytes, size_text),
        _or_dash(flow.min_rtt_us, _time_text),
        str(flow.retransmits),
        "-" if again is None else str(again),
        str(flow.deaths),
    )


def size_text(size: float) -> str:
    """Return a size with three significant digits: `987 B`, `1.24 GiB`."""
    return _scaled(size, 1024, _SIZES)


def speed_text(bytes_per_s: float) -> str:
    """Return a rate with three significant digits: `210 MB/s`, `1.21 GB/s`."""
    return _scaled(bytes_per_s, 1000, _SPEEDS)


def _or_dash(value: float | None, text: Callable[[float], str]) -> str:
    return "-" if value is None else text(value)


def _time_text(us: float) -> str:
    return f"{us:.3g} us" if us < 1000 else f"{us / 1000:.3g} ms"


def _scaled(value: float, step: int, units: Sequence[str]) -> str:
    at = 0
    while value >= step * 0.9995 and at + 1 < len(units):
        value /= step
        at += 1
    decimals = 0 if at == 0 or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f} {units[at]}"
