# SPDX-License-Identifier: Apache-2.0
"""Addresses of interfaces: `ip -o addr`, `ip addr` (also -d), or `/proc/net/if_inet6`."""

import ipaddress
import re

from nccltune.doctor.evidence.parsers.text import lines_of

_HEAD = re.compile(r"^\d{1,6}: (?P<name>[\w.:-]{1,32}?)(?:@[\w.-]+)?(?::\s+<|\s+inet)")
_ADDRESS = re.compile(r"\binet6? (?P<address>[0-9a-fA-F.:]{2,45}/\d{1,3})\b")
_INET6 = re.compile(
    r"^(?P<address>[0-9a-f]{32}) [0-9a-f]{2} (?P<length>[0-9a-f]{2}) [0-9a-f]{2} [0-9a-f]{2}\s+"
    r"(?P<name>\S{1,32})$"
)


def parse_addresses(text: str) -> dict[str, list[str]]:
    """Addresses with their prefix length, by interface; what is no address is left out."""
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


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return True
