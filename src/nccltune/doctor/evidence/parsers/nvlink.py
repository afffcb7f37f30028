# SPDX-License-Identifier: Apache-2.0
"""Parse `nvidia-smi nvlink -s` (drivers 396 to 580).

The output lists the NVLinks of each GPU, each with its rate or as inactive.
"""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of

_GPU = re.compile(r"^GPU (?P<index>\d{1,4}):")
_LINK = re.compile(r"^\s+Link \d{1,3}: (?:(?P<rate>\d{1,5}(?:\.\d{1,6})?) GB/s|<inactive>)")


class GpuLinks(NamedTuple):
    """Numbers of active links and of all links of one GPU."""

    active: int
    links: int


class NvLinks(NamedTuple):
    """Links by GPU. A GPU without NVLink has 0 links. `unread` counts links of an unknown GPU."""

    gpus: dict[int, GpuLinks]
    unread: int


def parse_nvlink_status(text: str) -> NvLinks:
    """Parse `nvidia-smi nvlink -s`."""
    found: dict[int, GpuLinks] = {}
    gpu: int | None = None
    unread = 0
    for _, line in lines_of(text):
        match = _GPU.match(line)
        if match is not None:
            gpu = int(match["index"])
            found[gpu] = GpuLinks(0, 0)
            continue
        match = _LINK.match(line)
        if match is None or gpu is None:
            # Skip errors of NVML about one GPU, and lines of other options given with -s.
            unread += match is not None
            continue
        active, links = found[gpu]
        found[gpu] = GpuLinks(active + (match["rate"] is not None), links + 1)
    return NvLinks(found, unread)
