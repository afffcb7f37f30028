# SPDX-License-Identifier: Apache-2.0
"""What NCCL's log of a job states about each of its processes.

A view of `formats.nccl_log`: the settings that NCCL read, what the program gave its communicators,
and what our tuner plugin loaded.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from nccltune.formats.nccl_log.lines import log_lines
from nccltune.formats.nccl_log.messages import (
    CommSetting,
    Communicator,
    LoadedRules,
    Setting,
    read_repeated_message,
)
from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.model.errors import InputError
from nccltune.model.scale import Scale


class LoggedProcess(msgspec.Struct):
    """A process of a log. `pid` is its number in its own namespace, as NCCL logs it."""

    host: str
    pid: int
    settings: dict[str, str] = {}
    communicator: dict[str, str] = {}
    loaded: list[LoadedRules] = []
    scales: list[Scale] = []

    @property
    def has_no_rules(self) -> bool:
        """Return whether it has communicators, for which our plugin would have logged a line."""
        return bool(self.scales) and not self.loaded


class JobLog(msgspec.Struct):
    """The processes of a log by host and number, and what is known of the whole run."""

    path: str
    version: str | None
    run: NcclLog
    processes: dict[tuple[str, int], LoggedProcess]


def read_job_log(paths: Iterable[Path]) -> JobLog:
    """Read the logs of one job (NCCL_DEBUG=INFO). Raises InputError for what is none."""
    named = list(paths)
    log = JobLog(", ".join(map(str, named)), None, NcclLog(), {})
    for path in named:
        try:
            with path.open("rb") as file:
                for _, _, match in log_lines(file):
                    message = read_repeated_message(match.string[match.end() :])
                    log.run.take(message)
                    key = (match["host"], int(match["pid"]))
                    process = log.processes.get(key)
                    if process is None:
                        process = log.processes[key] = LoggedProcess(*key)
                    _take(process, message)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if not log.processes:
        raise InputError(
            "has no line of NCCL's log",
            where=log.path,
            hint="start the job with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING",
        )
    log.version = log.run.version
    return log


def _take(process: LoggedProcess, message: object) -> None:
    match message:
        case Setting(source="environment"):
            process.settings[message.name] = message.value
        case CommSetting():
            process.communicator[message.label] = message.value
        case LoadedRules():
            process.loaded.append(message)
            _keep(process, Scale(message.nodes, message.ranks))
        case Communicator(ended=False) if message.ranks and message.nodes:
            _keep(process, Scale(message.nodes, message.ranks))


def _keep(process: LoggedProcess, scale: Scale) -> None:
    if scale not in process.scales:
        process.scales.append(scale)
