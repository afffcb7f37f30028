# SPDX-License-Identifier: Apache-2.0
"""Parse pings from each NIC of a node to each NIC of another node.

The text has outputs of `ping`. Before each output, a line names the numbers of the two NICs
(`== 0 3`): first the NIC that pings, then the NIC that is pinged. In the records, the
number of a NIC is called its rail.
"""

import re

from nccltune.doctor.evidence.parsers.text import Parsed, lines_of
from nccltune.doctor.facts.network import RailReach

_HEAD = re.compile(r"^== (?P<from_rail>\d{1,4}) (?P<to_rail>\d{1,4})\s*$")
_RESULT = re.compile(r"(?P<sent>\d{1,9}) packets transmitted, (?P<got>\d{1,9}) (?:packets )?rec")


def parse_rail_pings(text: str) -> Parsed[RailReach]:
    """Return a record for each pair of NICs that the text names.

    `reached` is true if at least one ping of the pair was answered. It is false if no ping was
    answered, or if the text has no result for the pair.
    """
    found: list[RailReach] = []
    unread = 0
    for _, line in lines_of(text):
        head = _HEAD.match(line)
        if head is not None:
            here, there = int(head["from_rail"]), int(head["to_rail"])
            found.append(RailReach(from_rail=here, to_rail=there, reached=False))
            continue
        result = _RESULT.search(line)
        if result is not None and found:
            found[-1].reached = int(result["got"]) > 0
        elif not found:
            unread += 1
    return Parsed(found, unread)
