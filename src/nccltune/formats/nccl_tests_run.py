# SPDX-License-Identifier: Apache-2.0
"""What the header of an nccl-tests run says: version, parameters, devices, and so the scale."""

import re
from typing import NamedTuple

from nccltune.formats.choices import collective_of_program
from nccltune.formats.command_lines import ForcedByCommand
from nccltune.formats.nccl_log import NcclLog
from nccltune.formats.reading import FileReport, FlagKind
from nccltune.model.collective import Collective
from nccltune.model.scale import count

_VERSION = re.compile(
    r"# nccl-tests version (?P<version>\S+)(?: \(\w+\))?"
    r" nccl-headers=(?P<headers>\d+) nccl-library=(?P<library>\d+)"
)
_STARTING = re.compile(r"# Collective test starting: (?P<program>\S+)")
_PARAMETERS = re.compile(
    r"# nThread (?P<threads>\d+) nGpus (?P<gpus>\d+) minBytes (?P<min>\d+) maxBytes (?P<max>\d+)"
    r" step: \d+\(\w+\) warmup iters: \d+ iters: (?P<iters>\d+)(?P<more>.*)"
)
_MORE = re.compile(r"(agg iters|graph|validation): (\d+)")
_DEVICE = re.compile(
    r"#\s+Rank\s+(?P<rank>\d+)(?:\s+Group\s+(?P<group>\d+))?\s+Pid\s+(?P<pid>\d+)"
    r"\s+on\s+(?P<host>\S+)\s+device\s+\d+\s+\[[^\]]*\]\s+(?P<gpu>.*\S)"
)
_REDUCED = re.compile(r"# Reducing maxBytes to (?P<max>\d+) due to memory limitation")
MAX_RANKS = 1 << 20


class Device(NamedTuple):
    """One line of the device list."""

    rank: int
    group: int
    pid: int
    host: str
    gpu: str


def nccl_version_of(code: int) -> str:
    """`2.28.9` of 22809; before 2.9 the code was shorter (2803 is 2.8.3)."""
    if code >= 10000:
        return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
    return f"{code // 1000}.{code // 100 % 10}.{code % 100}"


_PARTS = (
    ("device", _DEVICE),
    ("parameters", _PARAMETERS),
    ("version", _VERSION),
    ("starting", _STARTING),
    ("reduced", _REDUCED),
)


def header_part(line: str) -> tuple[str, re.Match[str]] | None:
    """Which part of a run's header a comment line is, or None where it is none."""
    for part, pattern in _PARTS:
        if (match := pattern.match(line)) is not None:
            return part, match
    return None


class Run:
    """One start of an nccl-tests program, as far as its output tells."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.tool_version: str | None = None
        self.nccl_version: str | None = None
        self.collective: Collective | None = None
        self.parameters = ""
        self.iterations: int | None = None
        self.aggregated = 1
        self.graph = 0
        self.registered = False
        self.devices: list[Device] = []
        self.hosts_told = True
        self.abridged = False
        self.log = NcclLog()
        self.command: ForcedByCommand | None = None

    def take(self, part: str, match: re.Match[str], number: int, report: FileReport) -> None:
        """Take in a header line that `header_part` recognised."""
        self.seen.add(part)
        if part == "device":
            if len(self.devices) < MAX_RANKS:
                self.devices.append(
                    Device(
                        int(match["rank"]),
                        int(match["group"] or 0),
                        int(match["pid"]),
                        match["host"].partition(".")[0],
                        match["gpu"],
                    )
                )
        elif part == "parameters":
            self.parameters = match.group()
            more = {name: int(value) for name, value in _MORE.findall(match["more"])}
            self.aggregated = max(1, more.get("agg iters", 1))
            self.graph = more.get("graph", 0)
            self.iterations = int(match["iters"]) * self.aggregated * max(1, self.graph) or None
        elif part == "version":
            self.tool_version = match["version"]
            self.nccl_version = nccl_version_of(int(match["library"]))
            flag_versions(report, int(match["headers"]), int(match["library"]), number)
        elif part == "starting":
            self.collective = collective_of_program(match["program"])
        elif part == "reduced":
            report.flag(
                FlagKind.REDUCED_SIZE,
                f"the largest size was reduced to {match['max']} bytes for lack of memory:"
                " what was asked for above it was not measured",
                number,
            )

    @property
    def group(self) -> list[Device]:
        """The devices of rank 0's group: the others run beside it (`NCCL_TESTS_SPLIT`)."""
        if not self.devices:
            return []
        first = min(self.devices).group
        return [device for device in self.devices if device.group == first]

    @property
    def ranks(self) -> int | None:
        """Ranks of the communicator by the device list."""
        group = self.group
        if not group:
            return None
        distinct = {device.rank for device in group}
        everyone = {device.rank for device in self.devices}
        # One process's part of the list is cut after 2 KiB: the last rank number still tells.
        whole = len({device.group for device in self.devices}) == 1
        return max(everyone) + 1 if whole else len(distinct)

    @property
    def hosts(self) -> int | None:
        """Distinct hosts by the device list; None where NCCL was told other ones (NCCL_HOSTID)."""
        if not self.hosts_told:
            return None
        return len({device.host for device in self.group}) or None

    @property
    def first_host(self) -> str | None:
        """Where rank 0 ran."""
        return min(self.devices).host if self.devices else None


def flag_versions(report: FileReport, headers: int, library: int, line: int) -> None:
    """Flag a test that was compiled with another NCCL than it runs with."""
    if headers != library:
        report.flag(
            FlagKind.VERSION_MISMATCH,
            f"compiled with the headers of NCCL {nccl_version_of(headers)}, run with"
            f" {nccl_version_of(library)}",
            line,
        )


class ScaleFound(NamedTuple):
    """Nodes and ranks, and whether "nodes" are parts of one host."""

    nodes: int | None
    ranks: int | None
    emulated: bool


def find_scale(
    report: FileReport,
    line: int,
    *,
    listed: tuple[int | None, int | None],
    logged: tuple[int | None, int | None],
    told: tuple[int | None, int | None],
    processes: int | None = None,
) -> ScaleFound:
    """Nodes and ranks from the device list, the NCCL log, or what the user told, with flags.

    `listed`, `logged` and `told` are (nodes, ranks). Where NCCL's log counts more nodes than the
    list has hosts (`NCCL_HOSTID`, containers), NCCL's word counts: it is what a tuner is given.
    """
    hosts, list_ranks = listed
    nodes, ranks = hosts or told[0], list_ranks or logged[1] or told[1]
    emulated = False
    if logged[0] is not None and (list_ranks is None or logged[1] == list_ranks):
        nodes = logged[0]
        emulated = hosts is not None and hosts < logged[0]
        if emulated:
            report.flag(
                FlagKind.NOTE,
                f"NCCL counts {count(logged[0], 'node')} where the device list shows"
                f" {count(hosts or 0, 'host')}: NCCL's count is used",
                line,
            )
    for found, given, noun in ((nodes, told[0], "node"), (ranks, told[1], "rank")):
        if found is not None and given is not None and found != given:
            report.flag(
                FlagKind.SCALE_MISMATCH,
                f"ran on {count(found, noun)}, not on {given} as told",
                line,
            )
    if nodes is None or ranks is None:
        missing = " and ".join(
            word for word, value in (("--nodes", nodes), ("--ranks", ranks)) if value is None
        )
        report.flag(
            FlagKind.SCALE_UNKNOWN,
            f"nothing says how many nodes and ranks it ran on: give {missing}",
            line,
        )
    if ranks == 1:
        report.flag(
            FlagKind.ONE_RANK,
            "one rank only: nothing was communicated, its times mean nothing",
            line,
        )
    elif nodes == 1 and (processes or 1) > 1:
        report.flag(
            FlagKind.ONE_HOST, f"all {ranks} ranks ran on one host: nothing crossed a network", line
        )
    return ScaleFound(nodes, ranks, emulated)
