# SPDX-License-Identifier: Apache-2.0
"""Parse `lspci -vvv` (pciutils 3.1 to 3.13), with or without -D, -n and -nn.

Without root rights lspci prints `Capabilities: <access denied>`. Such a device has `denied` set.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import Parsed, bus_id, real, whole

_START = re.compile(r"\n(?=(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7] )")
_CLASS = re.compile(r"^[^:\n]*?\[(?P<named>[0-9a-f]{4})\]:|^(?P<bare>[0-9a-f]{4}): ")
_IDS = re.compile(r"\[?\b(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\b\]?")
_LINK = re.compile(r"Speed (?P<speed>unknown|[\d.]+ ?GT/s)[^,\n]*, Width (?P<width>x\d+)")
_KINDS = (
    ("PCI bridge", "0604"),
    ("3D controller", "0302"),
    ("VGA compatible controller", "0300"),
    ("Display controller", "0380"),
    ("Ethernet controller", "0200"),
    ("Infiniband controller", "0207"),
    ("Network controller", "0280"),
    ("Bridge", "0680"),
    ("System peripheral", "0880"),
    ("Processing accelerators", "1200"),
)
_BUSES = re.compile(r"\n\s+Bus: primary=\w+, secondary=(\w{2}), subordinate=(\w{2}),")
_BRIDGE, _NVIDIA = "0604", "10de"


class PciDevice(NamedTuple):
    """A PCI device. None marks a field that the output does not have.

    `acs` is the text after `ACSCtl:`. Speeds are in GT/s per lane. `verbose` is true if lspci
    printed capabilities, as it does with -vvv. `status` is the `LnkSta:` line of a device without
    a `LnkCap:` line. `buses` are the first and the last bus below a bridge.
    """

    bus_id: str
    title: str
    class_code: str | None
    vendor: str | None
    device: str | None
    acs: str | None
    speed: float | None
    speed_max: float | None
    width: int | None
    width_max: int | None
    max_read_request: int | None
    ats: bool | None
    denied: bool
    verbose: bool
    status: str | None = None
    buses: tuple[int, int] | None = None

    @property
    def kind(self) -> str:
        """One of gpu (NVIDIA only), nic, bridge and other."""
        code = self.class_code or ""
        if code == _BRIDGE:
            return "bridge"
        if code.startswith("02"):
            return "nic"
        nvidia = self.vendor == _NVIDIA if self.vendor else "NVIDIA" in self.title
        return "gpu" if code.startswith("03") and nvidia else "other"


def parse_lspci(text: str) -> Parsed[PciDevice]:
    """Return the bridges (also NVSwitches), display devices and NICs in an output of `lspci`."""
    devices, unread = [], 0
    for block in _START.split(text):
        device = _device(block.rstrip())
        if device is None:
            unread += sum(1 for one in block.split("\n") if one and not one.isspace())
        elif device.kind != "other" or (device.class_code or "").startswith(("0680", "03", "12")):
            devices.append(device)
    return Parsed(devices, unread)


@lru_cache(maxsize=8192)
def _device(block: str) -> PciDevice | None:
    """Return the device that a block of lines describes, or None if it describes no device.

    The result is cached, because most blocks are the same on all nodes of a cluster.
    """
    address, _, rest = block.partition("\n")[0][:400].partition(" ")
    place = bus_id(address)
    if place is None:
        return None
    code, vendor, device = _identity(rest)
    can, now = (link_of(_line(block, label)) for label in ("LnkCap:", "LnkSta:"))
    control = _line(block, "DevCtl:", 400)
    request = re.search(r"MaxReadReq (\d+) bytes", control) if control else None
    ats = _line(block, "ATSCtl:")
    buses = _BUSES.search(block)
    return PciDevice(
        bus_id=place,
        title=rest[:200],
        class_code=code,
        vendor=vendor,
        device=device,
        acs=_line(block, "ACSCtl:"),
        speed=now[0],
        speed_max=can[0],
        width=now[1],
        width_max=can[1],
        max_read_request=int(request[1][:9]) if request else None,
        ats="Enable+" in ats if ats is not None else None,
        denied="Capabilities: <access denied>" in block,
        verbose="\n\tCapabilities:" in block or "\n        Capabilities:" in block,
        status=_line(block, "LnkSta:") if "LnkCap:" not in block else None,
        buses=(int(buses[1], 16), int(buses[2], 16)) if buses else None,
    )


def _identity(rest: str) -> tuple[str | None, str | None, str | None]:
    match = _CLASS.match(rest)
    if match:
        code = match["named"] or match["bare"]
        rest = rest[match.end() :]
    else:
        title = rest.partition(":")[0]
        code = next((code for name, code in _KINDS if title == name), None)
    found = list(_IDS.finditer(rest)) if "[" in rest or (match and match["bare"]) else []
    if not found:
        return code, None, None
    # A name may contain brackets too, so the last match is used.
    last = found[-1]
    return code, last["vendor"], last["device"]


def _line(block: str, label: str, most: int = 160) -> str | None:
    """Return at most `most` characters after a label, or None if the label is missing.

    The text ends at the end of the line. If `most` is over 160, the text may span several lines.
    """
    at = block.find(label)
    if at < 0:
        return None
    at += len(label)
    if most <= 160:
        end = block.find("\n", at)
        return block[at : end if end >= 0 else len(block)].strip()[:most]
    return block[at : at + most]


def link_of(line: str | None) -> tuple[float | None, int | None]:
    """Return speed in GT/s and lanes of the rest of a line `LnkCap:` or `LnkSta:`."""
    match = _LINK.search(line) if line else None
    if match is None:
        return None, None
    return real(match["speed"]), whole(match["width"][1:])
