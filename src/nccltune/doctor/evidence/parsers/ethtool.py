# SPDX-License-Identifier: Apache-2.0
"""Parse `ethtool`, `ethtool -i` and `ethtool -S` of several interfaces in one text.

-i and -S do not print the interface. The collector therefore writes a line `== NAME` before each
output. In a pasted terminal the command line has the name.
"""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import add_reading, bus_id, lines_of, whole
from nccltune.doctor.facts.network import NodeNic

_NAME = re.compile(
    r"^== (?P<name>[\w.@:-]{1,32})\s*$|^(?:\S{0,80}[\s$#>:~]{1,4})?(?:sudo )?ethtool +"
    r"(?:(?:-[Si]|--statistics) +)?(?P<asked>(?!-)[\w.@:-]{1,32})"
    r"|^Settings for (?P<set>[\w.@:-]{1,32}?):\s*$"
)
_UNNAMED = "an interface"
_FIELD = re.compile(
    r"^(?P<label>driver|version|bus-info|\s+(?:Speed|Link detected)):(?P<value>.*)$"
)
_MODES = re.compile(r"^\s+(?:(?P<label>[A-Z][\w -]*):)?(?P<modes>(?:\s+\d+base\w+/\w+)+)\s*$")
_COUNTER = re.compile(r"^\s*(?P<name>[\w.\[\] -]{1,64}?): +(?P<value>\d{1,20})\s*$")
# Counters of loss or congestion, with the names of mlx5, bnxt_en, ice, ena, gve; bytes by class.
_WANTED = re.compile(
    r"discard|drop|pause|ecn|cnp|out_of_buffer|pfc|crc|fcs_err|symbol_err|allowance_exceeded|link_down"
    r"|^rx_prio\d_bytes",
    re.IGNORECASE,
)
# Counters of a single queue are ignored, because a separate counter has the sum of all queues.
_PER_QUEUE = re.compile(r"(?:^|_)(?:rx|tx|queue|q|ch)_?\d|\[\d|\d+_(?:rx|tx)|^(?:rx|tx)\d")


class Ethtool(NamedTuple):
    """Interfaces by name, and readings of counters of loss and congestion by (interface, counter).

    `unread` is the number of lines that were not recognised.
    """

    interfaces: dict[str, NodeNic]
    readings: list[dict[tuple[str, str], int]]
    unread: int


def parse_ethtool(text: str) -> Ethtool:
    """Parse outputs of `ethtool -i` and `-S`. The interface of lines before the first name is not
    known; only the first such output counts, as another may be of another interface."""
    found: dict[str, NodeNic] = {}
    readings: list[dict[tuple[str, str], int]] = []
    unread, unnamed = 0, 0
    name, modes = "", ""
    for _, line in lines_of(text):
        if (match := _NAME.match(line)) is not None:
            name = match["name"] or match["asked"] or match["set"]
            found.setdefault(name, NodeNic(name=name))
        elif (match := _FIELD.match(line)) is not None and name:
            nic = found.setdefault(name, NodeNic(name=name))
            _put(nic, match["label"].strip(), match["value"].strip()[:80])
        elif (match := _MODES.match(line)) is not None:
            modes = match["label"] or modes
            if name and modes == "Supported link modes":
                speeds = [int(one) for one in re.findall(r"\b(\d{1,7})base", match["modes"])]
                nic = found[name]
                nic.speed_max_mbit_per_s = max(*speeds, nic.speed_max_mbit_per_s or 0)
        elif (match := _COUNTER.match(line)) is not None:
            counter = match["name"].strip()
            wanted = _WANTED.search(counter) and not _PER_QUEUE.search(counter)
            # The bytes of a priority are of use beside those of the others, which may be 0.
            wanted = wanted and (counter[8:] != "_bytes" or "rx_prio1_bytes" in text)
            if wanted and (name or unnamed < 2):
                add_reading(readings, (name or _UNNAMED, counter), int(match["value"]))
        elif line.startswith("NIC statistics:"):
            unnamed += not name
        elif line[0] not in " \t" and ":" not in line:
            unread += 1
    return Ethtool(found, readings, unread)


def _put(nic: NodeNic, label: str, value: str) -> None:
    match label:
        case "driver":
            nic.driver = value or None
        case "version":
            nic.driver_version = value or None
        case "bus-info":
            nic.bus_id = bus_id(value)
        case "Speed":
            nic.speed_mbit_per_s = whole(value)
        case "Link detected":
            nic.state = {"yes": "up", "no": "no-carrier"}.get(value.partition(" ")[0])
