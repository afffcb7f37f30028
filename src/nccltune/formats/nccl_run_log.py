# SPDX-License-Identifier: Apache-2.0
"""What the log of one run (`NCCL_DEBUG=INFO`) says of hardware, graphs and connections.

Many ranks write into one log, and their lines come mixed: what spans several lines is put together
by writer (host, process, thread). All ranks of a node print the same; what is equal is kept once.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from nccltune.formats import nccl_graph_lines as graph
from nccltune.formats import nccl_transport_lines as transport
from nccltune.formats.lines import line_blocks
from nccltune.formats.nccl_graph_lines import (
    ChannelCounts,
    LoggedGraph,
    LoggedPath,
    RingStep,
    System,
    TreeReader,
    TreeStep,
)
from nccltune.formats.nccl_log import LONGEST, VERSION_LINE, NcclLog, find_log_line
from nccltune.formats.nccl_transport_lines import Connection, Nic, NicGdr, P2pOff, PairGdr
from nccltune.formats.prefixes import strip_prefix
from nccltune.model.errors import InputError

T = TypeVar("T")
_MOST = 65_536
"""So many different things of a kind are kept: a log is bounded by nothing."""
_WRITERS = 65_536
_STRUCTURED = frozenset("+=GCPND0123456789")
_SINGLE = frozenset("CNBPGURT")
"""How the lines begin that matter: most lines of a log do not."""


class Fallback(msgspec.Struct, frozen=True):
    """NCCL found no graph of a pattern and took the order of ranks; `line` is from 1."""

    pattern: int
    line: int


class _Writer:
    """The lines of one thread that belong together."""

    def __init__(self) -> None:
        self.tree = TreeReader()
        self.graph: LoggedGraph | None = None
        self.orders: list[tuple[str, ...]] = []


class RunLog:
    """Everything that was gathered; feed it with `observe` or `observe_line`, then `finish`.

    `plain` is what `NcclLog` reads: ranks, nodes, settings; without it `nodes` is the caller's to
    set. `named` are the settings that NCCL says it read, also those whose value must not be kept.
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
        self.rings: dict[RingStep, None] = {}
        self.trees: dict[TreeStep, None] = {}
        self.ring_orders: dict[int, tuple[int, ...]] = {}
        self.connections: dict[Connection, None] = {}
        self.nics: dict[Nic, None] = {}
        self.no_ib = False
        self.relaxed_ordering: bool | None = None
        self.bootstrap: dict[str, None] = {}
        self.networks: dict[str, None] = {}
        self.nic_gdr: dict[NicGdr, None] = {}
        self.pair_gdr: dict[PairGdr, None] = {}
        self.multicast: bool | None = None
        self.p2p_off: dict[P2pOff, None] = {}
        self.pxn_off = False
        self.named: dict[str, None] = {}
        self._readers: tuple[tuple[Callable[[str], Any], dict[Any, None]], ...] = (
            (transport.read_connection, self.connections),
            (graph.read_ring, self.rings),
            (graph.read_tree, self.trees),
            (transport.read_bootstrap, self.bootstrap),
            (transport.read_nic_gdr, self.nic_gdr),
            (transport.read_pair_gdr, self.pair_gdr),
            (transport.read_p2p_off, self.p2p_off),
        )
        self._writers: dict[tuple[str, str, str], _Writer] = {}

    def observe_line(self, line: str, number: int = 0) -> bool:
        """Take in a line of a log; whether it is one of NCCL's."""
        if " NCCL " not in line:
            return False
        match = find_log_line(strip_prefix(line)[1])
        if match is None:
            return False
        self.observe(
            (match["host"], match["pid"], match["tid"]), match.string[match.end() :], number
        )
        return True

    def observe(self, writer: tuple[str, str, str], message: str, number: int = 0) -> None:
        """Take in what stands after `NCCL INFO`, said by a thread (host, process, thread)."""
        self.lines += 1
        if self.plain is not None:
            self.plain.observe(message)
        message = message[:LONGEST]
        first = message.lstrip(" ")[:1]
        try:
            if first in _STRUCTURED:
                self._structured(writer, message, number)
            if first in _SINGLE:
                self._single(message)
        except ValueError:
            # A number of thousands of digits is none of NCCL's, and more than int() takes.
            return

    def finish(self) -> None:
        """No more comes: what is open counts as far as it came."""
        for writer in self._writers.values():
            self._close(writer)
        if self.plain is not None:
            self.nodes = self.plain.nodes

    @property
    def graph_lines(self) -> bool:
        """Whether the log has lines of GRAPH, without which nothing is said of fallbacks."""
        return bool(self.systems or self.graphs or self.fallbacks)

    @property
    def transports(self) -> dict[str, int]:
        """How many connections there are of each kind, by what stands behind `via`."""
        counts: Counter[str] = Counter()
        for item in self.connections:
            if item.way != "receive":
                counts[via(item)] += 1
        return dict(counts.most_common())

    @property
    def gdr_send(self) -> bool | None:
        """Whether GPUDirect RDMA reads are used by all that send over the network; None where
        nobody does."""
        return _all_gdr(item for item in self.connections if item.way == "send")

    @property
    def gdr_receive(self) -> bool | None:
        """Whether GPUDirect RDMA is used by all that receive from the network."""
        return _all_gdr(item for item in self.connections if item.way == "receive")

    def _structured(self, writer_key: tuple[str, str, str], message: str, number: int) -> None:
        writer = self._writers.get(writer_key)
        if writer is None:
            if len(self._writers) >= _WRITERS:
                return
            writer = self._writers[writer_key] = _Writer()
        if self._continues(writer, message):
            return
        if (system := writer.tree.feed(message)) is not None:
            self.systems.setdefault(writer_key[0], system)
        elif (found := graph.read_graph(message)) is not None:
            writer.graph, writer.orders = found, []
            if not found.channels:
                self._close(writer)
        elif (paths := graph.read_paths(message)) is not None:
            for path in paths:
                if len(self.paths) < _MOST:
                    self.paths.setdefault((writer_key[0], path.source, path.target), path)
        elif (pattern := graph.read_fallback(message)) is not None:
            if len(self.fallbacks) < _MOST:
                self.fallbacks.append(Fallback(pattern, number))
        elif (counts := graph.read_channels(message)) is not None:
            self.channels[counts] += 1

    def _continues(self, writer: _Writer, message: str) -> bool:
        """Whether it is a channel of the graph that a line before began."""
        if writer.graph is None:
            return False
        order = graph.read_order(message)
        if order is not None:
            writer.orders.append(order)
        if order is None or len(writer.orders) >= writer.graph.channels:
            self._close(writer)
        return order is not None

    def _close(self, writer: _Writer) -> None:
        if writer.graph is not None:
            whole = msgspec.structs.replace(writer.graph, orders=tuple(writer.orders))
            if whole in self.graphs or len(self.graphs) < _MOST:
                self.graphs[whole] += 1
        writer.graph, writer.orders = None, []

    def _single(self, message: str) -> None:
        if " set by environment to " in message:
            _keep(self.named, message.partition(" set by environment to ")[0].split()[-1])
            return
        for read, kept in self._readers:
            if (found := read(message)) is not None:
                _keep(kept, found)
                return
        if (order := graph.read_ring_order(message)) is not None:
            self.ring_orders.setdefault(*order)
        elif (trees := graph.read_trees(message)) is not None:
            for tree in trees:
                _keep(self.trees, tree)
        elif (nics := transport.read_nics(message)) is not None:
            for nic in nics:
                _keep(self.nics, nic)
            ordering = transport.relaxed_ordering(message)
            self.relaxed_ordering = self.relaxed_ordering if ordering is None else ordering
        elif (there := transport.read_multicast(message)) is not None:
            self.multicast = there if self.multicast is None else self.multicast and there
        elif message.startswith("Using network "):
            _keep(self.networks, message.removeprefix("Using network ").strip())
        elif (version := VERSION_LINE.search(message)) is not None:
            self.version = version["version"]
        self.no_ib = self.no_ib or transport.no_ib(message)
        self.pxn_off = self.pxn_off or transport.pxn_off(message)


def via(item: Connection) -> str:
    """`P2P/CUMEM`, `SHM/direct/direct`, `NET/IB` or `NET/IB/GDRDMA`: a kind of connection."""
    if item.network is None:
        return f"{item.transport}/{item.how}" if item.how else item.transport
    return f"{item.transport}/{item.network}" + ("/GDRDMA" if item.gdr else "")


def read_run_log(paths: Iterable[Path]) -> RunLog:
    """The log files of one run as one (`NCCL_DEBUG_FILE` makes one a process). Raises InputError
    where a file cannot be read or is no text."""
    log = RunLog(NcclLog())
    for path in paths:
        try:
            with path.open("rb") as file:
                for first, lines in line_blocks(file):
                    for number, line in enumerate(lines, first):
                        log.observe_line(line, number)
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
