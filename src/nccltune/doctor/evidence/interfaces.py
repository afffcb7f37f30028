# SPDX-License-Identifier: Apache-2.0
"""Read the addresses of this node's interfaces from the kernel, for nodes without `ip`."""

import fcntl
import ipaddress
import socket
import struct

_ADDRESS, _MASK = 0x8915, 0x891B
"""Request numbers of SIOCGIFADDR and SIOCGIFNETMASK (netdevice(7))."""


def ipv4_text() -> bytes:
    """Return the first IPv4 address of each interface, in the format of `ip -o addr`."""
    lines = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for number, name in socket.if_nameindex():
            try:
                address, mask = (_asked(asked, name, what) for what in (_ADDRESS, _MASK))
            except OSError:
                continue
            length = ipaddress.ip_network(f"0.0.0.0/{mask}").prefixlen
            lines.append(f"{number}: {name}    inet {address}/{length}\n")
    return "".join(lines).encode()


def _asked(asked: socket.socket, name: str, what: int) -> str:
    reply = fcntl.ioctl(asked.fileno(), what, struct.pack("256s", name.encode()[:15]))
    return socket.inet_ntoa(reply[20:24])
