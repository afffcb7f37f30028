# SPDX-License-Identifier: Apache-2.0
"""Parse ports of RDMA devices in `ibstat`, `ibstatus`, `ibv_devinfo` and `rdma link`.

`/sys/class/infiniband` has the same data and more. These parsers are for files from the user.
"""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of, real, whole

_IBSTAT_CA = re.compile(r"^CA '(?P<name>[\w.-]{1,64})'")
_DEVINFO = re.compile(r"^hca_id:\s*(?P<name>[\w.-]{1,64})")
_DEVINFO_PORT = re.compile(r"^\s+port:\s+(?P<port>\d{1,3})\s*$")
_IBSTAT_PORT = re.compile(r"^\s+Port (?P<port>\d{1,3}):")
_IBSTATUS = re.compile(
    r"^Infiniband device '(?P<name>[\w.-]{1,64})' port (?P<port>\d{1,3}) status:"
)
_RDMA_LINK = re.compile(r"^link (?P<name>[\w.-]{1,64})/(?P<port>\d{1,3}) (?P<rest>.*)$")
_FIELD = re.compile(r"^\s+(?P<label>[A-Za-z_][A-Za-z_ ]*):\s(?P<value>.*)$")
_STATES = {"INITIALIZING": "INIT", "INITIALIZE": "INIT"}
_PHYSICAL = re.compile(r"[^A-Za-z]")


class RdmaPort(NamedTuple):
    """A port. None marks a field that the output does not have.

    `state` is ACTIVE, INIT, DOWN or ARMED.
    """

    name: str
    port: int
    line: int
    state: str | None = None
    phys_state: str | None = None
    rate_gbit_per_s: float | None = None
    link_layer: str | None = None
    sm_lid: int | None = None
    firmware: str | None = None
    netdev: str | None = None
    mtu: int | None = None
    mtu_max: int | None = None


class RdmaPorts(NamedTuple):
    """Ports of an output. `unread` counts unknown lines."""

    ports: tuple[RdmaPort, ...]
    unread: int


def state_name(text: str) -> str | None:
    """Return ACTIVE for `4: ACTIVE`, `Active` and `ACTIVE`, and INIT for `Initializing`."""
    name = text.rpartition(":")[2].strip().upper()
    return _STATES.get(name, name) or None


def phys_name(text: str) -> str | None:
    """Return LinkUp for `5: LinkUp`, `LINK_UP` and `Link Up`; other names capitalized
    (`Polling`)."""
    name = _PHYSICAL.sub("", text.rpartition(":")[2])
    return {"linkup": "LinkUp"}.get(name.lower(), name.capitalize()) or None


def parse_rdma_ports(text: str) -> RdmaPorts:
    """Parse any of these outputs, or several one after the other."""
    ports: list[RdmaPort] = []
    device, firmware, unread = "", None, 0
    in_port = False
    for number, line in lines_of(text):
        if (match := _IBSTAT_CA.match(line) or _DEVINFO.match(line)) is not None:
            device, firmware, in_port = match["name"], None, False
        elif (match := _IBSTATUS.match(line)) is not None:
            device, in_port = match["name"], True
            ports.append(RdmaPort(device, int(match["port"]), number))
        elif (match := _RDMA_LINK.match(line)) is not None:
            ports.append(_link(match, number))
            in_port = False
        elif device and (match := _any_port(line)) is not None:
            ports.append(RdmaPort(device, int(match["port"]), number, firmware=firmware))
            in_port = True
        elif (match := _FIELD.match(line)) is not None and device:
            label, value = match["label"].strip().lower(), match["value"].strip()
            if label in ("firmware version", "fw_ver"):
                firmware = value
            elif in_port:
                ports[-1] = _with(ports[-1], label, value)
        else:
            unread += 1
    return RdmaPorts(tuple(ports), unread)


def _any_port(line: str) -> re.Match[str] | None:
    return _IBSTAT_PORT.match(line) or _DEVINFO_PORT.match(line)


def _with(port: RdmaPort, label: str, value: str) -> RdmaPort:
    match label:
        case "state":
            # ibv_devinfo prints PORT_ACTIVE (4).
            words = value.partition(" (")[0].removeprefix("PORT_")
            return port._replace(state=state_name(words))
        case "physical state" | "phys state" | "phys_state":
            return port._replace(phys_state=phys_name(value.partition(" (")[0]))
        case "active_mtu":
            return port._replace(mtu=whole(value))
        case "max_mtu":
            return port._replace(mtu_max=whole(value))
        case "rate":
            return port._replace(rate_gbit_per_s=real(value))
        case "sm lid" | "sm_lid":
            return port._replace(sm_lid=whole(value))
        case "link layer" | "link_layer":
            return port._replace(link_layer=value or None)
    return port


def _link(match: re.Match[str], number: int) -> RdmaPort:
    words = match["rest"].split()
    fields = dict(zip(words[::2], words[1::2], strict=False))
    return RdmaPort(
        match["name"],
        int(match["port"]),
        number,
        state=state_name(fields["state"]) if "state" in fields else None,
        phys_state=phys_name(fields["physical_state"]) if "physical_state" in fields else None,
        netdev=fields.get("netdev"),
    )
