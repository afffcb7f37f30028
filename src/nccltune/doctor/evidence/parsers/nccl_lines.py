# SPDX-License-Identifier: Apache-2.0
"""Extract what the doctor's rules need from an NCCL log: warnings, counts, settings, devices.

`formats.nccl_log.messages` parses the messages. Ranks write the same messages many times, and a
thousand logs are read at once. So each different message is parsed once and counted.
"""

import re
from collections import Counter
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import SettingLine
from nccltune.doctor.facts.log import LogGraph, LogMessage
from nccltune.formats.nccl_log.graph import ChannelCounts, LoggedGraph
from nccltune.formats.nccl_log.lines import NO_TIME
from nccltune.formats.nccl_log.messages import (
    VERSION_LINE,
    Communicator,
    Network,
    Setting,
    Version,
    read_message,
    read_version,
    without_count,
)
from nccltune.formats.nccl_log.transports import Bootstrap, Connection, Nic, Nics

MOST = 2000
LONGEST = 1000
_AT = re.compile(r"NCCL (INFO|WARN) ?")
_WRITER = re.compile(rf"{NO_TIME}(?P<writer>[^\s:]+:\d+:\d+) ")
# Matches a channel of a graph: ` 0 : GPU/0-60 GPU/0-70`.
_ROW = re.compile(r" ?\d+ : ")
# Matches the mask of one CPU. Other masks are noise.
_ONE_CPU = re.compile(r"Setting affinity for GPU \d+ to (?:0+,)*0*[1248]0*(?:,0+)*$")
_POINTER = re.compile(r"0x[0-9a-f]{9,}")
# Messages that are not parsed. NCCL prints thousands of them, one for each rank, channel or path,
# and no rule uses them.
_UNREAD = ("Ring ", "Tree ", "Trees ", "Connected ", "+ ", "GPU/", "NET/0", "CPU/", "  ")
# Messages that are not kept as text, because no rule searches their text.
_NOISE = (
    *_UNREAD,
    "Channel ",
    "Mem ",
    "Cuda Alloc",
    "Cuda Host Alloc",
    "RAS ",
    "Bootstrap timings",
    "Setting affinity",
)


class NcclLines(NamedTuple):
    """Data of a log. None marks a field that the log does not have.

    `warnings` and `messages` are the different warnings and other messages, at most MOST together.
    `vias` counts connections by direction and transport. `net_devices` are the devices of the
    network that NCCL uses (`net`). `relaxed_ordering` is about IB devices. Ranks, nodes and
    channels are those of the largest communicator.
    """

    warnings: list[LogMessage]
    messages: list[LogMessage]
    vias: dict[tuple[str, str], int]
    graphs: list[LogGraph]
    settings: list[SettingLine]
    version: str | None
    net: str | None
    net_devices: list[str] | None
    relaxed_ordering: bool | None
    bootstrap: str | None
    ranks: int | None
    nodes: int | None
    coll_channels: int | None
    nvls_channels: int | None


class _State:
    def __init__(self) -> None:
        # First line number and count of each message. The key True holds warnings, False the
        # other messages.
        self.noted: dict[bool, dict[str, tuple[int, int]]] = {True: {}, False: {}}
        self.vias: dict[tuple[str, str], int] = {}
        self.graphs: list[LogGraph] = []
        self.settings: dict[tuple[str, str], int] = {}
        self.version: str | None = None
        self.net: str | None = None
        self.bootstrap: str | None = None
        self.devices: dict[str, tuple[list[str], bool | None]] = {}
        self.ranks = self.nodes = 0
        # Whether any message has channel counts; and the counts, by the number of ranks of their
        # communicator.
        self.has_channels = False
        self.channels: dict[int, ChannelCounts] = {}


def parse_nccl_lines(text: str) -> NcclLines:
    """Parse a log of one process, or of several processes in one text.

    Each different message is parsed once, because ranks write the same messages many times.
    """
    state = _State()
    lines = text.split("\n")
    tails = [line[at : at + LONGEST] if (at := line.find("NCCL ")) >= 0 else "" for line in lines]
    counts = Counter(tails)
    counts.pop("", None)
    # Iterate from the end, so that the first line number of each message is kept.
    first = dict(zip(reversed(tails), range(len(tails), 0, -1), strict=True))
    for tail, times in counts.items():
        # "NCCL " may also appear in a path or a setting before the message. So the message starts
        # after "NCCL INFO" or "NCCL WARN".
        match = _AT.search(tail)
        if match is None:
            version = VERSION_LINE.search(tail)
            if version is None:
                continue
            if version.start():
                # A program's sentence, such as PyTorch's "NCCL error in: ..., NCCL version 2.28.9".
                state.version = state.version or read_version(version["version"])
                _note(state, first[tail], times, False, tail[version.start() :])
                continue
            message, warn = tail, False
        else:
            message, warn = without_count(tail[match.end() :]).rstrip(), match[1] == "WARN"
        number = first[tail]
        is_early = " via " in message and message.startswith("Ring ")
        if (is_early or not message.startswith(_UNREAD)) and not _ROW.match(message):
            _take(state, number, times, message)
        is_noise = message.startswith(_NOISE) and not _ONE_CPU.match(message)
        if warn or not (is_noise or _ROW.match(message)):
            _note(state, number, times, warn, message)
    if state.has_channels:
        _channels(state, lines)
    return _result(state)


# Ranks that share a GPU are not joined by NVLink.
_ON_ONE_GPU = re.compile(r"\d\[(\w{1,12})\] -> \d{1,7}\[\1\] via SHM")


def _take(state: _State, number: int, times: int, text: str) -> None:
    match read_message(text):
        case Connection() as item if item.transport != "COLLNET" and not _ON_ONE_GPU.search(text):
            via = f"{item.transport}/{item.how}" if item.how else item.transport
            key = (item.way or "send", via[:80])
            state.vias[key] = state.vias.get(key, 0) + times
        case Setting() as item:
            state.settings.setdefault((item.name, item.value), number)
        case Communicator() as item:
            _ranks(state, item.ranks, item.nodes or 0)
        case ChannelCounts():
            state.has_channels = True
        case LoggedGraph() as item:
            row = LogGraph(
                pattern=item.pattern, channels=item.channels, gb_per_s_intra=item.gb_per_s_intra
            )
            if row not in state.graphs:
                state.graphs.append(row)
        case Version() as item:
            state.version = item.text
        case Nics() as item if item.nics:
            names = [_name(nic) for nic in item.nics]
            if item.one_of_several:
                before = state.devices.get(item.network, ([], None))[0]
                names = list(dict.fromkeys([*before, *names]))
            state.devices[item.network] = (names, item.relaxed_ordering)
        case Network() as item:
            state.net = item.name[:80]
        case Bootstrap() as item:
            state.bootstrap = item.interface


def _channels(state: _State, lines: list[str]) -> None:
    """Set `state.channels` by the number of ranks of the communicator.

    A line with channel counts does not name its communicator. The line belongs to the communicator
    that the same thread logged last.
    """
    ranks_of: dict[str, int] = {}
    for line in lines:
        if " coll channels" not in line and " nRanks " not in line:
            continue
        at = _AT.search(line, 0, LONGEST)
        if at is None:
            continue
        writer = _WRITER.search(line, 0, at.start())
        name = writer["writer"] if writer else ""
        match read_message(line[at.end() : at.end() + LONGEST]):
            case Communicator(nodes=int()) as item:
                ranks_of[name] = item.ranks
            case ChannelCounts() as item:
                state.channels[ranks_of.get(name, 0)] = item


def _name(nic: Nic) -> str:
    """Return the name and port of a NIC (`mlx5_0:1`), or only its name if there is no port."""
    return nic.name if nic.port is None else f"{nic.name}:{nic.port}"


def _ranks(state: _State, ranks: int, nodes: int) -> None:
    if ranks > state.ranks:
        state.ranks, state.nodes = ranks, nodes
    elif ranks == state.ranks:
        state.nodes = max(state.nodes, nodes)


def _note(state: _State, number: int, times: int, warn: bool, message: str) -> None:
    text = _POINTER.sub("0x...", message) if "0x" in message else message
    noted = state.noted[warn]
    if text in noted:
        first, before = noted[text]
        noted[text] = min(number, first), before + times
    elif sum(map(len, state.noted.values())) < MOST * 4:
        noted[text] = number, times


def _in_order(noted: dict[str, tuple[int, int]]) -> list[LogMessage]:
    """Return messages in the order of their first lines."""
    ordered = sorted(noted.items(), key=lambda item: item[1][0])
    return [LogMessage(text=text, count=count) for text, (_, count) in ordered]


def _result(state: _State) -> NcclLines:
    warnings, messages = (_in_order(state.noted[warn]) for warn in (True, False))
    in_use = state.devices.get(state.net or "")
    if in_use is None and state.net is None and len(state.devices) == 1:
        in_use = next(iter(state.devices.values()))
    ib = state.devices.get("IB")
    most = max(state.channels, default=0)
    channels = state.channels.get(most)
    return NcclLines(
        warnings=warnings[:MOST],
        messages=messages[: max(0, MOST - len(warnings))],
        vias=state.vias,
        graphs=state.graphs,
        settings=[SettingLine(*key, line) for key, line in state.settings.items()],
        version=state.version,
        net=state.net,
        net_devices=in_use[0] if in_use is not None else None,
        relaxed_ordering=ib[1] if ib is not None else None,
        bootstrap=state.bootstrap,
        ranks=state.ranks or None,
        nodes=state.nodes or None,
        coll_channels=channels.coll if channels else None,
        nvls_channels=channels.nvls if channels else None,
    )
