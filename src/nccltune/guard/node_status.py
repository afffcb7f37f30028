# SPDX-License-Identifier: Apache-2.0
"""The processes with NCCL on this node, job by job, and what conflicts among their settings."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from nccltune.guard.audit import AuditedProcess, audit_process, logged_process
from nccltune.guard.jobs import JobLog, is_across_nodes
from nccltune.guard.mapped import NCCL, LibraryReader
from nccltune.guard.sources import COMMUNICATOR, UNKNOWN, AuditedSetting
from nccltune.native.processes import (
    PROC,
    hidden_process,
    is_dead,
    mapped_files,
    no_process,
    process_ids,
)

_KINDS = ("tuner", "net", "profiler", "env", "sendrecv")
_OF_A_PROCESS = frozenset({
    "NCCL_COMM_ID", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_GRAPH_DUMP_FILE",
    "NCCL_HOSTID", "NCCL_IB_HCA", "NCCL_PROXY_CPUSET", "NCCL_TOPO_DUMP_FILE", "NCCLTUNE_TOKEN",
})  # fmt: skip
"""Settings that may differ from rank to rank of a job."""
_NAMED = 6


class StatusConflict(msgspec.Struct, frozen=True):
    """A conflict: `overridden`, `differs`, `hash`, `libraries`, `filtered` or `not-loaded`."""

    kind: str
    pids: list[int]
    text: str


class JobStatus(msgspec.Struct, frozen=True):
    """The processes of a job; the conflicts within its processes, and between them."""

    job: str
    processes: list[AuditedProcess]
    conflicts: list[StatusConflict]


class NodeStatus(msgspec.Struct, frozen=True):
    """The status of nodes.

    `hidden` is the number of processes that this user may not read. `unread` are sentences on nodes
    that could not be looked at.
    """

    host: str
    jobs: list[JobStatus]
    hidden: int
    unread: list[str] = []

    @property
    def conflicts(self) -> list[StatusConflict]:
        """Return the conflicts of all jobs."""
        return [one for job in self.jobs for one in job.conflicts]


def node_status(
    pids: Sequence[int] = (), log: JobLog | None = None, proc: Path = PROC, host: str | None = None
) -> NodeStatus:
    """Return the status of the processes `pids`, or of all with NCCL that this user may read.

    The processes of `log` are one job, also elsewhere; of a log without a process of this node they
    alone are judged. Raises InputError for a missing process,
    PlatformError for one that this user may not read.
    """
    # NCCL logs the name up to the first dot.
    host = (host or os.uname().nodename).partition(".")[0]
    reader = LibraryReader()
    if pids:
        found = [_asked(proc / str(pid), reader, log, host) for pid in dict.fromkeys(pids)]
        hidden = 0
    elif log is None or any(name == host for name, _ in log.processes):
        found, hidden = _all(proc, reader, log, host)
    else:
        # A log of other nodes: what runs here is not of its job.
        found, hidden, host = [], 0, log.path
    if log is not None:
        here = {process.own_pid for process in found if process.is_logged}
        found += [
            logged_process(each, log)
            for (name, pid), each in log.processes.items()
            if name != host or pid not in here
        ]
    return NodeStatus(host, _jobs(found), hidden)


def joined(nodes: Sequence[NodeStatus], unread: Sequence[str] = ()) -> NodeStatus:
    """Return the status of several nodes as one: a job's processes on all are compared."""
    found = [
        msgspec.structs.replace(process, job=f"{process.job}, on {process.host}")
        if not is_across_nodes(process.job)
        else process
        for node in nodes
        for job in node.jobs
        for process in job.processes
    ]
    hosts = ", ".join(node.host for node in nodes[:_NAMED])
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return NodeStatus(hosts + more, _jobs(found), sum(node.hidden for node in nodes), list(unread))


def _jobs(found: Iterable[AuditedProcess]) -> list[JobStatus]:
    jobs: dict[str, list[AuditedProcess]] = {}
    for process in found:
        jobs.setdefault(process.job, []).append(process)
    return [JobStatus(name, group, _conflicts(group)) for name, group in jobs.items()]


def _asked(folder: Path, reader: LibraryReader, log: JobLog | None, host: str) -> AuditedProcess:
    pid = int(folder.name)
    try:
        if is_dead(folder):
            raise ProcessLookupError
        return audit_process(folder, reader, log, host)
    except (FileNotFoundError, ProcessLookupError):
        raise no_process(pid) from None
    except PermissionError:
        raise hidden_process(pid) from None


def _all(
    proc: Path, reader: LibraryReader, log: JobLog | None, host: str
) -> tuple[list[AuditedProcess], int]:
    found, hidden = [], 0
    for pid in process_ids(proc):
        folder = proc / str(pid)
        try:
            if any("nccl" in file.path.rpartition("/")[2] for file in mapped_files(folder)):
                process = audit_process(folder, reader, log, host)
                found += [process] if process.libraries else []
        except PermissionError:
            hidden += 1
        except OSError:
            # The process has ended.
            continue
    return found, hidden


def _conflicts(group: Sequence[AuditedProcess]) -> list[StatusConflict]:
    found: dict[tuple[str, str], list[int]] = {}
    for process in group:
        for kind, text in _own_conflicts(process):
            found.setdefault((kind, text), []).append(process.pid)
    own = [StatusConflict(kind, pids, text) for (kind, text), pids in found.items()]
    return own + _differences(group)


def _own_conflicts(process: AuditedProcess) -> Iterable[tuple[str, str]]:
    for one in process.settings:
        if one.value is not None and one.overrides:
            yield "overridden", _overridden(one)
    values = {one.name: one.value for one in process.settings}
    named, ours = values.get("NCCL_TUNER_CONFIG_FILE"), values.get("NCCLTUNE_CONFIG")
    has_ours = any(one.is_ours for one in process.of_kind("tuner"))
    if has_ours and named and ours and named != ours:
        yield "overridden", f"NCCLTUNE_CONFIG={ours} wins over NCCL_TUNER_CONFIG_FILE={named}"
    rules = process.configuration
    for name in ("NCCL_ALGO", "NCCL_PROTO") if has_ours and rules else ():
        if values.get(name):
            text = f"{name}={values[name]} is set: NCCL passes over rules for anything else"
            yield "filtered", text
    if process.asked_tuner and process.own_tuner:
        text = f"NCCL_TUNER_PLUGIN={process.asked_tuner} is not loaded: {process.own_tuner}"
        yield "not-loaded", text
    if len(process.of_kind(NCCL)) > 1:
        paths = " and ".join(one.path for one in process.of_kind(NCCL))
        yield "libraries", f"two NCCLs are loaded in one process: {paths}"
    if rules is not None and rules.expected:
        other = [one for one in (rules.used, rules.content) if one not in (None, rules.expected)]
        if other:
            yield (
                "hash",
                (
                    f"NCCLTUNE_CONFIG_HASH is {rules.expected}, and {rules.path} has {other[0]}: "
                    "a rank that reads that content uses no rule"
                ),
            )


def _overridden(one: AuditedSetting) -> str:
    losers = ", ".join(f"{loser.source} ({loser.value})" for loser in one.overrides)
    if one.wins != UNKNOWN:
        return f"{one.name}={one.value} of {one.wins} wins over {losers}"
    text = f"{one.name}={one.value} in NCCL's log wins over {losers}"
    if any(loser.source != COMMUNICATOR for loser in one.overrides):
        text += ": the program set it after its start, or a file has changed"
    return text


def _differences(group: Sequence[AuditedProcess]) -> list[StatusConflict]:
    aspects: list[tuple[str, Callable[[AuditedProcess], str | None]]] = [
        ("NCCL", lambda each: each.version),
        ("the content of the rules", _content),
    ]
    aspects += [(f"the {kind} library", _identity(kind)) for kind in _KINDS]
    names = sorted({one.name for each in group for one in each.settings} - _OF_A_PROCESS)
    aspects += [(name, _value(name)) for name in names]
    found = []
    of_one_node = len({process.host for process in group if process.is_here}) <= 1
    for what, read in aspects:
        values: dict[str, list[AuditedProcess]] = {}
        for process in group:
            value = read(process)
            if value is not None:
                values.setdefault(value, []).append(process)
        if len(values) > 1:
            words = ", ".join(
                f"{one or 'empty'} ({_names(each, of_one_node=of_one_node)})"
                for one, each in values.items()
            )
            pids = [process.pid for each in values.values() for process in each]
            found.append(StatusConflict("differs", pids, f"{what} differs: {words}"))
    return found


def _content(process: AuditedProcess) -> str | None:
    if process.configuration is not None and process.configuration.used is not None:
        return process.configuration.used
    # Our plugin logs a line for each communicator, so a process without one has no rules.
    return "no rules" if process.has_no_rules else None


def _identity(kind: str) -> Callable[[AuditedProcess], str | None]:
    # A plugin is loaded with the first communicator: a process without it may load it yet.
    return lambda each: " and ".join(sorted(one.identity for one in each.of_kind(kind))) or None


def _value(name: str) -> Callable[[AuditedProcess], str | None]:
    def read(process: AuditedProcess) -> str | None:
        for one in process.settings:
            if one.name == name:
                return one.value
        # NCCL logs a setting when it needs it. That a log has no line of it alone means nothing.
        return "not set" if process.has_environment or name in process.lacks else None

    return read


def _names(processes: Sequence[AuditedProcess], *, of_one_node: bool) -> str:
    names = [
        f"pid {one.pid}" if one.is_here and of_one_node else f"{one.host}:{one.pid}"
        for one in processes
    ]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
