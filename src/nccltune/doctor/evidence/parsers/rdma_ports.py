# SPDX-License-Identifier: Apache-2.0
"""Parse ports of RDMA devices in `ibstat`, `ibstatus`, `ibv_devinfo`, `rdma link`, `ibdev2netdev`,
`mlxlink`.

`/sys/class/infiniband` has the same data and more. These parsers are for files from the user.
"""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of, real, whole
from nccltune.doctor.facts.network import FabricLink, RdmaPortState

_IBSTAT_CA = re.compile(r"^CA '(?P<name>[\w.-]{1,64})'")
_DEVINFO = re.compile(r"^hca_id:\s*(?P<name>[\w.-]{1,64})")
_DEVINFO_PORT = re.compile(r"^\s+port:\s+(?P<port>\d{1,3})\s*$")
_IBSTAT_PORT = re.compile(r"^\s+Port (?P<port>\d{1,3}):")
_IBSTATUS = re.compile(
    r"^Infiniband device '(?P<name>[\w.-]{1,64})' port (?P<port>\d{1,3}) status:"
)
_RDMA_LINK = re.compile(r"^link (?P<name>[\w.-]{1,64})/(?P<port>\d{1,3}) (?P<rest>.*)$")
_NETDEV = re.compile(
    r"^(?:[0-9a-f:.]+ )?(?P<name>[\w.-]{1,64}) +port +(?P<port>\d{1,3}) +==> +"
    r"(?P<netdev>\S{1,64}) +\((?P<state>\w{1,20})\)"
)
_INDENTED = re.compile(r"^\s+(?:Port \d|port:|[Ss]tate:)", re.M)
_LABEL = re.compile(r"^(?=[A-Za-z][A-Za-z_ ]*:|Port \d)(?!hca_id)", re.M)
_GONE = re.compile(r"^ibpanic: .*IB device '(?P<name>[\w.-]{1,64})' failed")
_FIELD = re.compile(r"^\s+(?P<label>[A-Za-z_][A-Za-z_ ]*):\s(?P<value>.*)$")
_MLXLINK = re.compile(r"\bmlxlink\b.*? -d +(?P<name>[\w.:/-]{1,64})|^(?: *\")?Operational Info")
_MLXLINK_FIELD = re.compile(
    r"^(?: *\")?(?P<label>State|Physical state|Speed|Width|Recommendation)\"? *: \"?"
    r"(?P<value>.*?)\"?,?\s*$"
)
_LANES = {"SDR": 2.5, "DDR": 5, "QDR": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}
_STATES = {"INITIALIZING": "INIT", "INITIALIZE": "INIT"}
_PHYSICAL = re.compile(r"[^A-Za-z]")


_FABRIC_LINK = re.compile(
    r"==\( *(?P<width>\d{1,2}X) +(?P<speed>[\d.]+ Gbps|[A-Z]+\d*)[^)]{0,40}\)==>"
    r".{0,200}?(?:\(.*\bCould be (?P<could_be>[^()]{1,60}?) *(?:\(.*)?\))?\s*$"
)


def parse_fabric_links(text: str) -> list[FabricLink]:
    """Return the links of `iblinkinfo` that are up."""
    return [
        FabricLink(
            text=line.strip()[:200],
            rate=f"{match['width']} {match['speed']}",
            could_be=match["could_be"],
        )
        for _, line in lines_of(text)
        if (match := _FABRIC_LINK.search(line)) is not None
    ]


class RdmaPorts(NamedTuple):
    """Ports of an output. `line` is the line number of the first port.

    `unread` counts unknown lines.
    """

    ports: list[RdmaPortState]
    line: int
    unread: int


def state_name(text: str) -> str | None:
    """Return ACTIVE for `4: ACTIVE`, `Active` and `ACTIVE`, and INIT for `Initializing`.

    Another name is returned in capitals, and None if there is no name.
    """
    name = text.rpartition(":")[2].strip().upper()
    return _STATES.get(name, name) or None


def phys_name(text: str) -> str | None:
    """Return LinkUp for `5: LinkUp`, `LINK_UP` and `Link Up`.

    Another name is returned capitalized (`Polling`), and None if there is no name.
    """
    name = _PHYSICAL.sub("", text.rpartition(":")[2])
    return {"linkup": "LinkUp"}.get(name.lower(), name.capitalize()) or None


def parse_rdma_ports(text: str) -> RdmaPorts:
    """Parse outputs of `ibstat`, `ibstatus`, `ibv_devinfo`, `rdma link`, `mlxlink` in one text."""
    ports = _mlxlink_ports(text)
    device, firmware, first, unread = "", None, 0, 0
    # Web pages lose the indentation.
    text = text if _INDENTED.search(text) else _LABEL.sub(" ", text)
    in_port, foreign = False, bool(ports)
    for number, line in lines_of(text):
        if (match := _IBSTAT_CA.match(line) or _DEVINFO.match(line)) is not None:
            device, firmware, in_port = match["name"], None, False
        elif (match := _IBSTATUS.match(line)) is not None:
            device, in_port = match["name"], True
            ports.append(RdmaPortState(name=device, port=int(match["port"])))
        elif (match := _RDMA_LINK.match(line)) is not None:
            ports.append(_link(match))
            in_port = False
        elif (match := _NETDEV.match(line)) is not None:
            state = {"up": "ACTIVE", "down": "DOWN"}.get(match["state"].lower())
            if match["netdev"].startswith("ib"):
                # The state is that of IP over InfiniBand. The port may be up without it.
                state = None
            ports.append(RdmaPortState(name=match["name"], port=int(match["port"]), state=state))
            in_port = False
        elif (match := _GONE.match(line)) is not None:
            ports.append(RdmaPortState(name=match["name"], state="UNREADABLE"))
            device, in_port = "", False
        elif device and (match := _any_port(line)) is not None:
            ports.append(RdmaPortState(name=device, port=int(match["port"]), firmware=firmware))
            in_port = True
        elif (match := _FIELD.match(line)) is not None and device:
            label, value = match["label"].strip().lower(), match["value"].strip()
            if label in ("firmware version", "fw_ver"):
                firmware = value
            elif in_port:
                _put(ports[-1], label, value)
        else:
            unread += not foreign
        first = first or (number if ports else 0)
    return RdmaPorts(ports, first, unread)


def _any_port(line: str) -> re.Match[str] | None:
    return _IBSTAT_PORT.match(line) or _DEVINFO_PORT.match(line)


def _mlxlink_ports(text: str) -> list[RdmaPortState]:
    """Return the port of each output of mlxlink. Only a command line before it names its device."""
    ports: list[RdmaPortState] = []
    asked = ""
    for _, line in lines_of(text):
        if (match := _MLXLINK.search(line)) is not None:
            if not match["name"]:
                name = asked or f"port of output {len(ports) + 1}"
                ports.append(RdmaPortState(name=name, port=1))
            asked = match["name"] or ""
        elif ports and not asked and (match := _MLXLINK_FIELD.match(line)) is not None:
            _put_mlxlink(ports[-1], match["label"], match["value"].strip())
    return ports


def _put_mlxlink(port: RdmaPortState, label: str, value: str) -> None:
    match label:
        case "State":
            port.state = "ACTIVE" if value == "Active" else "DOWN"
        case "Physical state":
            port.phys_state = value
        case "Speed":
            port.link_layer = {"IB": "InfiniBand"}.get(value[:2])
            lane = _LANES.get(value.removeprefix("IB-"))
            port.rate_gbit_per_s = real(value) if lane is None else lane
        case "Width" if port.link_layer == "InfiniBand" and port.rate_gbit_per_s:
            port.rate_gbit_per_s *= whole(value) or 1
        case "Recommendation" if port.state == "DOWN":
            port.phys_state = f"{port.phys_state} ({value[:120]})"


def _put(port: RdmaPortState, label: str, value: str) -> None:
    match label:
        case "state":
            # ibv_devinfo prints PORT_ACTIVE (4).
            words = value.partition(" (")[0].removeprefix("PORT_")
            port.state = state_name(words)
        case "physical state" | "phys state" | "phys_state":
            port.phys_state = phys_name(value.partition(" (")[0])
        case "active_mtu":
            port.mtu = whole(value)
        case "max_mtu":
            port.mtu_max = whole(value)
        case "rate":
            port.rate_gbit_per_s = real(value)
        case "base lid" | "port_lid":
            port.lid = whole(value)
        case "sm lid" | "sm_lid":
            port.sm_lid = whole(value)
        case "link layer" | "link_layer":
            port.link_layer = value or None


def _link(match: re.Match[str]) -> RdmaPortState:
    words = match["rest"].split()
    fields = dict(zip(words[::2], words[1::2], strict=False))
    return RdmaPortState(
        name=match["name"],
        port=int(match["port"]),
        state=state_name(fields["state"]) if "state" in fields else None,
        phys_state=phys_name(fields["physical_state"]) if "physical_state" in fields else None,
        link_layer="InfiniBand" if "lid" in fields else "Ethernet" if "netdev" in fields else None,
        lid=whole(fields.get("lid")),
        sm_lid=whole(fields.get("sm_lid")),
    )


DEV_LISTED = r"^(?:[^\n]{0,80}[$#:] *)?(?:sudo )?ls (?:-\w+ )*/dev/infiniband/?[ \t]*$"


def parse_verbs_devices(text: str) -> set[str]:
    """Return the kinds of devices that `ls /dev/infiniband` printed: uverbs, umad, issm."""
    found = re.search(rf"{DEV_LISTED}((?:\n(?!.*[$#] )[^\n]+)*)", text, re.M)
    return set(re.findall(r"\b(uverbs|umad|issm)\d+\b", found[1] if found else ""))
