# SPDX-License-Identifier: Apache-2.0
"""`nccltune status`: what NCCL has loaded in running processes, and whose settings win."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from nccltune.cli.options import LAUNCH, PATH, binds, options
from nccltune.cli.output import hanging, harmless, hint, plain_table, print_result, stdout
from nccltune.cli.verb import verb
from nccltune.model.scale import count

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.app.bench_launch import LaunchRequest
    from nccltune.guard.audit import AuditedProcess
    from nccltune.guard.loaded_rules import LoadedConfiguration
    from nccltune.guard.mapped import MappedLibrary
    from nccltune.guard.node_status import NodeStatus
    from nccltune.guard.sources import AuditedSetting

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


_INDENT = 11
_COMMAND, _PIDS, _IDLE = 60, 12, 12


def show(found: NodeStatus) -> None:
    """Print the verdict, then every job with its conflicts."""
    out = stdout()
    processes = [process for job in found.jobs for process in job.processes]
    conflicts = count(len(found.conflicts), "conflict") if found.conflicts else "no conflict"
    words = f"{conflicts} in {count(len(processes), 'process')}; looked at {found.host}"
    if not processes:
        visible = " that this user may read" if found.hidden else ""
        words = f"no process with NCCL among those of {found.host}{visible}"
    _line(out, "verdict", words, "bold yellow" if found.conflicts else "bold green")
    if found.hidden:
        words = f"{count(found.hidden, 'process')} cannot be read by this user"
        _line(out, "not read", words, "yellow")
    for words in found.unread:
        _line(out, "no answer", words, "yellow")
    for job in found.jobs:
        out.print()
        _line(out, "job", job.job, "bold")
        hosts = {process.host for process in job.processes if process.is_here}
        for group in _alike(job.processes):
            _show_group(out, group, "" if len(hosts) == 1 else f"{group[0].host}: ")
        for one in job.conflicts:
            _line(out, "conflict", one.text, "yellow")
    if not processes:
        hint(
            "A program with NCCL linked into it shows no library: name its PID. Ids of a container "
            "are seen inside it, and on its host under other numbers."
        )
    elif not any(process.is_logged for process in processes):
        hint(
            "Not seen here: settings that a program makes after its start, and what it gives a "
            "communicator. NCCL's log has both: --log FILE"
        )


def _alike(processes: Sequence[AuditedProcess]) -> list[list[AuditedProcess]]:
    """Return the processes in groups that differ only in their numbers and commands."""
    groups: dict[str, list[AuditedProcess]] = {}
    for each in processes:
        rules = each.configuration
        if rules is not None:
            # Ranks are read one after the other, while they go on.
            uncounted = [msgspec.structs.replace(rule, calls=None) for rule in rules.rules]
            rules = msgspec.structs.replace(rules, rules=uncounted, undecided=None)
        plain = msgspec.structs.replace(
            each, pid=0, own_pid=0, command="", job="", configuration=rules
        )
        groups.setdefault(repr(plain), []).append(each)
    return list(groups.values())


def _show_group(out: Console, group: Sequence[AuditedProcess], node: str) -> None:
    first = group[0]
    pids = ", ".join(str(process.pid) for process in group[:_PIDS])
    pids += f" and {len(group) - _PIDS} more" if len(group) > _PIDS else ""
    command = first.command[:_COMMAND] + "…" * (len(first.command) > _COMMAND)
    words = f"{node}{pids}  {command}" if first.is_here else f"{first.host}: {pids}  not read"
    _line(out, "pid", words)
    if first.is_here:
        _show_libraries(out, first)
    else:
        _line(out, "nccl", first.version or "version unknown")
        if first.own_tuner:
            _line(out, "tuner", f"none loaded: {first.own_tuner}")
    if first.configuration is not None:
        _show_rules(out, first.configuration, f" in {first.pid}" if len(group) > 1 else "")
    if first.settings:
        _show_settings(out, first.settings)
    else:
        unread = "none in NCCL's log" if first.is_logged else "unknown"
        _line(out, "settings", "none" if first.has_environment else unread)
    for note in first.notes:
        _line(out, "note", note)


def _show_libraries(out: Console, process: AuditedProcess) -> None:
    for library in process.of_kind("nccl"):
        _line(out, "nccl", f"{library.version or 'version unknown'}  {library.path}")
    if not process.of_kind("nccl"):
        _line(out, "nccl", "no libnccl is mapped: not loaded yet, or linked into the program")
    for kind in ("tuner", "net", "profiler", "env", "sendrecv"):
        for library in process.of_kind(kind):
            _line(out, kind, _library_words(library))
        if kind != "env" and not process.of_kind(kind):
            _line(out, kind, "none loaded")


def _library_words(library: MappedLibrary) -> str:
    whose = "not nccltune's"
    if library.is_ours:
        whose = f"nccltune {library.version or 'of unknown release'}"
    digest = f"sha256 {library.sha256[:16]}" if library.sha256 else "content unknown"
    return f"{whose}  {library.path}  {digest}"


def _show_rules(out: Console, rules: LoadedConfiguration, where: str) -> None:
    content = f"content {rules.content}"
    if rules.loaded:
        content = f"loaded content {', '.join(rules.loaded)}"
        if rules.content not in (None, *rules.loaded):
            content += f"; the file now has {rules.content}"
    elif rules.is_newer:
        content += ", changed since the process started: it may use an older content"
    _line(out, "rules", f"{rules.path}  {rules.problem or content}")
    many, scales = count(len(rules.rules), "rule"), "; ".join(map(str, rules.scales[:4]))
    if rules.rules and not scales:
        _line(out, "", f"{many}; which apply is unknown: the job's scale is in NCCL's log (--log)")
    elif rules.rules:
        applying = sum(item.applies is True for item in rules.rules)
        words = f"{applying} of {many} fit {scales} (by {rules.scale_source})"
        if len(rules.rules) > applying:
            of_others = "of other scales cannot apply"
            if rules.scale_source != "NCCL's log":
                of_others = "for other scales, which groups of the job may have"
            words += f"; {len(rules.rules) - applying} {of_others}"
        _line(out, "", words)
    if rules.job is not None:
        _line(out, "job", rules.job)
    _show_hits(out, rules, where)


def _show_hits(out: Console, rules: LoadedConfiguration, where: str) -> None:
    for item in rules.rules:
        if item.calls:
            _line(out, "hits", f"line {item.line}, {item.rule}: {count(item.calls, 'call')}{where}")
    # Those of other scales are counted before.
    may_apply = [item for item in rules.rules if item.applies or not rules.scales]
    idle = [item for item in may_apply if item.calls == 0]
    for item in idle[:_IDLE]:
        _line(out, "not hit", f"line {item.line}, {item.rule}{where}")
    if len(idle) > _IDLE:
        _line(out, "not hit", f"{count(len(idle) - _IDLE, 'more rule')}{where}")
    if rules.undecided is not None:
        _line(out, "hits", f"no rule: {count(rules.undecided, 'call')}{where}")
    known = [item for item in rules.rules if item.sizes is not None]
    if rules.rules and not known and rules.undecided is None:
        words = "unknown here: NCCL's log of choices has them (NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING)"
        _line(out, "hits", words)
    for item in known:
        words = f"line {item.line}, {item.rule}: {count(item.sizes or 0, 'size')} of the log"
        _line(out, "hits", words + (f", NCCL ran it at {item.followed}" if item.sizes else ""))


def _show_settings(out: Console, settings: Sequence[AuditedSetting]) -> None:
    out.print()
    table = plain_table("<setting", "value", "wins", "loses", "<known by", padding=(0, 2, 0, 0))
    for column in table.columns:
        column.overflow = "fold"
    for one in settings:
        loses = [f"{loser.source} ({loser.value})" for loser in one.overrides]
        loses += [f"{source} (same)" for source in one.repeats]
        value = "?" if one.value is None else one.value or "(empty)"
        cells = (one.name, value, one.wins, ", ".join(loses) or "-", one.known_by)
        table.add_row(*map(harmless, cells))
    out.print(table)
    for one in settings:
        if one.since is not None:
            _line(out, "since", f"{one.name}: {one.since}", "yellow")
        if one.trial is not None and (one.since or one.overrides):
            _line(out, "try", one.trial)


def _line(out: Console, lead: str, words: str, style: str = "dim") -> None:
    hanging(out, (lead.ljust(_INDENT), style), _INDENT, words)
