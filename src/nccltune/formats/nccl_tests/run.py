# SPDX-License-Identifier: Apache-2.0
"""Read the header of an nccl-tests run: version, parameters and devices."""

import re
from collections import Counter
from typing import NamedTuple

from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.nccl_tests.conditions import blocking_of, conditions_of, numbers_of
from nccltune.formats.reading.collective_names import collective_of_program
from nccltune.formats.reading.command_lines import CommandFound
from nccltune.formats.reading.file_report import FileReport, FlagKind
from nccltune.formats.reading.platform_facts import PlatformFacts, machine_name, relevant_settings
from nccltune.formats.reading.runs import DEFAULT_ITERATIONS, DEFAULT_WARMUP
from nccltune.formats.text.redact import host_hash
from nccltune.formats.text.stamps import Stamps
from nccltune.model.collective import Collective

_VERSION = re.compile(
    r"# [nr]ccl-tests version (?P<version>\S+)(?: \(\w+\))?"
    r" [nr]ccl-headers=(?P<headers>\d+) [nr]ccl-library=(?P<library>\d+)"
)
_STARTING = re.compile(r"# Collective test starting: (?P<program>\S+)")
_PARAMETERS = re.compile(
    r"# nThread (?P<threads>\d+) nGpus (?P<gpus>\d+) minBytes (?P<min>\d+) maxBytes (?P<max>\d+)"
    r" step: \d+\(\w+\) warmup iters: (?P<warmup>\d+) iters: (?P<iters>\d+)(?P<more>.*)"
)
_MORE = re.compile(r"(agg iters|graph|validation|unalign): (\d+)")
_BLOCKING = re.compile(r"# Blocking Enabled.*")
_RANK = (
    r"Rank\s+(?P<rank>\d+)(?:\s+Group\s+(?P<group>\d+))?\s+Pid\s+(?P<pid>\d+)"
    r"\s+on\s+(?P<host>\S+(?: \S+){0,3})\s+device\s+(?P<device>\d+)"
)
_DEVICE = re.compile(rf"#\s+{_RANK}\s+\[(?P<bus>[^\]]*)\]\s*(?P<gpu>.*?)\s*$")
_HOST = re.compile(rf"{_RANK}|\"hostname\"\s*:\s*\"(?P<json>[^\"]+)\"")
_BUS = re.compile(
    r"[0-9a-fA-F]{4,8}:(?P<long>[0-9a-fA-F]{2}):[0-9a-fA-F]{2}(?:\.\d)?"
    r"|[0-9a-fA-F]{4}(?P<packed>[0-9a-fA-F]{2})[0-9a-fA-F]{2}|0x(?P<short>[0-9a-fA-F]{2})"
)
_LIBRARY = re.compile(r"# rccl-tests: Version ")
_REDUCED = re.compile(r"# Reducing maxBytes to (?P<max>\d+) due to memory limitation")
MAX_RANKS = 1 << 20
_LEAST_OF_2_KIB = 12
"""Number of device lines that always fit into 2 KiB, even with the longest names of host and
GPU."""


class TableDevice(NamedTuple):
    """One line of the device list."""

    rank: int
    group: int
    pid: int
    host: str
    gpu: str
    bus: str = ""
    device: int = 0


def nccl_version_of(code: int) -> str:
    """Return the version of a code: `2.28.9` for 22809. Before 2.9 codes were shorter (2803)."""
    if code >= 10000:
        return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
    return f"{code // 1000}.{code // 100 % 10}.{code % 100}"


_PARTS = (
    ("device", _DEVICE),
    ("parameters", _PARAMETERS),
    ("version", _VERSION),
    ("starting", _STARTING),
    ("reduced", _REDUCED),
    ("blocking", _BLOCKING),
    ("library", _LIBRARY),
)


def header_part(line: str) -> tuple[str, re.Match[str]] | None:
    """Return the kind of a header line (`device`, `version`) and its match; else None."""
    for part, pattern in _PARTS:
        if (match := pattern.match(line)) is not None:
            return part, match
    return None


def listed_hosts(text: str) -> dict[str, str]:
    """Return the short host names in the device lists of a text, also in JSON, by their hash."""
    names = (match["host"] or match["json"] for match in _HOST.finditer(text))
    return {host_hash(short): short for short in (name.partition(".")[0] for name in names)}


class NcclTestsRun:
    """The facts of one start of an nccl-tests program, as far as its output shows them."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.tool_version: str | None = None
        self.nccl_version: str | None = None
        self.library: str | None = None
        self.collective: Collective | None = None
        self.parameters = ""
        self.ranks_per_process = 1
        self.iterations: int | None = None
        self.calls = DEFAULT_ITERATIONS + DEFAULT_WARMUP
        self.gpus_per_process: int | None = None
        self.stamps = Stamps()
        self.aggregated = 1
        self.graph = 0
        self.blocking = 0
        self.unaligned = 0
        self.preloaded: tuple[str, ...] = ()
        self.stated: tuple[int | None, int | None] = (None, None)
        self.devices: list[TableDevice] = []
        self._holders: dict[tuple[int, int], tuple[str, int]] = {}
        self.copies: set[tuple[str, int]] = set()
        self.hosts_told = True
        self.abridged = False
        self.log = NcclLog()
        self.command: CommandFound | None = None
        self.title = ""
        self.options: dict[str, int] = {}

    def set_command(self, command: CommandFound | None) -> None:
        """Set the command line that started the run."""
        self.command = command
        if command is not None:
            self.options = numbers_of(command.arguments)
            if self.gpus_per_process is None and "g" in self.options:
                self.gpus_per_process = self.options["g"] * self.options.get("t", 1) or None
            self.preloaded = command.preloaded

    @property
    def registration(self) -> int | None:
        """Return how buffers are registered: 1 plainly, 2 as symmetric memory; None if not."""
        how = self.options.get("R")
        return how if how in (1, 2) else None

    @property
    def conditions(self) -> tuple[str, ...]:
        """Return in which way the run measured something else than plain calls of NCCL."""
        blocking = self.blocking or self.options.get("z", 0)
        return conditions_of(self.options, blocking, self.unaligned, self.aggregated)

    def take(self, part: str, match: re.Match[str], number: int, report: FileReport) -> None:
        """Process a header line that `header_part` recognised."""
        self.seen.add(part)
        if part == "device":
            device = TableDevice(
                int(match["rank"]),
                int(match["group"] or 0),
                int(match["pid"]),
                match["host"].partition(".")[0],
                match["gpu"],
                match["bus"],
                int(match["device"][:9]),
            )
            if len(self.devices) < MAX_RANKS and not self._is_of_copy(device):
                self.devices.append(device)
        elif part == "parameters":
            self.parameters = match.group()
            self.ranks_per_process = max(1, int(match["threads"]) * int(match["gpus"]))
            more = {name: int(value) for name, value in _MORE.findall(match["more"])}
            self.aggregated = max(1, more.get("agg iters", 1))
            self.graph = more.get("graph", 0)
            self.unaligned = more.get("unalign", 0)
            if match["warmup"] == "0":
                report.flag(FlagKind.NOTE, "no warm-up (-w 0): times may be longer", number)
            each = self.aggregated * max(1, self.graph)
            self.iterations = int(match["iters"]) * each or None
            self.calls = (int(match["iters"]) + int(match["warmup"])) * each
            self.gpus_per_process = int(match["threads"]) * int(match["gpus"])
        elif part == "version":
            self.tool_version = match["version"]
            self.library = "RCCL" if "rccl" in match.group() else "NCCL"
            self.nccl_version = nccl_version_of(int(match["library"]))
            flag_versions(report, int(match["headers"]), int(match["library"]), number)
        elif part == "library":
            self.library = "RCCL"
        elif part == "blocking":
            self.blocking = blocking_of(match.group())
        elif part == "starting":
            self.collective = collective_of_program(match["program"])
        elif part == "reduced":
            report.flag(
                FlagKind.REDUCED_SIZE,
                f"the largest size was reduced to {match['max']} bytes for lack of memory:"
                " what was asked for above it was not measured",
                number,
            )

    def _is_of_copy(self, device: TableDevice) -> bool:
        """Return whether another process has this rank, so that this one is a copy of the test.

        Copies are not one job: each is a run of its own, so only the first one's devices count.
        """
        process = device.host, device.pid
        if self._holders.setdefault((device.group, device.rank), process) != process:
            self.copies.add(process)
        return process in self.copies

    @property
    def group(self) -> list[TableDevice]:
        """Return the devices of rank 0's group.

        With `NCCL_TESTS_SPLIT`, other groups run at the same time.
        """
        if not self.devices:
            return []
        first = min(self.devices).group
        return [device for device in self.devices if device.group == first]

    @property
    def list_complete(self) -> bool:
        """Return whether the device list has every process. Then it gives the ranks and hosts.

        A process prints at most 2 KiB of its devices, about 25 GPUs. Users also shorten the list:
        they keep only the last line, or cut out the middle.
        """
        if not self.devices or self.abridged:
            return False
        each = min(self.ranks_per_process, MAX_RANKS)
        blocks: dict[int, set[int]] = {}
        for device in self.devices:
            blocks.setdefault(device.rank // each, set()).add(device.rank % each)
        if set(blocks) != set(range(len(blocks))):
            return False
        return all(
            len(block) >= min(each, _LEAST_OF_2_KIB) and max(block) == len(block) - 1
            for block in blocks.values()
        )

    @property
    def last_rank(self) -> int | None:
        """Return the highest rank in the device list; None without a list."""
        return max(device.rank for device in self.devices) if self.devices else None

    @property
    def last_device(self) -> int:
        """Return the device of the highest rank; 0 without a list, or if its hosts contradict."""
        last = max(self.devices, default=None)
        hosts = len({device.host for device in self.devices})
        return last.device if last and hosts * (last.device + 1) <= last.rank + 1 else 0

    @property
    def ranks(self) -> int | None:
        """Return the ranks of the communicator; None without a complete device list."""
        if not self.list_complete:
            return None
        if len({device.group for device in self.devices}) > 1:
            return len({device.rank for device in self.group})
        each = min(self.ranks_per_process, MAX_RANKS)
        return (max(self.devices).rank // each + 1) * each

    @property
    def hosts(self) -> int | None:
        """Return the number of hosts in the device list; None if the list is not complete.

        Also None if the environment sets other host ids (NCCL_HOSTID).
        """
        if not self.hosts_told or not self.list_complete:
            return None
        return len({device.host for device in self.group}) or None

    @property
    def machines(self) -> int | None:
        """Return the number of machines in the device list; None if it is unknown.

        Machines may have one host name, as virtual machines and containers often do. Then a GPU is
        listed several times under that name.
        """
        if self.hosts is None:
            return None
        names: dict[str, list[TableDevice]] = {}
        for device in self.group:
            names.setdefault(device.host, []).append(device)
        each = self.gpus_per_process or 1
        counts = [_machines(devices, each) for devices in names.values()]
        return None if None in counts else sum(filter(None, counts))

    @property
    def one_visible(self) -> bool:
        """Return whether each process sees only one GPU, number 0, on a host with several."""
        names: dict[str, list[TableDevice]] = {}
        for device in self.group:
            names.setdefault(device.host, []).append(device)
        return any(map(_one_visible, names.values()))

    @property
    def first_host(self) -> str | None:
        """Return the machine of the first rank in the device list.

        None without a list, or if the host name was created for one start of a container.
        """
        return machine_name(min(self.devices).host) if self.devices else None

    def facts(self, log: NcclLog, *, emulated: bool, restricted: bool) -> PlatformFacts:
        """Return the platform facts in the header, the command line and `log`, the run's NCCL log.

        `emulated` means that the nodes are parts of one host. `restricted` means that `NCCL_ALGO`
        or `NCCL_PROTO` limit the default.
        """
        group = self.group
        listed = {device.rank for device in self.devices}
        whole = self.list_complete
        names = [machine_name(device.host) for device in group]
        hosts = {host_hash(name) for name in names if name is not None}
        known = whole and self.hosts_told and None not in names
        known = known and self.machines == self.hosts
        first = self.first_host
        ranks = Counter(names)
        command = self.command
        commanded = command.settings if command is not None else None
        if command is not None and commanded is not None and restricted:
            commanded = {**commanded, **command.limits}
        by = "environment" if log.whole_environment else "log" if log.started else None
        if by is None and command is not None and commanded is not None:
            only = command.by_title and not commanded.keys() - command.limits.keys()
            by = "heading" if only else "command"
        settings = {**(commanded or {}), **log.settings}
        return PlatformFacts(
            gpu=" and ".join(sorted({device.gpu for device in group if device.gpu})) or None,
            library=self.library,
            machine=command.machine if command is not None else None,
            nccl=log.version
            or self.nccl_version
            or (command.nccl if command is not None else None),
            driver=log.driver,
            network=log.network,
            nics=tuple(sorted(log.nics)),
            hosts=tuple(sorted(hosts)) if known else (),
            first_host=host_hash(first) if first and self.hosts_told and listed >= {0} else None,
            ranks_per_host="+".join(map(str, sorted(ranks.values()))) if known else None,
            gpus=_buses(group) if whole else None,
            gpus_per_process=self.gpus_per_process,
            emulated=emulated if known and log.nodes is not None else None,
            settings=relevant_settings(settings, restricted=restricted) if by else {},
            settings_by=by,
            commanded=None
            if commanded is None
            else tuple(relevant_settings(commanded, restricted=restricted)),
            registration=self.registration,
        )


def _machines(devices: list[TableDevice], each: int) -> int | None:
    """Return the number of machines that list `devices` under one host name; None if unknown.

    nccl-tests gives every process of a machine its own devices, counted from 0. So if each index
    stands for one GPU and is listed twice, there are two machines. But if CUDA_VISIBLE_DEVICES
    selects the GPU of each process, the index is always 0, and ranks may share a GPU. `each` is the
    number of ranks of a process. Without bus numbers, a host name is one machine unless the indices
    show more. Without its PCI domain, one bus number for device 0 of each process shows none.
    """
    # JSON has the bus number of the first GPU of each process only.
    devices = [device for device in devices if device.bus] or devices
    # In virtual machines, only domain or device number differ: `[0000:00:05]`.
    known = any(device.bus.strip("0x:.") for device in devices)
    indices = [device.device for device in devices]
    # Older nccl-tests print no PCI domain, so all GPUs of a GH200 node are `[0x01]`.
    buses = {device.bus for device in devices}
    known = known and (len(buses) >= len(set(indices)) or any(":" in bus for bus in buses))
    places = [(device.device, device.bus) for device in devices]
    keys: list[object] = [device.bus for device in devices] if known else [*indices]
    most = max(Counter(keys).values())
    if most == 1:
        return 1
    one_to_one = len(set(places)) == len(set(indices)) == len(set(keys))
    parts = any("MIG" in device.gpu for device in devices)
    if one_to_one and len(set(indices)) > 1 and not parts and (known or each == 1):
        return most
    return None if known and not _one_visible(devices) else 1


def _one_visible(devices: list[TableDevice]) -> bool:
    """Return whether each process sees one GPU, without its PCI domain, as on a Grace node."""
    return (
        len({device.pid for device in devices}) == len(devices) > 1
        and {device.device for device in devices} == {0}
        and len({device.bus for device in devices}) == 1
        and ":" not in devices[0].bus
    )


def _bus(text: str) -> str | None:
    """Return the bus number in a device line as two hex digits; None if it is unknown."""
    match = _BUS.fullmatch(text)
    return (match["long"] or match["packed"] or match["short"]).lower() if match else None


def _buses(devices: list[TableDevice]) -> str | None:
    """Return the PCI bus numbers of GPUs by rank; None if they are unknown.

    Every release of nccl-tests prints the bus number: `[0000:1b:00]`, `[00001b00]` or `[0x1b]`.
    Older releases print 0x00 if they do not know it.
    """
    found = [_bus(device.bus) for device in sorted(devices)]
    known = [bus for bus in found if bus is not None]
    return None if len(known) < len(found) or set(known) == {"00"} else " ".join(known)


def flag_versions(report: FileReport, headers: int, library: int, line: int) -> None:
    """Flag a program that was compiled with another NCCL version than it runs with."""
    if headers != library:
        report.flag(
            FlagKind.VERSION_MISMATCH,
            f"compiled with the headers of NCCL {nccl_version_of(headers)}, run with"
            f" {nccl_version_of(library)}",
            line,
        )
