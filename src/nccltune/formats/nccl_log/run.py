# SPDX-License-Identifier: Apache-2.0
"""Collect hardware, graphs and connections from the log of one run (`NCCL_DEBUG=INFO`).

Many ranks write to one log, and their lines are mixed. Facts that span several lines are therefore
assembled per writer (host, process, thread). All ranks of a node print the same facts; equal facts
are kept once.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from nccltune.formats.nccl_log.graph import (
    ChannelCounts,
    GraphFallback,
    GraphOrder,
    LoggedGraph,
    LoggedPath,
    NodePaths,
    System,
    TreeLine,
    TreeReader,
)
from nccltune.formats.nccl_log.lines import log_lines
from nccltune.formats.nccl_log.messages import (
    Message,
    Network,
    RanCall,
    Setting,
    Version,
    read_repeated_message,
)
from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.nccl_log.transports import (
    Connection,
    Multicast,
    Nic,
    Nics,
    P2pOff,
    PxnOff,
)
from nccltune.model.errors import InputError

T = TypeVar("T")
_MOST = 65_536
"""Limit of different items of a kind that are kept, because a log may have any size."""
_WRITERS = 65_536
Writer = tuple[str, str, str]
"""The writer of a line: host, process, thread."""


class Fallback(msgspec.Struct, frozen=True):
    """NCCL found no graph for a pattern and used the order of ranks. `line` counts from 1."""

    pattern: int
    line: int


class _OpenLines:
    """The unfinished hardware tree and graph of one writer. Each spans several lines of the log."""

    def __init__(self) -> None:
        self.tree = TreeReader()
        self.graph: LoggedGraph | None = None
        self.orders: list[tuple[str, ...]] = []


class RunLog:
    """The facts collected from one run.

    Call `read` for each log or `take` for each line, then `finish`. `plain` gets the same lines,
    and collects ranks, nodes and settings. Without `plain`, the caller sets `nodes`. `named` are
    the settings that NCCL read from the environment, including those whose value must not be kept.
    """

    def __init__(self, plain: NcclLog | None = None) -> None:
        self.plain = plain
        self.lines = 0
        self.version: str | None = None
        self.nodes: int | None = None
        self.systems: dict[str, System] = {}
        self.paths: dict[tuple[str, str, str], LoggedPath] = {}
        self.graphs: Counter[LoggedGraph] = Counter()
        self.fallbacks: list[Fallback] = []
        self.channels: Counter[ChannelCounts] = Counter()
        self.connections: dict[Connection, None] = {}
        self.nics: dict[Nic, None] = {}
        self.networks: dict[str, None] = {}
        self.multicast: bool | None = None
        self.p2p_off: dict[P2pOff, None] = {}
        self.pxn_off = False
        self.named: dict[str, None] = {}
        self._open: dict[Writer, _OpenLines] = {}

    def read(self, file: BinaryIO) -> None:
        """Process the lines of a log."""
        for number, _, match in log_lines(file):
            message = read_repeated_message(match.string[match.end() :])
            self.take((match["host"], match["pid"], match["tid"]), message, number)

    def take(self, writer: Writer, message: Message | None, number: int = 0) -> None:
        """Process line `number` of a writer.

        `message` is the parsed line. None is a line that nccltune does not use.
        """
        self.lines += 1
        if self.plain is not None:
            self.plain.take(message)
        lines = self._open.get(writer)
        if lines is not None and lines.graph is not None:
            self._continue_graph(lines, message)
        if message is None or type(message) is RanCall:
            return
        if type(message) is Connection:
            _keep(self.connections, message)
            return
        match message:
            case TreeLine():
                system = self._lines_of(writer).tree.feed(message)
                if system is not None:
                    self.systems.setdefault(writer[0], system)
            case LoggedGraph():
                self._begin_graph(self._lines_of(writer), message)
            case NodePaths():
                self._take_paths(writer[0], message)
            case GraphFallback():
                if len(self.fallbacks) < _MOST:
                    self.fallbacks.append(Fallback(message.pattern, number))
            case _:
                self._take_single(message)

    def _take_paths(self, host: str, message: NodePaths) -> None:
        for path in message.paths:
            if len(self.paths) < _MOST:
                self.paths.setdefault((host, path.source, path.target), path)

    def finish(self) -> None:
        """Finish after the last line. An unfinished graph is kept with the channels read so far."""
        for lines in self._open.values():
            self._end_graph(lines)
        if self.plain is not None:
            self.nodes = self.plain.nodes

    @property
    def transports(self) -> dict[str, int]:
        """Return the number of connections of each kind (see `via`), the most frequent first.

        A network connection is logged by both ends, and counted only once.
        """
        counts: Counter[str] = Counter()
        for item in self.connections:
            if item.way != "receive":
                counts[via(item)] += 1
        return dict(counts.most_common())

    @property
    def gdr_send(self) -> bool | None:
        """Return whether all connections that send over the network use GPUDirect RDMA reads.

        None if no connection sends over the network.
        """
        return _all_gdr(item for item in self.connections if item.way == "send")

    @property
    def gdr_receive(self) -> bool | None:
        """Return whether all connections that receive from the network use GPUDirect RDMA.

        None if no connection receives from the network.
        """
        return _all_gdr(item for item in self.connections if item.way == "receive")

    def _lines_of(self, writer: Writer) -> _OpenLines:
        lines = self._open.get(writer)
        if lines is None:
            lines = _OpenLines()
            if len(self._open) < _WRITERS:
                self._open[writer] = lines
        return lines

    def _begin_graph(self, lines: _OpenLines, graph: LoggedGraph) -> None:
        lines.graph, lines.orders = graph, []
        if not graph.channels:
            self._end_graph(lines)

    def _continue_graph(self, lines: _OpenLines, message: Message | None) -> None:
        """Process the next line of a writer whose graph may have more channels."""
        assert lines.graph is not None
        if isinstance(message, GraphOrder):
            lines.orders.append(message.nodes)
        if not isinstance(message, GraphOrder) or len(lines.orders) >= lines.graph.channels:
            self._end_graph(lines)

    def _end_graph(self, lines: _OpenLines) -> None:
        if lines.graph is not None:
            whole = msgspec.structs.replace(lines.graph, orders=tuple(lines.orders))
            if whole in self.graphs or len(self.graphs) < _MOST:
                self.graphs[whole] += 1
        lines.graph, lines.orders = None, []

    def _take_single(self, message: Message) -> None:
        """Process a message that is complete in one line."""
        match message:
            case ChannelCounts():
                self.channels[message] += 1
            case Nics():
                for nic in message.nics:
                    _keep(self.nics, nic)
            case Multicast():
                self.multicast = message.available and self.multicast is not False
            case PxnOff():
                self.pxn_off = True
            case Version():
                self.version = message.text
            case P2pOff():
                _keep(self.p2p_off, message)
            case Network():
                _keep(self.networks, message.name)
            case Setting(source="environment"):
                _keep(self.named, message.name)


def via(item: Connection) -> str:
    """Return the kind of a connection: `P2P/CUMEM`, `SHM/direct/direct`, `NET/IB/GDRDMA`, ..."""
    if item.network is None:
        return f"{item.transport}/{item.how}" if item.how else item.transport
    return f"{item.transport}/{item.network}" + ("/GDRDMA" if item.gdr else "")


def read_run_log(paths: Iterable[Path]) -> RunLog:
    """Read the log files of one run as one log (`NCCL_DEBUG_FILE` can make one file per process).

    Raises InputError if a file cannot be read.
    """
    log = RunLog(NcclLog())
    for path in paths:
        try:
            with path.open("rb") as file:
                log.read(file)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    log.finish()
    return log


def _all_gdr(connections: Iterable[Connection]) -> bool | None:
    found = [item.gdr for item in connections if item.gdr is not None]
    return all(found) if found else None


def _keep(kept: dict[T, None], item: T) -> None:
    if len(kept) < _MOST:
        kept[item] = None
