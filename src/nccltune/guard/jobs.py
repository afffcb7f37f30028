# SPDX-License-Identifier: Apache-2.0
"""Which job a process belongs to, and the job's scale and log."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from nccltune.formats.nccl_log.lines import log_lines
from nccltune.formats.nccl_log.messages import (
    VERSION_LINE,
    CommSetting,
    Communicator,
    LoadedRules,
    Setting,
    TunerPlugin,
    read_repeated_message,
)
from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.nccl_log.shared_settings import SharedSettings
from nccltune.formats.text.lines import line_blocks
from nccltune.formats.text.prefixes import strip_prefix
from nccltune.model.errors import InputError
from nccltune.model.scale import Scale


class LoggedProcess(msgspec.Struct):
    """A process of a log, `pid` as NCCL logs it. `tuners`: those in use; "": why no plugin is."""

    host: str
    pid: int
    settings: dict[str, str] = {}
    communicator: dict[str, str] = {}
    loaded: list[LoadedRules] = []
    scales: list[Scale] = []
    tuners: dict[str, str] = {}
    lacks: set[str] = set()
    """Settings that other ranks of a communicator log, and this process evidently does not have."""

    @property
    def has_no_rules(self) -> bool:
        """Return whether it has communicators, for which our plugin would have logged a line."""
        return not self.loaded and (bool(self.scales) or self.own_tuner is not None)

    @property
    def own_tuner(self) -> str | None:
        """Return why NCCL decides by itself; None if a plugin does, or the log is silent."""
        return None if self.loaded or len(self.tuners) > 1 else self.tuners.get("")


class JobLog(msgspec.Struct):
    """The processes of a log by host and number, and what is known of the whole run."""

    path: str
    version: str | None
    run: NcclLog
    processes: dict[tuple[str, int], LoggedProcess]


def read_job_log(paths: Iterable[Path]) -> JobLog:
    """Read the logs of one job (NCCL_DEBUG=INFO). Raises InputError: none, or not readable."""
    named = list(paths)
    shared = SharedSettings()
    log = JobLog(", ".join(map(str, named)), None, NcclLog(), {})
    for path in named:
        try:
            with path.open("rb") as file:
                for _, _, match in log_lines(file):
                    text = match.string[match.end() :]
                    shared.observe((match["host"], match["pid"]), text)
                    message = read_repeated_message(text)
                    log.run.take(message)
                    key = (match["host"], int(match["pid"]))
                    process = log.processes.get(key)
                    if process is None:
                        process = log.processes[key] = LoggedProcess(*key)
                    _take(process, message)
                    if "lugin" in text and (why := _REFUSED.search(text)) is not None:
                        process.tuners[""] = why[0].strip()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if not log.processes:
        raise InputError(
            "has no line of NCCL's log",
            where=log.path,
            hint="start the job with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING",
        )
    for (host, pid), names in shared.lacking().items():
        log.processes[host, int(pid)].lacks = names
    log.version = log.run.version or _printed_version(named)
    return log


def _printed_version(paths: Iterable[Path]) -> str | None:
    """Return the version that NCCL prints as a line without host and process, if all agree."""
    found: set[str] = set()
    for path in paths:
        with path.open("rb") as file:
            for _, lines in line_blocks(file):
                matches = (
                    VERSION_LINE.match(strip_prefix(line)[1]) for line in lines if _V in line
                )
                found |= {match["version"] for match in matches if match is not None}
    return found.pop() if len(found) == 1 else None


_V = "CCL version "


_REFUSED = re.compile(
    r"(?<=TUNER/Plugin: )(?:(?:Most recent p|P)lugin load|Could not find|Failed to find|\S+: ).*"
    r"|External tuner plugin .* is unsupported"
)


def _take(process: LoggedProcess, message: object) -> None:
    match message:
        case Setting(source="environment") | Setting(name="NCCL_TUNER_PLUGIN"):
            process.settings[message.name] = message.value
        case CommSetting():
            process.communicator[message.label] = message.value
        case LoadedRules():
            process.loaded.append(message)
            _keep(process, Scale(message.nodes, message.ranks))
        case TunerPlugin():
            process.tuners.setdefault(message.name, "NCCL uses its internal tuner")
        case Communicator(ended=False) if message.ranks and message.nodes:
            _keep(process, Scale(message.nodes, message.ranks))


def _keep(process: LoggedProcess, scale: Scale) -> None:
    if scale not in process.scales:
        process.scales.append(scale)


_IDENTITIES = (
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ("PMIX_NAMESPACE",),
    ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"),
    ("MASTER_ADDR", "MASTER_PORT"),
    ("PMI_JOBID",),
)
"""Variables that all processes of a job have, and that another job of this user has not."""
_ON_ONE_NODE = re.compile(
    r"(?:.* )?MASTER_ADDR="
    r"(?:127\.[\d.]+|0\.0\.0\.0|\[?::1?\]?|(?:ip6-)?localhost[46]?(?:\.\S+)?)[ ,]"
)
"""A job whose processes meet at an address that no other node reaches."""
_NO_IDENTITY = {"PMI_JOBID": "0"}
"""What a launcher that numbers no jobs gives to all of them."""
_BY_PARENT = "started by process"
_RANKS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_NTASKS")
_NODES = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
_PER_NODE = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE")


def job_of(environment: Mapping[str, str], user: str, parent: str) -> str:
    """Return a name that is the same for all processes of a job on this node.

    Without a variable of a launcher, processes with the same parent are of one job.

    >>> job_of({"SLURM_JOB_ID": "41", "SLURM_STEP_ID": "0"}, "1000", "1")
    'SLURM_JOB_ID=41 SLURM_STEP_ID=0, user 1000'
    """
    for names in _IDENTITIES:
        if all(environment.get(name) not in (None, "", _NO_IDENTITY.get(name)) for name in names):
            words = " ".join(f"{name}={environment[name]}" for name in names)
            return f"{words}, user {user}"
    return f"{_BY_PARENT} {parent}, user {user}"


def is_across_nodes(job: str) -> bool:
    """Return whether a job has a name that no other job on other nodes has.

    >>> is_across_nodes("MASTER_ADDR=127.0.0.1 MASTER_PORT=29500, user 1000")
    False
    """
    return not job.startswith(_BY_PARENT) and _ON_ONE_NODE.match(job) is None


def job_scale(environment: Mapping[str, str]) -> Scale | None:
    """Return the scale of the whole job; None if the environment does not state both numbers.

    NCCL counts the values of NCCL_HOSTID as nodes, whatever the launcher calls a node.
    """
    if environment.get("NCCL_HOSTID"):
        return None
    ranks = _first(environment, _RANKS)
    nodes, per_node = _first(environment, _NODES), _first(environment, _PER_NODE)
    if ranks and not nodes and per_node and ranks % per_node == 0:
        nodes = ranks // per_node
    return Scale(nodes, ranks) if nodes and ranks and nodes <= ranks else None


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = environment.get(name, "")
        if text.isascii() and text.isdecimal() and 0 < len(text) < 10 and int(text):
            return int(text)
    return None
