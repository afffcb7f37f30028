# SPDX-License-Identifier: Apache-2.0
"""Addresses of interfaces: `ip -o addr`, `ip addr` (also -d), or `/proc/net/if_inet6`."""

import ipaddress
import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of

_HEAD = re.compile(r"^\d{1,6}: (?P<name>[\w.:-]{1,32}?)(?:@[\w.-]+)?(?::\s+<|\s+inet)")
_ADDRESS = re.compile(r"\binet6? (?P<address>[0-9a-fA-F.:]{2,45}/\d{1,3})\b")
_FLAGS = re.compile(r"^\d{1,6}: (?P<name>[\w.-]{1,32})(?:@[\w.-]+)?: <[^>]*> ?(?P<rest>.*)")
_MTU = re.compile(r"\bmtu (\d{1,9})\b")
_STATE = re.compile(r"\bstate ([A-Z]{2,20})\b")
_INET6 = re.compile(
    r"^(?P<address>[0-9a-f]{32}) [0-9a-f]{2} (?P<length>[0-9a-f]{2}) [0-9a-f]{2} [0-9a-f]{2}\s+"
    r"(?P<name>\S{1,32})$"
)


def parse_addresses(text: str) -> dict[str, list[str]]:
    """Return addresses with their prefix length, by interface. Invalid addresses are omitted."""
    found: dict[str, list[str]] = {}
    name = ""
    for _, line in lines_of(text):
        match = _INET6.match(line)
        if match is not None:
            plain = str(ipaddress.IPv6Address(int(match["address"], 16)))
            found.setdefault(match["name"], []).append(f"{plain}/{int(match['length'], 16)}")
            continue
        match = _HEAD.match(line)
        if match is not None:
            name = match["name"]
            found.setdefault(name, [])
        match = _ADDRESS.search(line)
        if match is not None and name and _is_address(match["address"]):
            found[name].append(match["address"])
    return found


class IpInterface(NamedTuple):
    """An interface in the output of `ip addr` or `ip link`. None: the field is not printed."""

    name: str
    mtu: int | None
    state: str | None


def parse_interfaces(text: str) -> tuple[IpInterface, ...]:
    """Return the interfaces of `ip addr` or `ip link` in their order.

    The result is empty for `ip -o -4 addr`, which prints no flags.
    """
    found = {}
    for _, line in lines_of(text):
        match = _FLAGS.match(line)
        if match is None:
            continue
        mtu, state = _MTU.search(match["rest"]), _STATE.search(match["rest"])
        found[match["name"]] = IpInterface(
            match["name"], int(mtu[1]) if mtu else None, state[1].lower() if state else None
        )
    return tuple(found.values())


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return True
