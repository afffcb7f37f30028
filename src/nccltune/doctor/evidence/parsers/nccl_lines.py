# SPDX-License-Identifier: Apache-2.0
"""What rules ask of an NCCL log (`NCCL_DEBUG=INFO`, NCCL 2.18 to 2.32).

`formats/nccl_log.py` and `formats/nccl_run_log.py` follow a log line by line and writer by writer;
this looks at each different message once, keeps every warning, and takes numbers only of a bounded
length: a thousand logs are read at once, and what is in them is foreign.
"""

import re
from collections import Counter
from typing import NamedTuple

from nccltune.formats.nccl_log import NETWORK_LINE, VERSION_LINE
from nccltune.formats.nccl_transport_lines import (
    VIA,
    Nic,
    read_bootstrap,
    read_nics,
    relaxed_ordering,
)

MOST = 2000
LONGEST = 1000
_AT = re.compile(r"NCCL (INFO|WARN) ?")
_WHO = re.compile(r"(?P<who>[^\s:]+:\d+:\d+) ")
# Lines that something is read of; all others are only kept.
_TELLS = re.compile(
    r" via | set by |anks | coll channels|^Pattern |NCCL version|: Using |Using network"
)
# A channel of a graph: ` 0 : GPU/0-60 GPU/0-70`.
_ROW = re.compile(r" ?\d+ : ")
_POINTER = re.compile(r"0x[0-9a-f]{9,}")
_VIA = re.compile(rf"-> .*?(?:\[(?P<way>send|receive)\] )?{VIA}")
_RANKS = re.compile(r"\brank \d+ n[rR]anks (?P<ranks>\d{1,9})\b(?: nNodes (?P<nodes>\d{1,9}))?")
_CHANNELS = re.compile(
    r"(?P<coll>\d{1,5}) coll channels,(?: \d+ collnet channels,)?(?: (?P<nvls>\d{1,5}) nvls)?"
)
_PATTERN = re.compile(
    r"Pattern (?P<pattern>\d{1,3}), crossNic \d+, nChannels (?P<channels>\d{1,5}), "
    r"(?:bw|speed) (?P<intra>\d{1,6}\.\d{1,9})/(?P<inter>\d{1,6}\.\d{1,9}), "
    r"type (?P<kind_intra>\w{2,4})/(?P<kind_inter>\w{2,4})"
)
_SETTING = re.compile(r"(?P<name>NCCL_\w{1,80}) set by (?:\S+ )*?to (?P<value>.*?)\.?\s*$")
# One for each channel, connection or piece of memory: thousands, and no rule reads them as text.
_NOISE = (
    "Channel ",
    "Ring ",
    "Tree ",
    "Trees ",
    "Connected ",
    "Mem ",
    "Cuda Alloc",
    "Cuda Host Alloc",
    "RAS ",
    "Bootstrap timings",
    "Setting affinity",
    "+ ",
    "GPU/",
    "NET/0",
    "CPU/",
    "  ",
)


class Message(NamedTuple):
    """A message, where it first stood and how often it came."""

    text: str
    warn: bool
    line: int
    times: int


class Via(NamedTuple):
    """A kind of connection and how many there are."""

    direction: str
    via: str
    times: int


class Graph(NamedTuple):
    """A graph that the search found; GB/s are of one channel."""

    pattern: int
    channels: int
    gb_per_s_intra: float
    gb_per_s_inter: float
    kind_intra: str
    kind_inter: str


class Said(NamedTuple):
    """A setting that NCCL says it read."""

    name: str
    value: str
    line: int


class NcclLines(NamedTuple):
    """What was read; None is what the log does not say. Ranks, nodes and channels are those of the
    largest communicator."""

    messages: tuple[Message, ...]
    left_out: int
    vias: tuple[Via, ...]
    graphs: tuple[Graph, ...]
    settings: tuple[Said, ...]
    version: str | None
    net: str | None
    net_devices: tuple[str, ...] | None
    relaxed_ordering: bool | None
    bootstrap: str | None
    ranks: int | None
    nodes: int | None
    coll_channels: int | None
    nvls_channels: int | None


class _State:
    def __init__(self) -> None:
        self.first: dict[tuple[str, bool], int] = {}
        self.counts: dict[tuple[str, bool], int] = {}
        self.left_out = 0
        self.vias: dict[tuple[str, str], int] = {}
        self.graphs: dict[Graph, None] = {}
        self.settings: dict[tuple[str, str], int] = {}
        self.version: str | None = None
        self.net: str | None = None
        self.bootstrap: str | None = None
        self.devices: dict[str, tuple[tuple[str, ...], bool | None]] = {}
        self.ranks = self.nodes = 0
        # Ranks of the communicator that a thread is at, and channels by ranks.
        self.has_channels = False
        self.thread_ranks: dict[str, int] = {}
        self.channels: dict[int, tuple[int, int | None]] = {}


def parse_nccl_lines(text: str) -> NcclLines:
    """Read a log, of one process or of many together.

    Ranks say the same many times over: each different message is looked at once.
    """
    state = _State()
    lines = text.split("\n")
    tails = [line[at : at + LONGEST] if (at := line.find("NCCL ")) >= 0 else "" for line in lines]
    counts = Counter(tails)
    counts.pop("", None)
    # From the end on, so that the first line of each stays.
    first = dict(zip(reversed(tails), range(len(tails), 0, -1), strict=True))
    for tail, times in counts.items():
        # The words may stand in a path or a setting before the message.
        match = _AT.search(tail)
        if match is None:
            version = VERSION_LINE.search(tail)
            if version is None:
                continue
            message, warn = tail[version.start() :], False
        else:
            message, warn = tail[match.end() :].rstrip(), match[1] == "WARN"
        number = first[tail]
        if _TELLS.search(message):
            _observe(state, number, times, message)
        if warn or not (message.startswith(_NOISE) or _ROW.match(message)):
            _note(state, number, times, warn, message)
    if state.has_channels:
        _channels(state, lines)
    return _result(state)


def _observe(state: _State, number: int, times: int, message: str) -> None:
    if " via " in message:
        match = _VIA.search(message)
        if match is not None:
            key = (match["way"] or "send", match["via"][:80])
            state.vias[key] = state.vias.get(key, 0) + times
    elif " set by " in message:
        match = _SETTING.search(message)
        if match is not None:
            state.settings.setdefault((match["name"], match["value"]), number)
    elif "anks " in message and (match := _RANKS.search(message)) is not None:
        _ranks(state, int(match["ranks"]), int(match["nodes"] or 0))
    elif "coll channels" in message:
        state.has_channels = True
    elif message.startswith("Pattern ") and (match := _PATTERN.match(message)) is not None:
        graph = Graph(
            int(match["pattern"]),
            int(match["channels"]),
            float(match["intra"]),
            float(match["inter"]),
            match["kind_intra"],
            match["kind_inter"],
        )
        state.graphs[graph] = None
    elif (match := VERSION_LINE.search(message)) is not None:
        state.version = match["version"]
    elif nics := read_nics(message):
        names = tuple(_name(nic) for nic in nics)
        state.devices[nics[0].network] = (names, relaxed_ordering(message))
    elif (match := NETWORK_LINE.search(message)) is not None:
        state.net = match["name"][:80]
    elif (interface := read_bootstrap(message)) is not None:
        state.bootstrap = interface


def _channels(state: _State, lines: list[str]) -> None:
    """Channels by the ranks of the communicator that the thread which says them is at: the line
    itself does not name it."""
    for line in lines:
        if " coll channels" in line or " nRanks " in line:
            who = _who(line)
            ranks = _RANKS.search(line, 0, LONGEST)
            found = _CHANNELS.search(line, 0, LONGEST)
            if ranks is not None and ranks["nodes"]:
                state.thread_ranks[who] = int(ranks["ranks"])
            elif found is not None:
                nvls = int(found["nvls"]) if found["nvls"] else None
                state.channels[state.thread_ranks.get(who, 0)] = (int(found["coll"]), nvls)


def _who(line: str) -> str:
    """Host, process and thread, which stand before the message."""
    match = _WHO.search(line, 0, LONGEST)
    return match["who"] if match else ""


def _name(nic: Nic) -> str:
    """`mlx5_0:1`, or an interface's name alone."""
    return nic.name if nic.port is None else f"{nic.name}:{nic.port}"


def _ranks(state: _State, ranks: int, nodes: int) -> None:
    if ranks > state.ranks:
        state.ranks, state.nodes = ranks, nodes
    elif ranks == state.ranks:
        state.nodes = max(state.nodes, nodes)


def _note(state: _State, number: int, times: int, warn: bool, message: str) -> None:
    key = (_POINTER.sub("0x...", message) if "0x" in message else message, warn)
    if key in state.counts:
        state.counts[key] += times
        state.first[key] = min(number, state.first[key])
    elif len(state.first) < MOST * 4:
        state.first[key], state.counts[key] = number, times
    else:
        state.left_out += 1


def _result(state: _State) -> NcclLines:
    messages = [
        Message(text, warn, line, state.counts[text, warn])
        for (text, warn), line in state.first.items()
    ]
    messages.sort(key=lambda one: (not one.warn, one.line))
    in_use = state.devices.get(state.net or "")
    if in_use is None and state.net is None and len(state.devices) == 1:
        in_use = next(iter(state.devices.values()))
    ib = state.devices.get("IB")
    most = max(state.channels, default=0)
    channels = state.channels.get(most, (None, None))
    return NcclLines(
        messages=tuple(messages[:MOST]),
        left_out=state.left_out + max(0, len(messages) - MOST),
        vias=tuple(Via(way, via, count) for (way, via), count in state.vias.items()),
        graphs=tuple(state.graphs),
        settings=tuple(Said(name, value, line) for (name, value), line in state.settings.items()),
        version=state.version,
        net=state.net,
        net_devices=in_use[0] if in_use is not None else None,
        relaxed_ordering=ib[1] if ib is not None else None,
        bootstrap=state.bootstrap,
        ranks=state.ranks or None,
        nodes=state.nodes or None,
        coll_channels=channels[0],
        nvls_channels=channels[1],
    )
