# SPDX-License-Identifier: Apache-2.0
"""Parse one message of NCCL's log into a typed value. Only this package knows NCCL's line formats.

`read_message` parses a message once. Other modules (`run_settings`, `run`, the doctor's
`nccl_lines`) are views, which collect the parsed messages. Source of the formats: NCCL 2.18 to 2.32
(`debug.cc`, `enqueue.cc`, `graph/tuning.cc`, `plugin/tuner*`). `graph` and `transports` name their
own sources.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import msgspec

from nccltune.formats.nccl_log import graph, transports
from nccltune.formats.nccl_log.graph import (
    ChannelCounts,
    GraphFallback,
    GraphOrder,
    LoggedGraph,
    NodePaths,
    TreeLine,
)
from nccltune.formats.nccl_log.transports import (
    Bootstrap,
    Connection,
    Multicast,
    Nics,
    P2pOff,
    PxnOff,
)
from nccltune.model.choice import (
    ALGORITHMS,
    PROTOCOLS,
    Choice,
    parse_algorithm,
    parse_protocol,
)
from nccltune.model.errors import InputError

LONGEST = 4096
"""Number of characters of a message that are parsed. The search time is quadratic in the length.
NCCL truncates its lines at 1,024 characters (`debug.cc`, 2.18 to 2.30)."""

_REMEMBERED = 2048
"""Number of messages in the cache: enough for the start of a communicator, at most 8 MiB of
text."""

Bypass = Literal["symmetric kernel", "copy engine"]
RanChoice = Choice | Bypass


class Version(msgspec.Struct, frozen=True):
    """The three numbers of NCCL's version: `2.28.9` in `NCCL version 2.28.9+cuda13.0`."""

    text: str


class Driver(msgspec.Struct, frozen=True):
    """The CUDA version of the driver: `cudaDriverVersion 13000`."""

    version: str


class Network(msgspec.Struct, frozen=True):
    """The network in `Using network IB`.

    The name of a plugin may have blanks, as in `AWS Libfabric`.
    """

    name: str


class TunerPlugin(msgspec.Struct, frozen=True):
    """The plugin in `TUNER/Plugin: Using tuner plugin NAME`; empty if NCCL found none.

    NCCL 2.19 to 2.20 write `Using tuner plugin: 'NAME'`.
    """

    name: str


class Setting(msgspec.Struct, frozen=True):
    """A setting and its source: `environment` in `NCCL_ALGO set by environment to ring.`."""

    name: str
    value: str
    source: str


class CommSetting(msgspec.Struct, frozen=True):
    """A property that a program gives a communicator: `Comm config Min CTAs set to 4`.

    `label` is NCCL's text, such as `Min CTAs`.
    """

    label: str
    value: str


class LoadedRules(msgspec.Struct, frozen=True):
    """What our tuner plugin loaded for a communicator, and how many of the rules apply to it."""

    path: str
    content: str
    applying: int
    rules: int
    nodes: int
    ranks: int


class Communicator(msgspec.Struct, frozen=True):
    """The size of a communicator, and the rank that logs it.

    `nodes` is None if the line does not state it. `ended` means that the line reports the end of
    the communicator.
    """

    ranks: int
    nodes: int | None
    ended: bool
    rank: int = 0


class RanCall(msgspec.Struct, frozen=True):
    """The choice that ran for a call of `size` bytes.

    If `per_rank` is set, the size of all-gather and reduce-scatter is per rank. Otherwise all sizes
    are over all ranks. `function` is None if NCCL does not name the collective. `ran` is a text if
    the call used a symmetric kernel or the copy engine instead of a choice.
    """

    function: str | None
    size: int
    per_rank: bool
    ran: RanChoice


Message = (
    Version
    | Driver
    | Network
    | TunerPlugin
    | Setting
    | Communicator
    | RanCall
    | Bootstrap
    | ChannelCounts
    | CommSetting
    | LoadedRules
    | Connection
    | GraphFallback
    | GraphOrder
    | LoggedGraph
    | Multicast
    | Nics
    | NodePaths
    | P2pOff
    | PxnOff
    | TreeLine
)

VERSION_LINE = re.compile(r"[NR]CCL version (?:: )?(?P<version>\d{1,9}\.\d{1,9}\.\d{1,9})")
_NETWORK = re.compile(
    r"Using (?:internal )?[Nn]etwork (?!plugin\b)(?P<name>\S{1,80}(?: \S{1,80}){0,8})"
)
# NCCL 2.20 to 2.23 prints algorithm and protocol as numbers, and counts bytes over all ranks. 2.20
# to 2.22 does not name the collective.
_CHOICE_BY_NUMBER = re.compile(
    r"(?:(?P<func>\w+): )?(?P<bytes>\d{1,20}) Bytes -> Algo (?P<algo>\d{1,9}) "
    r"proto (?P<proto>\d{1,9}) time "
)
# NCCL 2.24 and later prints names. Bytes are count x type size, so they are per rank for all-gather
# and reduce-scatter.
_CHOICE_BY_NAME = re.compile(
    r"(?P<func>\w+): (?P<bytes>\d{1,20}) Bytes -> Algo (?P<algo>\w+) proto (?P<proto>\w+)"
    r"(?: channel\{Lo\.\.Hi\}=\{(?P<lo>\d{1,9})\.\.(?P<hi>\d{1,9})\})?"
)
# Calls that run a symmetric kernel (since 2.27) or use the copy engine (since 2.29). NCCL does not
# call the tuner for these calls.
_BYPASSED = re.compile(
    r"(?P<func>\w+) \[(?P<path>Symmetric|Copy Engine|Hierarchical CE)\]: "
    r"(?P<bytes>\d{1,20}) Bytes -> "
)
_SETTING = re.compile(
    r"(?P<name>NCCL_\w{1,80}) set (?:by )?(?P<source>(?:\S{1,40} ){0,4}?)to (?P<value>.*?)\.?\s*$"
)
_COMM_SETTING = re.compile(r"Comm config (?P<label>\w+(?: \w+){0,2}) set to (?P<value>.*?)\s*$")
_LOADED = re.compile(
    r"TUNER/nccltune: (?P<path>.{1,1000}) \(content (?P<content>[0-9a-f]{16})\): "
    r"(?P<applying>\d{1,9}) of (?P<rules>\d{1,9}) rules? appl(?:y|ies) to "
    r"(?P<nodes>\d{1,9}) nodes?, (?P<ranks>\d{1,9}) ranks?\b"
)
_COMMUNICATOR = re.compile(
    r"\brank (?P<rank>\d{1,9}) n[rR]anks (?P<ranks>\d{1,9})\b(?: nNodes (?P<nodes>\d{1,9})\b)?"
)
_DRIVER = re.compile(r"cudaDriverVersion (?P<version>\d{4,6})\b")
_TUNER = re.compile(
    r"TUNER/Plugin: (?:Using (?!internal )(?:tuner plugin )?(?P<name>[^\s(]+)|Could not find|"
    r".*sing internal tuner)|Using tuner plugin:? '?(?P<early>[^\s']+)"
)

_Reader = Callable[[str], Message | None]
_NODE_LINES: tuple[_Reader, ...] = (graph.read_paths, graph.read_tree_line)
_BY_FIRST: dict[str, tuple[_Reader, ...]] = {
    "=": (graph.read_tree_line,),
    "+": (graph.read_tree_line,),
    "B": (transports.read_bootstrap,),
    "C": (
        transports.read_connection,
        graph.read_fallback,
        *_NODE_LINES,
    ),
    "D": _NODE_LINES,
    "G": _NODE_LINES,
    "N": (
        transports.read_nics,
        transports.read_multicast,
        *_NODE_LINES,
    ),
    "P": (
        graph.read_graph,
        transports.read_p2p_off,
        transports.read_pxn_off,
        *_NODE_LINES,
    ),
    "R": (transports.read_connection, *_NODE_LINES),
    **dict.fromkeys("0123456789", (graph.read_order, graph.read_channels)),
}
"""Parsers by the first character of a message that is not a blank. Most messages match none."""


COUNTED = "[repeated "
_COUNT = re.compile(
    r"(?:\x1b\[[\d;]{0,9}m|\s){0,8}\[repeated \d{1,6}x across cluster\].*", re.DOTALL
)


def without_count(message: str) -> str:
    """Return a message without the count that Ray adds to equal lines of processes."""
    return _COUNT.sub("", message) if COUNTED in message else message


def read_message(message: str) -> Message | None:
    """Parse a message, the text after `NCCL INFO`.

    Return None for a message that nccltune does not use.
    """
    message = without_count(message[:LONGEST])
    try:
        if "Bytes ->" in message:
            return _read_choice(message)
        if message.startswith("TUNER/nccltune: ") and (match := _LOADED.match(message)):
            numbers = map(int, match.group("applying", "rules", "nodes", "ranks"))
            return LoadedRules(match["path"], match["content"], *numbers)
        if (match := _COMM_SETTING.match(message)) is not None:
            return CommSetting(match["label"], match["value"])
        is_set = " set by " in message or " set to " in message
        if is_set and (match := _SETTING.search(message)) is not None:
            return Setting(match["name"], match["value"], match["source"].strip())
        for read in _BY_FIRST.get(message.lstrip(" ")[:1], ()):
            if (found := read(message)) is not None:
                return found
        return _read_start(message)
    except ValueError:
        # int() raises ValueError for a number of thousands of digits. NCCL prints no such number.
        return None


read_repeated_message = lru_cache(maxsize=_REMEMBERED)(read_message)
"""`read_message` with a cache. Many ranks print the same messages."""


def read_version(text: str) -> str:
    """Return a version of NCCL. Old releases of PyTorch read the number 21003 as 21.0.3."""
    major, minor, patch = map(int, text.split("."))
    code = major * 1000 + minor * 100 + patch
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}" if 20 <= major < 30 else text


def _read_start(message: str) -> Message | None:
    """Parse a line that NCCL logs at its start; return None for another line.

    The parsed text may follow other words.
    """
    if (match := _DRIVER.match(message)) is not None:
        return Driver(match["version"])
    if "rank" in message:
        if (match := _COMMUNICATOR.search(message)) is None:
            return None
        nodes = int(match["nodes"]) if match["nodes"] is not None else None
        ended = " - Destroy" in message
        return Communicator(int(match["ranks"]), nodes, ended, int(match["rank"]))
    if (match := VERSION_LINE.match(message)) is not None:
        return Version(read_version(match["version"]))
    if (match := _TUNER.search(message)) is not None:
        return TunerPlugin(match["name"] or match["early"] or "")
    if (match := _NETWORK.search(message)) is not None:
        return Network(match["name"])
    return None


def _read_choice(message: str) -> RanCall | None:
    if (match := _CHOICE_BY_NAME.search(message)) is not None and not match["algo"].isdigit():
        try:
            algorithm = parse_algorithm(match["algo"])
            protocol = parse_protocol(match["proto"])
        except InputError:
            return None
        channels = None
        if match["lo"] is not None:
            channels = int(match["hi"]) - int(match["lo"]) + 1
            channels = channels if channels >= 1 else None
        choice = Choice(algorithm, protocol, channels)
        return RanCall(match["func"].lower(), int(match["bytes"]), True, choice)
    if (match := _CHOICE_BY_NUMBER.search(message)) is not None:
        algo, proto = int(match["algo"]), int(match["proto"])
        if algo >= len(ALGORITHMS) or proto >= len(PROTOCOLS):
            return None
        func = match["func"].lower() if match["func"] else None
        choice = Choice(ALGORITHMS[algo], PROTOCOLS[proto])
        return RanCall(func, int(match["bytes"]), False, choice)
    if (match := _BYPASSED.search(message)) is not None:
        path: Bypass = "symmetric kernel" if match["path"] == "Symmetric" else "copy engine"
        return RanCall(match["func"].lower(), int(match["bytes"]), True, path)
    return None
