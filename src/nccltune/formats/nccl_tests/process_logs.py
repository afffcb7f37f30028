# SPDX-License-Identifier: Apache-2.0
"""Collect NCCL's log lines by process, and merge the facts of the processes of one run."""

from collections.abc import Iterable
from typing import BinaryIO

from nccltune.formats.nccl_log.lines import log_lines
from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.nccl_tests.run import TableDevice
from nccltune.formats.text.stamps import stamp_of

ProcessKey = tuple[str, int]
"""A process: its host name without the domain, and its process id."""
_MOST = 65_536
_MOST_OF_FILE = 4096
_START = ("set by environment", "NCCL version", "Bootstrap")


def process_key(host: str, pid: str | int) -> ProcessKey:
    """Return the key of a process; `host` may have a domain."""
    return host.partition(".")[0], int(str(pid)[:18])


class RunLogs:
    """The log lines of one run by process.

    `rest` gets lines that name no process, and lines of processes beyond the limit.
    """

    def __init__(self) -> None:
        self.processes: dict[ProcessKey, NcclLog] = {}
        self.rest = NcclLog()

    def of(self, key: ProcessKey) -> NcclLog:
        """Return the log of a process; `rest` if there are too many processes."""
        log = self.processes.get(key)
        if log is None:
            if len(self.processes) >= _MOST:
                return self.rest
            log = self.processes[key] = NcclLog()
        return log

    @property
    def lines(self) -> int:
        """Return the number of lines so far."""
        return self.rest.lines + sum(log.lines for log in self.processes.values())

    def hosts(self, ranks: int | None) -> int | None:
        """Return the number of hosts whose processes log all `ranks` ranks.

        Older NCCL logs no number of nodes. None if a rank is missing or on two hosts, or if a name
        may have other text before it. Also None for one host, because machines may share a name.
        """
        hosts: dict[str, set[int]] = {}
        for (host, _), log in self.processes.items():
            own = {rank for of, rank in log.own_ranks if of == ranks}
            hosts.setdefault(host, set()).update(own)
        found = [rank for own in hosts.values() for rank in own]
        if ranks is None or sorted(found) != list(range(ranks)):
            return None
        names = [host for host, own in hosts.items() if own]
        touched = any(one != other and one.endswith(other) for one in names for other in names)
        if touched or any(map(str.isdigit, names)):
            return None
        return len(names) if len(names) > 1 else None

    def merged(self, devices: Iterable[TableDevice]) -> NcclLog:
        """Return the merged logs of the processes of `devices`.

        If none of these processes has a log, return the merged logs of all processes.
        """
        keys = dict.fromkeys(process_key(item.host, item.pid) for item in sorted(devices))
        mine = {key: self.processes[key] for key in keys if key in self.processes}
        merged = NcclLog()
        for (host, pid), log in (mine or self.processes).items():
            merged.merge(log, f"{host}:{pid}")
        merged.merge(self.rest, "another line")
        return merged


class FileLogs:
    """The log lines of one text, assigned to its runs.

    NCCL's lines follow the header of their run. A process that starts NCCL before the header prints
    settings earlier; such lines belong to the run that follows. Each process belongs to one run. If
    the device list of a run has the id of a process, the process belongs to this run. Otherwise the
    position of its lines decides. Lines below the only table that show no start of NCCL were moved
    there from above it.
    """

    def __init__(self) -> None:
        self.current = RunLogs()
        self.over = False
        self._several = False
        self._next = RunLogs()
        self._heard: frozenset[ProcessKey] = frozenset()
        self._devices: set[ProcessKey] = set()
        self._hosts: dict[int, dict[str, None]] = {}

    def begin_run(self, *, again: bool) -> RunLogs:
        """Return the logs of the run whose header starts now.

        `again` means that an earlier run of the text has ended.
        """
        if again:
            self._several = True
            self.current, self._next = self._next, RunLogs()
            self.over = False
            self._devices.clear()
            self._hosts.clear()
        return self.current

    def end_table(self) -> None:
        """Record that the footer of the current run's table was read."""
        if not self.over:
            self.over = True
            self._heard = frozenset(self.current.processes)

    def note_device(self, device: TableDevice) -> None:
        """Add a device of the current run's device list."""
        if len(self._devices) < _MOST:
            key = process_key(device.host, device.pid)
            self._devices.add(key)
            self._hosts.setdefault(key[1], {})[key[0]] = None

    def log_for(self, host: str, pid: str, message: str) -> NcclLog:
        """Return the log that a line belongs to."""
        key = process_key(host, pid)
        current = self.current.processes
        if key not in current and key not in self._devices:
            # If the line follows other text without a blank, that text is part of `host`. Then a
            # listed host name at the end of `host` is used.
            known = self._hosts.get(key[1], {})
            key = next(((name, key[1]) for name in known if key[0].endswith(name)), key)
        if not self.over:
            return self.current.of(key)
        if key in self._next.processes:
            return self._next.of(key)
        mine = key in current or key in self._devices
        # Containers use the same process ids for each run. So a second start of a process is
        # another run.
        starts = any(word in message for word in _START)
        self._several = self._several or starts
        restarted = key in self._heard and starts
        return (self._next if restarted or not mine else self.current).of(key)

    def end(self) -> None:
        """End the text: lines below its only table are of that table, if nothing began there."""
        hosts = {host for host, _ in self._devices}
        below, rest = self._next.processes, self._next.rest
        if self._several or rest.lines or rest.version or any(x.started for x in below.values()):
            return
        for (host, pid), log in below.items():
            if host in hosts or not hosts:
                self.current.of((host, pid)).merge(log, f"{host}:{pid}")

    @property
    def unnamed(self) -> NcclLog:
        """Return the log of lines that name no process."""
        return (self._next if self.over else self.current).rest


def read_process_logs(file: BinaryIO) -> dict[ProcessKey, NcclLog]:
    """Return the NCCL logs in a file of log lines, by process, for at most 4096 processes."""
    logs: dict[ProcessKey, NcclLog] = {}
    for _, line, match in log_lines(file):
        key = process_key(match["host"], match["pid"])
        if key not in logs and len(logs) >= _MOST_OF_FILE:
            continue
        log = logs.setdefault(key, NcclLog())
        if not log.lines:
            log.stamps.add(stamp_of(line, line.find(" NCCL ")))
        log.observe(match.string[match.end() :])
    return logs
