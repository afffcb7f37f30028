# SPDX-License-Identifier: Apache-2.0
"""Strangers at the ports where processes of this machine listen, while they work.

python benchmarks/net_strangers.py --process PID... [--ports FIRST-LAST] [--a-minute N] \\
    [--seconds S] [--json]

Of each kind so many come every minute, evenly: port scans, HTTP requests, TLS hellos, random bytes,
and silent peers. Ports are those of the processes and of all that they started, looked up
again every second. Ends with the processes, after that many seconds, or at SIGTERM.
"""

import argparse
import asyncio
import contextlib
import ipaddress
import json
import random
import signal
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

LISTENING = "0A"
PATIENCE_S = 10.0
HTTP = (
    b"GET /metrics HTTP/1.1\r\nHost: node17:9100\r\nUser-Agent: Prometheus/2.53.0\r\n"
    b"Accept: text/plain;version=0.0.4\r\n\r\n"
)

Address = tuple[str, int]


@dataclass
class Count:
    """What became of strangers of one kind."""

    sent: int = 0
    refused: int = 0  # no connection came about
    closed: int = 0  # by the other side
    answered: int = 0  # got a byte back


def tls_hello() -> bytes:
    """A ClientHello of TLS 1.2 with one extension, the server's name."""
    name = b"node17.cluster.local"
    server = struct.pack("!HBH", len(name) + 3, 0, len(name)) + name
    extensions = struct.pack("!HH", 0, len(server)) + server
    ciphers = bytes.fromhex("130213031301c02cc030009fcca9cca8ccaac02bc02f009e")
    body = b"\x03\x03" + random.randbytes(32) + b"\x20" + random.randbytes(32)
    body += struct.pack("!H", len(ciphers)) + ciphers + b"\x01\x00"
    body += struct.pack("!H", len(extensions)) + extensions
    handshake = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack("!H", len(handshake)) + handshake


# A scan sends nothing and resets; who is silent stays.
KINDS: dict[str, Callable[[], bytes | None]] = {
    "scan": lambda: None,
    "http": lambda: HTTP,
    "tls": tls_hello,
    "random": lambda: random.randbytes(random.randint(64, 4096)),
    "silent": lambda: b"",
}


def with_descendants(processes: set[int]) -> set[int]:
    """The processes and all that they started, as far as they are still there."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The name, in brackets, may have blanks.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(folder.name)] = int(fields[1])
    found = processes & parents.keys()
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def parse(end: str, of_any: str) -> Address:
    """An address and port in the words of /proc/net/tcp: four bytes each in the host's order."""
    text, port = end.split(":")
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    address = str(ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words)))
    return (of_any if int(text, 16) == 0 else address, int(port, 16))


def listening(processes: set[int]) -> list[Address]:
    """Where they listen for TCP, IPv4 and global IPv6; each in its own network namespace."""
    ends: set[Address] = set()
    for process in processes:
        inodes = set()
        for link in Path(f"/proc/{process}/fd").glob("*"):
            with contextlib.suppress(OSError):
                inodes.add(str(link.readlink()))
        for name, of_any in (("tcp", "127.0.0.1"), ("tcp6", "::1")):
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{process}/net/{name}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == LISTENING and f"socket:[{fields[9]}]" in inodes:
                        ends.add(parse(fields[1], of_any))
    return sorted(ends)


async def visit(end: Address, said: bytes | None, count: Count) -> None:
    """One stranger."""
    count.sent += 1
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(*end), PATIENCE_S)
    except (OSError, TimeoutError):
        count.refused += 1
        return
    try:
        if said is None:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return
        writer.write(said)
        with contextlib.suppress(TimeoutError):
            answer = await asyncio.wait_for(reader.read(1), PATIENCE_S)
            count.closed += not answer
            count.answered += bool(answer)
    except ConnectionError:
        count.closed += 1
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def disturb(
    processes: set[int], ports: range, a_minute: float, seconds: float
) -> dict[str, Count]:
    """Strangers until the time is over or the processes are."""
    counts = {kind: Count() for kind in KINDS}
    visits: set[asyncio.Task[None]] = set()
    start = time.monotonic()
    ends: list[Address] = []
    looked, due = 0.0, 0
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    while (now := time.monotonic()) - start < seconds and not told.is_set():
        if now - looked > 1:
            alive = with_descendants(processes)
            if not alive:
                break
            ends, looked = [end for end in listening(alive) if end[1] in ports], now
        while due < (now - start) * a_minute / 60:
            due += 1
            # Whose time comes while nobody listens stays away.
            for kind, says in KINDS.items() if ends else ():
                task = asyncio.create_task(visit(random.choice(ends), says(), counts[kind]))
                visits.add(task)
                task.add_done_callback(visits.discard)
        await asyncio.sleep(0.01)
    for task in visits:
        task.cancel()
    await asyncio.gather(*visits, return_exceptions=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--process", type=int, nargs="+", required=True, metavar="PID")
    parser.add_argument("--ports", default="1-65535", metavar="FIRST-LAST", help="no others")
    parser.add_argument("--a-minute", type=float, default=1000, help="of each kind (%(default)s)")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    first, last = map(int, arguments.ports.split("-"))
    ports = range(first, last + 1)
    counts = asyncio.run(
        disturb(set(arguments.process), ports, arguments.a_minute, arguments.seconds)
    )
    if arguments.json:
        print(json.dumps({kind: asdict(count) for kind, count in counts.items()}))
        return
    print(f"{'':8}{'sent':>8}{'refused':>9}{'closed':>8}{'answered':>10}")
    for kind, count in counts.items():
        print(f"{kind:8}{count.sent:8}{count.refused:9}{count.closed:8}{count.answered:10}")


if __name__ == "__main__":
    main()
