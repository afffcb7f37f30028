# SPDX-License-Identifier: Apache-2.0
"""Parse `nvidia-smi nvlink -s` and `-e` (drivers 396 to 580), and `dcgmi nvlink --link-status`.

The outputs list the NVLinks of each GPU: with its rate or as inactive, or with counters of errors.
"""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import add_reading, lines_of

_GPU = re.compile(r"^GPU (?P<index>\d{1,4}):(?: (?P<name>\S.{0,80}?) \(UUID)?")
_ERRORS = re.compile(
    r"^\s+Link (?P<link>\d{1,3}): (?P<counter>(?:Replay|Recovery|CRC) Errors?): "
    r"(?P<value>\d{1,18})\s*$"
)
_DCGM_GPU = re.compile(r"^\s*gpuId (?P<index>\d{1,4}):\s*$")
_DCGM_LINKS = re.compile(r"^\s*[UDX_](?: [UDX_])+\s*$")
_LINK = re.compile(
    r"^\s+Link (?P<link>\d{1,3}): (?:(?P<rate>\d{1,5}(?:\.\d{1,6})?) GB/s|<inactive>)"
)


class GpuLinks(NamedTuple):
    """Numbers of active links and of all links of one GPU, its name if it is printed, and which
    links are not active."""

    active: int
    links: int
    name: str | None = None
    down: tuple[int, ...] = ()


class NvLinks(NamedTuple):
    """Links by GPU. A GPU without NVLink has 0 links. `unread` counts links of an unknown GPU."""

    gpus: dict[int, GpuLinks]
    unread: int


def parse_nvlink_status(text: str) -> NvLinks:
    """Parse `nvidia-smi nvlink -s` or `dcgmi nvlink --link-status`."""
    found: dict[int, GpuLinks] = {}
    gpu: int | None = None
    unread = 0
    inactive = set()
    for _, line in lines_of(text):
        match = _GPU.match(line) or _DCGM_GPU.match(line)
        if match is not None:
            gpu = int(match["index"])
            found[gpu] = GpuLinks(0, 0, match.groupdict().get("name"))
            continue
        if gpu is not None and _DCGM_LINKS.match(line):
            states = line.split()
            down = tuple(link for link, state in enumerate(states) if state == "D")
            up = states.count("U")
            found[gpu] = GpuLinks(up, up + len(down), None, down)
            gpu = None
            continue
        if gpu is not None and "all links are inactive" in line.lower():
            inactive.add(gpu)
            continue
        match = _LINK.match(line)
        if match is None or gpu is None:
            # Skip errors of NVML about one GPU, and lines of other options given with -s.
            unread += match is not None
            continue
        active, links, name, down = found[gpu]
        is_up = match["rate"] is not None
        down = down if is_up else (*down, int(match["link"]))
        found[gpu] = GpuLinks(active + is_up, links + 1, name, down)
    # NVML then says no number of links; there is one at least.
    links = max(1, *(one.links for one in found.values())) if inactive else 0
    found |= {gpu: found[gpu]._replace(links=links) for gpu in inactive}
    return NvLinks(found, unread)


def parse_nvlink_errors(text: str) -> list[dict[tuple[str, str], int]]:
    """Return the readings of `nvidia-smi nvlink -e` by (GPU, link and counter)."""
    readings: list[dict[tuple[str, str], int]] = []
    gpu = ""
    for _, line in lines_of(text):
        if (match := _GPU.match(line)) is not None:
            gpu = f"GPU {match['index']}"
        elif (match := _ERRORS.match(line)) is not None and gpu:
            counter = f"link {match['link']}: {match['counter']}"
            add_reading(readings, (gpu, counter), int(match["value"]))
    return readings
