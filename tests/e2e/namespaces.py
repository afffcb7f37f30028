# SPDX-License-Identifier: Apache-2.0
"""Two hosts in network namespaces of their own, with cables between them that can be slowed."""

import ctypes
import json
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from nccltune.native import net_path
from tests.programs import completed
from tests.waiting import wait_until

TIMEOUT = 120


def ip(words: str) -> str:
    """Return the output of `ip`; its error fails the test."""
    done = completed(["ip", *words.split()])
    assert done.returncode == 0, f"ip {words}: {done.stderr}"
    return done.stdout


def why_no_namespaces() -> str:
    """The reason to skip; empty where namespaces can be had."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"{program} was not found (Debian: iproute2)"
    name = f"nctry{os.getpid()}"
    made = completed(["ip", "netns", "add", name])
    if made.returncode != 0:
        return f"no network namespace can be made: {made.stderr.strip()}"
    pair = ["ip", "-n", name, "link", "add", "try0", "type", "veth", "peer", "name", "try1"]
    cable = completed(pair)
    ip(f"netns del {name}")
    return "" if cable.returncode == 0 else f"no veth can be made: {cable.stderr.strip()}"


@dataclass
class Host:
    """A network namespace; as rank 0 or 1 a process of it runs."""

    name: str
    rank: int
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def ip(self, words: str) -> str:
        return ip(f"-n {self.name} {words}")

    def command(self, words: list[str]) -> list[str]:
        return ["ip", "netns", "exec", self.name, *words]

    def run(self, words: str) -> subprocess.CompletedProcess[str]:
        command = self.command(words.split())
        return completed(command)

    def link(self, nic: str) -> Any:
        return json.loads(self.ip(f"-s -j link show dev {nic}"))[0]

    def await_link(self, nic: str) -> None:
        """The kernel reports a link a little later, and a NIC without one is no device."""
        wait_until(lambda: self.link(nic)["operstate"] == "UP")

    def sent(self, nic: str) -> int:
        """Bytes that left by that NIC so far."""
        return int(self.link(nic)["stats64"]["tx"]["bytes"])

    def slow_down(self, nic: str, mbit: int) -> None:
        """What leaves by that NIC goes no faster from now on."""
        shaped = self.run(
            f"tc qdisc replace dev {nic} root tbf rate {mbit}mbit burst 64kb latency 40ms"
        )
        assert shaped.returncode == 0, shaped.stderr

    def start(self, place: Path, arguments: str, **environment: str) -> subprocess.Popen[str]:
        """The net host, which meets the other rank at `place`."""
        program = net_path().parents[1] / "bin" / "nccltune-net-host"
        words = [*arguments.split(), "--plugin", str(net_path())]
        if "--fork" not in words:
            words += ["--rendezvous", str(place), "--rank", str(self.rank)]
        started = subprocess.Popen(
            self.command([str(program), *words]),
            env={**os.environ, "NCCL_SOCKET_IFNAME": "eth", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(started)
        return started


@dataclass
class Ended:
    """How both ranks ended, and what rank 0 reports."""

    statuses: list[int]
    errors: list[str]
    report: Any

    def expect_messages(self, forward: int, backward: int = 0) -> None:
        """So many arrived at rank 1 and at rank 0; the program has checked each byte."""
        assert self.statuses == [0, 0], self.errors
        received = [rank["received"]["messages"] for rank in self.report["ranks"]]
        assert received == [backward, forward]
        assert self.report["peer_lost"] is None


class Hosts:
    """Rank 0's and rank 1's."""

    def __init__(self, first: Host, second: Host, folder: Path) -> None:
        self.first = first
        self.second = second
        self.folder = folder
        self.runs = 0

    def cable(self, nic: str, net: int, *, mtu: int = 1500, addresses: str = "46") -> None:
        """Between two NICs of one name: 10.77.NET.1 and .2, fd77:NET::1 and ::2."""
        peer = f"peer name {nic} netns {self.second.name}"
        self.first.ip(f"link add {nic} mtu {mtu} type veth {peer}")
        for host in (self.first, self.second):
            if "6" not in addresses:
                host.ip(f"link set {nic} addrgenmode none")
            if "4" in addresses:
                host.ip(f"addr add 10.77.{net}.{host.rank + 1}/24 dev {nic}")
            if "6" in addresses:
                host.ip(f"addr add fd77:{net}::{host.rank + 1}/64 dev {nic} nodad")
            host.ip(f"link set {nic} up")
        for host in (self.first, self.second):
            host.await_link(nic)

    def start(self, arguments: str, **environment: str) -> list[subprocess.Popen[str]]:
        self.runs += 1
        place = self.folder / f"meet{self.runs}"
        return [host.start(place, arguments, **environment) for host in (self.first, self.second)]

    def end(self, ranks: list[subprocess.Popen[str]]) -> Ended:
        told = [rank.communicate(timeout=TIMEOUT) for rank in ranks]
        statuses = [rank.returncode for rank in ranks]
        report = json.loads(told[0][0]) if statuses[0] == 0 else None
        return Ended(statuses, [error for _, error in told], report)

    def run(self, arguments: str, **environment: str) -> Ended:
        return self.end(self.start(arguments, **environment))


@contextmanager
def two_hosts(folder: Path) -> Iterator[Hosts]:
    """Namespaces that are gone afterwards, with all that was started in them."""
    why = why_no_namespaces()
    if why:
        pytest.skip(why)
    both = [Host(f"nc{os.getpid()}r{rank}", rank) for rank in (0, 1)]
    try:
        for host in both:
            ip(f"netns add {host.name}")
            # An address is usable at once: nobody else is on these cables.
            off = "net.ipv6.conf.default.accept_dad=0"
            assert host.run(f"sysctl -qw {off}").returncode == 0
            host.ip("link set lo up")
        yield Hosts(both[0], both[1], folder)
    finally:
        for host in both:
            for process in host.started:
                process.kill()
                process.communicate()
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True, check=False)


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
