# SPDX-License-Identifier: Apache-2.0
"""TCP packets on the wire of a network namespace."""

import ctypes
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

ETH_P_ALL = 0x0003
CLONE_NEWNET = 0x40000000
TCP = 6


@dataclass(frozen=True)
class Packet:
    """A TCP packet."""

    outgoing: bool
    traffic_class: int
    payload: int  # bytes


class PacketTap:
    """All packets of a NIC while the `with` block runs."""

    def __init__(self, namespace: str, nic: str) -> None:
        self.namespace = namespace
        self.nic = nic

    def __enter__(self) -> Self:
        # A socket belongs to the namespace that its thread is in when it is made.
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(Path("/run/netns", self.namespace), os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.setns(there, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        try:
            self.socket = socket.socket(
                socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)
            )
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            self.socket.bind((self.nic, ETH_P_ALL))
        finally:
            assert libc.setns(here, CLONE_NEWNET) == 0
            os.close(here)
            os.close(there)
        self.socket.setblocking(False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def packets(self) -> list[Packet]:
        """What came so far."""
        found: list[Packet] = []
        while True:
            try:
                data, (_, _, kind, *_) = self.socket.recvfrom(65536)
            except BlockingIOError:
                return found
            packet = read(data, kind == socket.PACKET_OUTGOING)
            if packet is not None:
                found.append(packet)


def read(data: bytes, outgoing: bool) -> Packet | None:
    """The TCP packet of IPv4, or of IPv6 without extension headers; else nothing."""
    if data[0] >> 4 == 4 and data[9] == TCP:
        header = 4 * (data[0] & 15)
        total = struct.unpack_from("!H", data, 2)[0]
        traffic_class = data[1]
    elif data[0] >> 4 == 6 and data[6] == TCP:
        header = 40
        total = header + struct.unpack_from("!H", data, 4)[0]
        traffic_class = struct.unpack_from("!I", data, 0)[0] >> 20 & 0xFF
    else:
        return None
    return Packet(outgoing, traffic_class, total - header - 4 * (data[header + 12] >> 4))
