# SPDX-License-Identifier: Apache-2.0
"""Parse counters of RDMA ports, with the kernel's names: `rdma statistic`, `perfquery`, and files
under /sys/class/infiniband as a collector or a terminal shows them."""

import re
from functools import lru_cache
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import add_reading, lines_of

_STATISTIC = re.compile(r"^link (?P<name>[\w.-]{1,64})/(?P<port>\d{1,3}|-) (?P<rest>.*)$")
_PORT = re.compile(
    r"^# Port (?:extended )?counters: (?:Lid (?P<lid>\d{1,6}) )?.*?port (?P<port>\d{1,3})"
)
_PERF = re.compile(r"^(?P<label>[A-Za-z0-9]{2,40}):\.*(?P<value>\d{1,20})\s*$")
# ibqueryerrors
_QUERIED = re.compile(r'^Errors for (?:0x[0-9a-f]+ )?"(?P<name>[^"]{1,80})"', re.M)
_CLEAN = re.compile(r"^## +[1-9]\d* ports checked, 0 ports have err(?![\s\S]*PMA query f)", re.M)
_QUERIED_PORT = re.compile(r"^\s+GUID 0x[0-9a-f]+ port (?P<port>\d{1,3}):(?P<rest>.*)")
_FAR_END = re.compile(
    r'^Errors for (?:0x[0-9a-f]+ )?"(?P<hca>[^"\n]{1,80})"|^ +GUID \w+ port (?P<port>\d{1,3}):.*\n'
    r' +Link info: .*==>.*"(?P<name>[^"\n]{1,80})"', re.M)  # fmt: skip
_HEAD = re.compile(r"^== (?P<name>[\w.-]{1,64})(?:[/ ](?P<port>\d{1,3}))?\s*$")
# perfquery's names, and the names in /sys/class/infiniband/*/ports/*/counters.
_NAMES = {
    "SymbolErrorCounter": "symbol_error",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "PortRcvErrors": "port_rcv_errors",
    "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "PortRcvSwitchRelayErrors": "port_rcv_switch_relay_errors",
    "PortXmitDiscards": "port_xmit_discards",
    "PortXmitConstraintErrors": "port_xmit_constraint_errors",
    "PortRcvConstraintErrors": "port_rcv_constraint_errors",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors",
    "VL15Dropped": "VL15_dropped",
    "PortXmitWait": "port_xmit_wait",
}
# Counters of bytes, packets and requests measure traffic, not problems.
_TRAFFIC = re.compile(
    r"(?:_data|_packets|_bytes|_requests|_pkts|lifespan|resp_local_length|_cqe_flush_error)$"
    r"|^(?:rx|tx)_(?:read|write|atomic)_|^(?:unicast|multicast)_"
)


_FOLDER = (
    r"/sys/class/infiniband/(?P<hca>[\w.-]+)/ports/(?P<port>\d{1,3})/(?P<folder>(?:hw_)?counters)"
)
_FILE = re.compile(
    rf"^{_FOLDER}/(?P<name>\w{{1,64}})(?:[:=]|[ \t]*[:=]?[ \t]+)(?P<value>\d{{1,20}})$", re.M
)
# Lines of a terminal: a command or heading with the folder, or with files of it.
_SHOWN = re.compile(rf"{_FOLDER}(?:/(?P<name>\w{{1,64}})(?![\w*]))?")
_IS_SHOWN = re.compile(
    r"^(?!/)[^\n]*/sys/class/infiniband/[\w.-]+/ports/\d{1,3}/(?:hw_)?counters", re.M
)
_VALUE = re.compile(r"^\s*(?:(?P<name>[a-z]\w{1,63})\s*[:= \t]\s*)?(?P<value>\d{1,20})\s*$")


class RdmaCounters(NamedTuple):
    """Readings of counters of errors or congestion by (device, port, name). `unread` counts unknown
    lines."""

    readings: list[dict[tuple[str, int, str], int]]
    unread: int


@lru_cache(maxsize=4096)
def wanted_counter(name: str) -> bool:
    """Return whether a counter measures errors or congestion instead of traffic."""
    return _TRAFFIC.search(name) is None


def parse_rdma_counters(text: str) -> RdmaCounters:
    """Parse an output of `rdma statistic`, `perfquery` or `ibqueryerrors`.

    perfquery prints the LID of the port, not the device. A line `== DEVICE PORT` before the output
    names the device. ibqueryerrors without a port above its limits gives one empty reading.
    """
    found: list[dict[tuple[str, int, str], int]] = []
    port, unread = 1, 0
    hca, is_named = "", False
    if _QUERIED.search(text) is not None:
        return _parse_queried(text)
    if _CLEAN.search(text) is not None:
        return RdmaCounters([{}], 0)
    for _, line in lines_of(text):
        if (match := _HEAD.match(line)) is not None:
            hca, port, is_named = match["name"], int(match["port"] or 1), True
        elif (match := _STATISTIC.match(line)) is not None:
            at = int(match["port"]) if match["port"].isdigit() else 1
            words = match["rest"].split()
            for name, value in zip(words[::2], words[1::2], strict=False):
                if value.isdecimal() and len(value) <= 20 and wanted_counter(name):
                    add_reading(found, (match["name"], at, name[:64]), int(value))
        elif (match := _PORT.match(line)) is not None:
            port = int(match["port"])
            hca = hca if is_named else f"LID {match['lid']}" if match["lid"] else ""
        elif (match := _PERF.match(line)) is not None:
            counter = _NAMES.get(match["label"])
            if counter is not None and hca:
                add_reading(found, (hca, port, counter), int(match["value"]))
            elif counter is not None:
                unread += 1
        elif not line.startswith(("#", " ")):
            unread += 1
    return RdmaCounters(found, unread)


def _parse_queried(text: str) -> RdmaCounters:
    found: list[dict[tuple[str, int, str], int]] = []
    hca = ""
    for _, line in lines_of(text):
        if (match := _QUERIED.match(line)) is not None:
            hca = match["name"]
        elif hca and (match := _QUERIED_PORT.match(line)) is not None:
            for name, value in re.findall(r"\[(\w{1,40}) == (\d{1,20})", match["rest"]):
                if name in _NAMES:
                    add_reading(found, (hca, int(match["port"]), _NAMES[name]), int(value))
    return RdmaCounters(found, 0)


def parse_far_ends(text: str) -> dict[tuple[str, int], str]:
    """Return what ibqueryerrors shows at the other end of a (device, port)."""
    found, hca = {}, ""
    for at in _FAR_END.finditer(text):
        hca = at["hca"] or hca
        if at["name"]:
            found[hca, int(at["port"])] = at["name"]
    return found


def parse_counter_files(text: str) -> RdmaCounters:
    """Parse `PATH:VALUE` lines, and what a terminal shows of `cat PATH`, `head PATHS` or a loop."""
    found: list[dict[tuple[str, int, str, str], int]] = []

    def add(at: re.Match[str], name: str, value: str) -> None:
        if wanted_counter(name):
            add_reading(found, (at["hca"], int(at["port"]), at["folder"], name), int(value))

    if _IS_SHOWN.search(text) is None:
        # About half of a collected node's evidence is in such a text.
        for match in _FILE.finditer(text):
            add(match, match["name"], match["value"])
    else:
        folder: re.Match[str] | None = None
        files: list[re.Match[str]] = []
        for _, line in lines_of(text):
            if (whole := _FILE.match(line)) is not None:
                add(whole, whole["name"], whole["value"])
            elif shown := list(_SHOWN.finditer(line)):
                folder, files = shown[0], [one for one in shown if one["name"]]
            elif (value := _VALUE.match(line)) is None:
                # Another command, or the output of one.
                folder, files = None, []
            elif value["name"] and folder is not None:
                add(folder, value["name"], value["value"])
            elif not value["name"] and files:
                at = files.pop(0)
                add(at, at["name"], value["value"])
    # Both folders may have a counter of one name: these are no two readings.
    return RdmaCounters(
        [
            {(hca, port, name): one for (hca, port, _, name), one in reading.items()}
            for reading in found
        ],
        0,
    )
