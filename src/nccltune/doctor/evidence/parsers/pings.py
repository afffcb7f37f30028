# SPDX-License-Identifier: Apache-2.0
"""Parse pings from each NIC of a node to each NIC of another node.

The text has outputs of `ping`. Before each output, a line names the numbers of the two NICs
(`== 0 3`).
"""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of

_HEAD = re.compile(r"^== (?P<from_rail>\d{1,4}) (?P<to_rail>\d{1,4})\s*$")
_RESULT = re.compile(r"(?P<sent>\d{1,9}) packets transmitted, (?P<got>\d{1,9}) (?:packets )?rec")


class RailPing(NamedTuple):
    """Whether one NIC reached the other."""

    from_rail: int
    to_rail: int
    reached: bool
    line: int


class RailPings(NamedTuple):
    """All pairs that were tried. `unread` counts lines before the first pair."""

    pings: tuple[RailPing, ...]
    unread: int


def parse_rail_pings(text: str) -> RailPings:
    """Parse such a text. A pair without any result was not reached."""
    found: list[RailPing] = []
    unread = 0
    for number, line in lines_of(text):
        head = _HEAD.match(line)
        if head is not None:
            found.append(RailPing(int(head["from_rail"]), int(head["to_rail"]), False, number))
            continue
        result = _RESULT.search(line)
        if result is not None and found:
            found[-1] = found[-1]._replace(reached=int(result["got"]) > 0)
        elif not found:
            unread += 1
    return RailPings(tuple(found), unread)
