# SPDX-License-Identifier: Apache-2.0
"""Parse the interfaces that `ip addr` (also -d) or `ip link` prints."""

import re

from nccltune.doctor.evidence.parsers.text import lines_of
from nccltune.doctor.facts.network import NodeNic

_FLAGS = re.compile(r"^\d{1,6}: (?P<name>[\w.-]{1,32})(?:@[\w.-]+)?: <[^>]*> ?(?P<rest>.*)")
_MTU = re.compile(r"\bmtu (\d{1,9})\b")
_STATE = re.compile(r"\bstate ([A-Z]{2,20})\b")


def parse_interfaces(text: str) -> list[NodeNic]:
    """Return the interfaces of `ip addr` or `ip link` in their order.

    The result is empty for `ip -o addr`, which prints no flags.
    """
    found = {}
    for _, line in lines_of(text):
        match = _FLAGS.match(line)
        if match is None:
            continue
        mtu, state = _MTU.search(match["rest"]), _STATE.search(match["rest"])
        found[match["name"]] = NodeNic(
            name=match["name"],
            mtu=int(mtu[1]) if mtu else None,
            state=state[1].lower() if state else None,
        )
    return list(found.values())
