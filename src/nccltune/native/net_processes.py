# SPDX-License-Identifier: Apache-2.0
"""Find processes that use the network plugin, and read the counters of their connections.

The plugin keeps the counters of each connection in shared memory, called a page. Only processes
that `/proc` shows are found: those of this user, or for root those of all users. In a container,
only the container's processes are found. On a host, processes in its containers are found, too.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from nccltune.model.errors import InputError, NccltuneError
from nccltune.native.net_stats import LARGEST, NAME, NetConnection, Page, decode, with_rates
from nccltune.native.processes import (
    PROC,
    command_of,
    hidden_process,
    is_dead,
    mapped_files,
    memories,
    no_process,
    own_number,
    process_ids,
)

_LIBRARIES = ("libnccl-net-nccltune.so", "nccltune-net/libnccl-net.so")
_TRIES = 50
"""Attempts to read a page while the plugin writes addresses to it. A write takes microseconds."""


class NetProcess(msgspec.Struct, frozen=True):
    """A process that uses the plugin. `problems` are sentences on pages that could not be read."""

    pid: int
    command: str
    connections: list[NetConnection]
    problems: list[str]


_Reading = tuple[float, NetConnection]
"""The time of a reading in seconds (CLOCK_MONOTONIC), and the connection."""


class _Read(msgspec.Struct, frozen=True):
    """One reading of a process. The keys of `connections` are device and inode of the page."""

    pid: int
    command: str
    connections: dict[tuple[int, int], _Reading]
    problems: list[str]


class NetWatch:
    """Repeated readings of the processes `pids`, or all of the plugin, with rates."""

    def __init__(self, pids: Iterable[int] = (), proc: Path = PROC) -> None:
        self._pids = list(dict.fromkeys(pids))
        self._proc = proc
        self._before: dict[tuple[int, tuple[int, int]], _Reading] = {}
        self._seen: set[int] = set()

    def read(self) -> list[NetProcess]:
        """Return the processes and their connections now, with rates since the last reading.

        Raises InputError for one of `pids` that never existed or has no plugin, PlatformError for
        one that this user may not read.
        """
        found = self._wanted() if self._pids else self._all()
        before, self._before = self._before, {}
        processes = []
        for process in found:
            connections = []
            for inode, reading in process.connections.items():
                self._before[process.pid, inode] = reading
                connections.append(_rated(reading, before.get((process.pid, inode))))
            processes.append(
                NetProcess(process.pid, process.command, connections, process.problems)
            )
        return processes

    def _wanted(self) -> list[_Read]:
        found = []
        for pid in self._pids:
            folder = self._proc / str(pid)
            try:
                process = _read_process(folder, pid)
                nothing = not process.connections and not process.problems
                if nothing and is_dead(folder):
                    raise ProcessLookupError
                if nothing and not _has_plugin(folder):
                    raise InputError(
                        f"process {pid} has not loaded the network plugin",
                        hint="NCCL_DEBUG=INFO logs at init which network NCCL takes; "
                        "nccltune net env prints what to set",
                    )
            except (FileNotFoundError, ProcessLookupError):
                if pid in self._seen:
                    continue
                raise no_process(pid) from None
            except PermissionError:
                raise hidden_process(pid) from None
            self._seen.add(pid)
            found.append(process)
        return found

    def _all(self) -> list[_Read]:
        found = []
        for pid in process_ids(self._proc):
            try:
                process = _read_process(self._proc / str(pid), pid)
            except OSError:
                # The process belongs to another user, or has ended.
                continue
            if process.connections or process.problems:
                found.append(process)
        return found


def _rated(now: _Reading, before: _Reading | None) -> NetConnection:
    if before is None or len(before[1].flows) != len(now[1].flows):
        return now[1]
    return with_rates(now[1], before[1], max(now[0] - before[0], 1e-6))


def _read_process(folder: Path, pid: int) -> _Read:
    process = _Read(pid, "", {}, [])
    for fd in memories(folder, NAME):
        try:
            page = _read_page(fd)
        except NccltuneError as error:
            process.problems.append(f"{error.message}; {error.hint}")
            continue
        # A forked process inherits the pages of its parent. Only the one that made a page counts.
        if page is not None and page.pid == own_number(folder):
            status = os.fstat(fd)
            process.connections[status.st_dev, status.st_ino] = (time.monotonic(), page.connection)
    return msgspec.structs.replace(process, command=command_of(folder))


def _read_page(fd: int) -> Page | None:
    """Return a consistent reading of a page; None while the plugin is still creating it.

    It is not mapped: an owner's truncation would end us with SIGBUS. Raises PlatformError.
    """
    page = None
    for _ in range(_TRIES):
        page = decode(os.pread(fd, LARGEST, 0), time.monotonic_ns())
        later = decode(os.pread(fd, LARGEST, 0), time.monotonic_ns())
        if page is None or later is None or page.whole(later):
            return page
    # The process was stopped while it wrote an address. The rest of the page is valid.
    return page


def _has_plugin(folder: Path) -> bool:
    return any(file.path.endswith(_LIBRARIES) for file in mapped_files(folder))
