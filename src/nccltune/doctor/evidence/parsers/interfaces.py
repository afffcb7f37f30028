# SPDX-License-Identifier: Apache-2.0
"""Parse the interfaces that `ip addr` (also -d or -br), `ip link` or `ifconfig` prints."""

import contextlib
import ipaddress
import re

from nccltune.doctor.evidence.parsers.text import lines_of
from nccltune.doctor.facts.network import NodeNic

_FLAGS = re.compile(r"^\d{1,6}: (?P<name>[\w.-]{1,32})(?:@[\w.-]+)?: <[^>]*> ?(?P<rest>.*)")
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
_STATE = re.compile(r"\bstate ([A-Z]{2,20})\b")


def parse_interfaces(text: str) -> list[NodeNic]:
    """Return the interfaces of `ip addr` or `ip link` in their order.

    The result is empty for `ip -o addr`, which prints no flags.
    """
    found: dict[str, NodeNic] = {}
    nic = NodeNic(name="")
    for _, line in lines_of(text):
        if (brief := _BRIEF.match(line)) is not None:
            name, state = brief["name"], brief["state"].lower()
            nic = found[name] = NodeNic(name=name, state=state)
        match = _FLAGS.match(line) or _IFCONFIG.match(line)
        if match is not None:
            before = found.get(match["name"])
            nic = found[match["name"]] = NodeNic(name=match["name"])
            nic.other_mtu = before.mtu if before is not None else None
            state = _STATE.search(match["rest"])
            nic.state = state[1].lower() if state else None
            if "NO-CARRIER" in line:
                nic.state = "no-carrier"
        if nic.mtu is None and (mtu := _MTU.search(line)):
            nic.mtu = int(mtu[1])
        for inet in _INET.finditer(line):
            with contextlib.suppress(ValueError):
                address = ipaddress.ip_interface(f"{inet['ip']}/{inet['bits'] or inet['mask']}")
                nic.networks = list(dict.fromkeys([*(nic.networks or []), str(address.network)]))
    return list(found.values())
