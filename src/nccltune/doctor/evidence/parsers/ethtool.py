# SPDX-License-Identifier: Apache-2.0
"""Parse `ethtool -i` and `ethtool -S` of several interfaces in one text.

ethtool does not print the interface. The collector therefore writes a line `== NAME` before each
output. Without such a line the caller gives the name.
"""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import bus_id, lines_of

_NAME = re.compile(r"^== (?P<name>[\w.@:-]{1,32})\s*$")
_FIELD = re.compile(r"^(?P<label>driver|version|firmware-version|bus-info):(?P<value>.*)$")
_COUNTER = re.compile(r"^\s+(?P<name>[\w.\[\] -]{1,64}?): +(?P<value>\d{1,20})\s*$")
# Counters of loss or congestion, with the names of mlx5, bnxt_en, ice, ena, gve.
_WANTED = re.compile(
    r"discard|drop|pause|ecn|cnp|out_of_buffer|pfc|\bcrc\b|allowance_exceeded|link_down",
    re.IGNORECASE,
)
# There are many counters per queue, and their sum is a separate counter.
_PER_QUEUE = re.compile(r"(?:^|_)(?:rx|tx|queue|q|ch)_?\d|\[\d|\d+_(?:rx|tx)|^(?:rx|tx)\d")


class EthtoolInterface(NamedTuple):
    """Fields of an interface that `ethtool` prints."""

    name: str
    line: int
    driver: str | None = None
    version: str | None = None
    firmware: str | None = None
    bus_id: str | None = None


class Counter(NamedTuple):
    """A counter of an interface."""

    nic: str
    name: str
    value: int
    line: int


class Ethtool(NamedTuple):
    """Interfaces and their counters of loss and congestion. `unread` counts unknown lines."""

    interfaces: tuple[EthtoolInterface, ...]
    counters: tuple[Counter, ...]
    unread: int


def parse_ethtool(text: str, name: str = "") -> Ethtool:
    """Parse outputs of `ethtool -i` and `-S`. `name` is the interface of lines before the first
    `== NAME`."""
    found: dict[str, EthtoolInterface] = {}
    counters: list[Counter] = []
    unread = 0
    for number, line in lines_of(text):
        if (match := _NAME.match(line)) is not None:
            name = match["name"]
            found.setdefault(name, EthtoolInterface(name, number))
        elif (match := _FIELD.match(line)) is not None and name:
            before = found.setdefault(name, EthtoolInterface(name, number))
            found[name] = _with(before, match["label"], match["value"])
        elif (match := _COUNTER.match(line)) is not None:
            counter = match["name"].strip()
            if name and _WANTED.search(counter) and not _PER_QUEUE.search(counter):
                counters.append(Counter(name, counter, int(match["value"]), number))
        elif line[0] not in " \t" and ":" not in line:
            unread += 1
    return Ethtool(tuple(found.values()), tuple(counters), unread)


def wanted_counter(name: str) -> bool:
    """Return whether a counter measures loss or congestion and is not for a single queue."""
    return _WANTED.search(name) is not None and _PER_QUEUE.search(name) is None


def _with(interface: EthtoolInterface, label: str, value: str) -> EthtoolInterface:
    value = value.strip()[:80]
    match label:
        case "driver":
            return interface._replace(driver=value or None)
        case "version":
            return interface._replace(version=value or None)
        case "firmware-version":
            return interface._replace(firmware=value or None)
    return interface._replace(bus_id=bus_id(value))
