# SPDX-License-Identifier: Apache-2.0
"""Parse lines of lspci that people paste without their devices."""

import re
from collections import Counter
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.lspci import link_of
from nccltune.doctor.evidence.parsers.text import lines_of
from nccltune.doctor.facts.pci import AcsLine, LinkLine

_ACS = re.compile(r"^\s*ACSCtl:\s*(?P<flags>\S.{0,200})$")
_LINK = re.compile(r"^\s*Lnk(?P<what>Cap|Sta):\s*(?P<text>\S.{0,200})$")
_SLOWER = re.compile(r"Speed [^,]*\(downgraded\)")
_FEWER = re.compile(r"Width [^,]*\(downgraded\)")
_DEVICE = re.compile(r"^[0-9a-f:]{0,9}[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] ", re.M)


class PciLines(NamedTuple):
    """Lines of `lspci -vvv | grep -E 'ACSCtl|Lnk'`. `devices`: whether it names their devices."""

    acs: list[AcsLine]
    links: list[LinkLine]
    devices: bool


def parse_pci_lines(text: str) -> PciLines:
    """Parse `ACSCtl:` and `LnkSta:` lines, equal ones counted."""
    matches = (_ACS.match(line) for _, line in lines_of(text))
    counts = Counter(" ".join(match["flags"].split()) for match in matches if match)
    found = [
        AcsLine(text=flags, count=times, redirects="ReqRedir+" in flags or "CmpltRedir+" in flags)
        for flags, times in counts.items()
    ]
    return PciLines(found, _links(text), _DEVICE.search(text) is not None)


def _links(text: str) -> list[LinkLine]:
    counts: Counter[tuple[str, str | None]] = Counter()
    most: str | None = None
    for match in filter(None, (_LINK.match(line) for _, line in lines_of(text))):
        link = match["text"].rstrip()
        if match["what"] == "Sta":
            counts[link, most] += 1
        most = link if match["what"] == "Cap" else None
    return [link_line(link, most, times) for (link, most), times in counts.items()]


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
