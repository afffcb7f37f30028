# SPDX-License-Identifier: Apache-2.0
"""Decode the shared memory (page) in which the network plugin counts a connection.

A connection consists of flows: TCP connections for chunks of large messages, and one express flow
for small messages. The layout is documented in `native/net/stats_page.h`. Any program can make
memory with this name, so no value in it is trusted.
"""

import struct
from typing import Literal, NamedTuple

import msgspec

from nccltune.model.errors import PlatformError

NAME = "nccltune-net-stats"
"""The name of the shared memory, as in the links of `/proc/PID/fd`."""
MAGIC = b"ncclstat"
LAYOUT = 1
LARGEST = 1 << 20
"""The most bytes that are read of a page. A page with 64 flows and the express flow has 17,088."""

_HEAD = struct.Struct("=8s8Q")
_COUNTERS_AT = 320
_COUNTERS = struct.Struct("=14Q")
_TEXTS = {"version": (128, 32), "device": (160, 64), "peer": (224, 96)}
_CONNECTION = 448
_FLOW = struct.Struct("=2Q64s64s12Q")


class NetFlow(msgspec.Struct, frozen=True):
    """A TCP connection of a connection of NCCL; None is what this end does not know.

    `bytes` are delivered (at the sender) or read (at the receiver).
    """

    express: bool
    up: bool
    local: str
    peer: str
    bytes: int
    share: float | None
    bytes_per_s: float | None
    """The rate between two readings."""
    busy_bytes_per_s: int | None
    """The rate during the time in which the flow had data to send."""
    undelivered_bytes: int | None
    min_rtt_us: float | None
    retransmits: int
    chunks: int
    taken_over: int | None
    """Chunks that were first assigned to another flow."""
    duplicates: int | None
    """Received chunks that had arrived before."""
    deaths: int
    dials: int | None


class RequestCounts(msgspec.Struct, frozen=True):
    """Counts of a sender's requests by how they were sent."""

    eager: int
    bulk: int


class NetConnection(msgspec.Struct, frozen=True):
    """One end of a connection of NCCL."""

    role: Literal["sends", "receives"]
    peer: str
    device: str
    seconds: float
    """The age of the connection."""
    bytes: int
    bytes_per_s: float | None
    messages: int
    outstanding: int
    kinds: RequestCounts | None
    """None at the receiver, which does not know how requests were sent."""
    chunks: int
    sent_twice: int
    sent_again: int
    duplicates: int
    stashed: int
    deaths: int
    returns: int
    uncopied_bytes: int | None
    """Bytes sent without a copy (MSG_ZEROCOPY)."""
    zero_copy_drops: int | None
    """Flows that stopped using MSG_ZEROCOPY and copy since then."""
    plugin: str
    """The plugin's version."""
    flows: list[NetFlow]


class Page(NamedTuple):
    """One reading of a page, of process `pid` in its own namespace.

    `sequences` are odd while the plugin writes the addresses of a flow (a seqlock).
    """

    connection: NetConnection
    pid: int
    sequences: tuple[int, ...]

    def whole(self, later: "Page") -> bool:
        """Return whether the plugin wrote no address between this reading and a `later` one."""
        return self.sequences == later.sequences and not any(n % 2 for n in self.sequences)


def decode(data: bytes, now_ns: int) -> Page | None:
    """Return the page in `data`, at CLOCK_MONOTONIC `now_ns`; None during its creation.

    Raises PlatformError for a page that is damaged or has another layout.
    """
    if len(data) < _CONNECTION or data[:8] == bytes(8):
        if len(data) >= _CONNECTION or not data:
            return None
        raise _damaged(f"{len(data)} bytes")
    magic, layout, page, head, stride, count, pid, role, opened_ns = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise _damaged(f"it begins with {magic!r}")
    if layout != LAYOUT:
        raise PlatformError(
            f"its statistics have layout {layout}, and this nccltune reads {LAYOUT}",
            hint="use the nccltune of the plugin's release",
        )
    fits = head >= _CONNECTION and stride >= _FLOW.size and count > 0
    if not fits or page > len(data) or head + count * stride > page or role > 1:
        raise _damaged(f"{count} flows of {stride} bytes behind {head}, in {len(data)}")
    sends = role == 0
    counters = _COUNTERS.unpack_from(data, _COUNTERS_AT)
    requests, messages, total, eager, chunks, again, twice, late, stashed, ends, back = counters[
        :11
    ]
    uncopied, _, drops = counters[11:]
    raw = [_FLOW.unpack_from(data, head + i * stride) for i in range(count)]
    moved = sum(flow[4] for flow in raw)
    connection = NetConnection(
        role="sends" if sends else "receives",
        peer=_text(data, "peer"),
        device=_text(data, "device"),
        seconds=max(now_ns - opened_ns, 0) / 1e9,
        bytes=total,
        bytes_per_s=None,
        messages=messages,
        # The two counters are not read at the same instant, so a request may end in between.
        outstanding=max(requests - messages, 0),
        kinds=RequestCounts(eager, max(requests - eager, 0)) if sends else None,
        chunks=chunks,
        sent_twice=twice,
        sent_again=again,
        duplicates=late,
        stashed=stashed,
        deaths=ends,
        returns=back,
        uncopied_bytes=uncopied if sends else None,
        zero_copy_drops=drops if sends else None,
        plugin=_text(data, "version"),
        flows=[_flow(words, i == 0, sends, moved) for i, words in enumerate(raw)],
    )
    return Page(connection, pid, tuple(flow[0] for flow in raw))


def with_rates(now: NetConnection, before: NetConnection, seconds: float) -> NetConnection:
    """Return `now` with rates since `before`, of as many flows, `seconds` ago."""
    flows = [
        msgspec.structs.replace(flow, bytes_per_s=max(flow.bytes - old.bytes, 0) / seconds)
        for flow, old in zip(now.flows, before.flows, strict=True)
    ]
    # Sum over the flows. `bytes` of the connection grows only when a message ends, and a message
    # may last longer than the time between two readings.
    rate = sum(flow.bytes_per_s or 0.0 for flow in flows)
    return msgspec.structs.replace(now, bytes_per_s=rate, flows=flows)


def _flow(words: tuple[int | bytes, ...], express: bool, sends: bool, moved: int) -> NetFlow:
    local, peer = (bytes(words[i]).split(b"\0")[0].decode("ascii", "replace") for i in (2, 3))
    numbers = [int(word) if isinstance(word, int) else 0 for word in words]
    _, up, _, _, total, chunks, taken, duplicates, deaths, dials, owed, busy, rtt, lost, _, _ = (
        numbers
    )
    bulk_sender = sends and not express
    return NetFlow(
        express=express,
        up=up != 0,
        local=local,
        peer=peer,
        bytes=total,
        share=total / moved if moved else None,
        bytes_per_s=None,
        busy_bytes_per_s=busy if bulk_sender and busy else None,
        undelivered_bytes=owed if bulk_sender else None,
        min_rtt_us=rtt / 1000 if rtt else None,
        retransmits=lost,
        chunks=chunks,
        taken_over=taken if bulk_sender else None,
        duplicates=None if sends else duplicates,
        deaths=deaths,
        dials=dials if sends else None,
    )


def _text(data: bytes, name: str) -> str:
    at, length = _TEXTS[name]
    return data[at : at + length].split(b"\0")[0].decode("utf-8", "replace")


def _damaged(what: str) -> PlatformError:
    return PlatformError(
        f"its statistics are damaged: {what}",
        hint=f"another program may have made memory with the name {NAME}",
    )
