# SPDX-License-Identifier: Apache-2.0
"""Parse lines of lspci that people paste without their devices."""

import re
from collections import Counter
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.lspci import link_of
from nccltune.doctor.evidence.parsers.text import bus_id, lines_of
from nccltune.doctor.facts.pci import AcsLine, LinkLine

_ACS = re.compile(r"^\s*ACSCtl:\s*(?P<flags>\S.{0,200})$")
_LINK = re.compile(r"^\s*Lnk(?P<what>Cap|Sta):\s*(?P<text>\S.{0,200})$")
_SLOWER = re.compile(r"Speed [^,]*\(downgraded\)")
_FEWER = re.compile(r"Width [^,]*\(downgraded\)")
_ASKED = re.compile(
    r"\blspci\b.{0,80} -s *(?P<place>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b"
)
_DEVICE = re.compile(r"^[0-9a-f:]{0,9}[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] ", re.M)


class PciLines(NamedTuple):
    """Lines of `lspci -vvv | grep -E 'ACSCtl|Lnk'`. `devices`: whether it names their devices."""

    acs: list[AcsLine]
    links: list[LinkLine]
    devices: bool


def parse_pci_lines(text: str) -> PciLines:
    """Parse `ACSCtl:` and `LnkSta:` lines, equal ones of a device counted. The device is the one of
    the `lspci -s DEVICE` before them, if any."""
    acs: Counter[str] = Counter()
    links: Counter[tuple[str, str | None, str]] = Counter()
    device, most = "", None
    for _, line in lines_of(text):
        if (asked := _ASKED.search(line)) is not None:
            device, most = f"{bus_id(asked['place'])}: ", None
        elif (match := _ACS.match(line)) is not None:
            acs[device + " ".join(match["flags"].split())] += 1
        elif (match := _LINK.match(line)) is not None:
            link = match["text"].rstrip()
            if match["what"] == "Sta":
                links[link, most, device] += 1
            most = link if match["what"] == "Cap" else None
    found = [
        AcsLine(text=flags, count=times, redirects="ReqRedir+" in flags or "CmpltRedir+" in flags)
        for flags, times in acs.items()
    ]
    shown = [link_line(link, can, times, of) for (link, can, of), times in links.items()]
    return PciLines(found, shown, _DEVICE.search(text) is not None)


def link_line(link: str, most: str | None, times: int = 1, device: str = "") -> LinkLine:
    """Return the record of a `LnkSta:` line, and of the `LnkCap:` line before it."""
    (now, lanes), (can, has) = link_of(link), link_of(most)
    return LinkLine(
        text=device + link,
        most=most,
        count=times,
        slower=_SLOWER.search(link) is not None or (now or 0) < (can or 0),
        fewer_lanes=_FEWER.search(link) is not None or (lanes or 0) < (has or 0),
    )
