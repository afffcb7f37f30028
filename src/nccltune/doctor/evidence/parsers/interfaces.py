# SPDX-License-Identifier: Apache-2.0
"""Parse the interfaces that `ip addr` (also -d or -br), `ip link` or `ifconfig` prints."""

import contextlib
import ipaddress
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of
from nccltune.doctor.facts.network import NodeNic

_FLAGS = re.compile(
    r"^(?P<number>\d{1,6}): (?P<name>[\w.-]{1,32})(?:@[\w.-]+)?: <[^>]*> ?(?P<rest>.*)"
)
# ifconfig of net-tools 1 prints the MTU some lines below the name.
_IFCONFIG = re.compile(r"^(?P<name>[\w.@-]{1,32})(?:: flags=\d+<[^>]*>|\s+Link encap:)(?P<rest>.*)")
_BRIEF = re.compile(
    r"^(?P<name>[\w.-]{1,32})(?:@[\w.-]+)?\s+(?P<state>UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT)\b"
)
_MTU = re.compile(r"\b(?:mtu |MTU:)(\d{1,9})\b")
_INET = re.compile(
    r"\s(?:addr:)?(?P<ip>(?:\d{1,3}\.){3}\d{1,3})"
    r"(?:/(?P<bits>\d{1,2})|\s.{0,60}?(?:netmask |Mask:)(?P<mask>[\d.]+))"
)
_WARNINGS = "Ifconfig ", "Because Infiniband ", "Infiniband hardware "  # of ifconfig
_STATE = re.compile(r"\bstate ([A-Z]{2,20})\b")


def _networks(line: str) -> Iterator[str]:
    for inet in _INET.finditer(line):
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_interface(f"{inet['ip']}/{inet['bits'] or inet['mask']}")
            # A network of one address has no other interface in it.
            if address.network.prefixlen < 32:
                yield str(address.network)


class _Head(NamedTuple):
    """The first line of an interface: its name and number, and whether other text is before it."""

    name: str
    number: int | None
    is_apart: bool


def _are_of_one_host(heads: list[_Head]) -> bool:
    """Return whether each is there once, with the loopback or in one piece with rising numbers."""
    names = {head.name for head in heads}
    numbers = [head.number for head in heads if head.number is not None]
    is_piece = not any(head.is_apart for head in heads[1:])
    is_rising = all(one < other for one, other in pairwise(numbers))
    return len(names) == len(heads) and ("lo" in names or (is_piece and is_rising))


def parse_interfaces(text: str) -> list[NodeNic]:
    """Return the interfaces of `ip addr` or `ip link` in their order.

    The result is empty for `ip -o addr`, which prints no flags. `networks` is known where all are
    of one host: each is there once, and with the loopback, or in one piece with rising numbers.
    Interfaces that are part of another one or have one below have no networks.
    """
    found: dict[str, NodeNic] = {}
    heads: list[_Head] = []
    nic = None
    is_part = is_apart = False
    for _, line in lines_of(text):
        brief = _BRIEF.match(line)
        match = _FLAGS.match(line) or _IFCONFIG.match(line)
        if (head := match or brief) is not None:
            before = found.get(head["name"])
            nic = found[head["name"]] = NodeNic(name=head["name"], networks=[])
            nic.state = brief["state"].lower() if brief is not None else None
            nic.other_mtu = before.mtu if before is not None else None
            number = head.groupdict().get("number")
            heads.append(_Head(head["name"], int(number) if number else None, is_apart))
            is_apart = False
            is_part = "@" in line.partition("<")[0][:80] or " master " in line
        elif not line.startswith((" ", "\t", *_WARNINGS)):
            is_apart = True
        if nic is not None and match is not None:
            state = _STATE.search(match["rest"])
            nic.state = state[1].lower() if state else None
            if "NO-CARRIER" in line:
                nic.state = "no-carrier"
            elif "flags=" in line and "<UP" not in line:
                nic.state = "down"
        if nic is not None and nic.mtu is None and (mtu := _MTU.search(line)):
            nic.mtu = int(mtu[1])
        if nic is not None and not is_part:
            nic.networks = [*dict.fromkeys([*(nic.networks or []), *_networks(line)])]
    if not _are_of_one_host(heads) or not any(one.networks for one in found.values()):
        for one in found.values():
            one.networks = None
    return list(found.values())
