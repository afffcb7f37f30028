# SPDX-License-Identifier: Apache-2.0
"""Parse `nvidia-smi nvlink -s`: links of each GPU, active with a rate or inactive (drivers
396-580)."""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of

_GPU = re.compile(r"^GPU (?P<index>\d{1,4}):")
_LINK = re.compile(
    r"^\s+Link (?P<link>\d{1,3}): (?:(?P<rate>\d{1,5}(?:\.\d{1,6})?) GB/s|(?P<off><inactive>))"
)


class GpuLinks(NamedTuple):
    """Links of one GPU: active links, all links, and the lowest rate of an active link in GB/s."""

    gpu: int
    line: int
    active: int
    links: int
    gb_per_s: float | None


class NvLinks(NamedTuple):
    """Links by GPU. A GPU without NVLink has 0 links."""

    gpus: tuple[GpuLinks, ...]
    unread: int


def parse_nvlink_status(text: str) -> NvLinks:
    """Parse `nvidia-smi nvlink -s`."""
    found: dict[int, GpuLinks] = {}
    current: GpuLinks | None = None
    unread = 0
    for number, line in lines_of(text):
        match = _GPU.match(line)
        if match is not None:
            current = GpuLinks(int(match["index"]), number, 0, 0, None)
            found[current.gpu] = current
            continue
        match = _LINK.match(line)
        if match is None or current is None:
            # Skip errors of NVML about one GPU, and lines of other options given with -s.
            unread += match is not None
            continue
        rate = float(match["rate"]) if match["rate"] else None
        rates = [one for one in (current.gb_per_s, rate) if one is not None]
        current = current._replace(
            active=current.active + (rate is not None),
            links=current.links + 1,
            gb_per_s=min(rates) if rates else None,
        )
        found[current.gpu] = current
    return NvLinks(tuple(found[index] for index in sorted(found)), unread)
