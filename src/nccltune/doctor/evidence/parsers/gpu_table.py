# SPDX-License-Identifier: Apache-2.0
"""Parse the table of `nvidia-smi` and the list of `nvidia-smi -L` (drivers 390 to 580)."""

import re

from nccltune.doctor.evidence.parsers.text import lines_of

_DRIVER = re.compile(r"Driver Version: (?P<driver>\d[\d.]{0,20})")
_FIRST = re.compile(
    r"^\|\s+(?P<index>\d{1,3})\s+(?P<name>\S.*?)\s+(?P<persistence>On|Off|ERR!|N/A)\s*\|"
    r"\s+(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s[^|]*\|"
    r"\s*(?P<ecc>\S+)\s*\|\s*$"
)
_SECOND = re.compile(
    r"^\|\s*\S+\s+(?P<temperature>\d{1,3})C\s+P\d\s*"
    r"(?:(?P<draw>\d+)W / +(?P<limit>\d+)W)?[^|]*\|[^|/]*/\s*\d{1,9}MiB\s*\|"
    r"\s*(?P<busy>\d{1,3})%"
)
_MIG = re.compile(
    r"^\|\s*\|\s*\|\s*(?P<mode>(?:En|Dis)abled\*?)\s*\|\s*$|\s+MIG \S+\s+Device\s+\d+: \(UUID: "
)
_LISTED = re.compile(r"^GPU (?P<index>\d{1,3}): (?P<name>\S.*?) \(UUID: ")


def parse_gpu_table(text: str) -> dict[int, dict[str, str]]:
    """Return fields by GPU index. Fields have the names of `nvidia-smi --query-gpu`.

    The result is empty if the text has neither the table nor the list.
    """
    found: dict[int, dict[str, str]] = {}
    driver = _DRIVER.search(text)
    current: dict[str, str] = {}
    for _, line in lines_of(text):
        if (match := _FIRST.match(line)) is not None:
            current = {
                "name": match["name"],
                "pci.bus_id": match["bus"],
                "persistence_mode": {"On": "Enabled", "Off": "Disabled"}.get(
                    match["persistence"], ""
                ),
                "ecc.errors.uncorrected.volatile.total": match["ecc"],
                "driver_version": driver["driver"] if driver is not None else "",
            }
            found[int(match["index"])] = current
        elif current and (match := _SECOND.match(line)) is not None:
            current["temperature.gpu"] = match["temperature"]
            current["utilization.gpu"] = match["busy"]
            current |= {"power.draw": match["draw"] or "", "power.limit": match["limit"] or ""}
        elif (match := _LISTED.match(line)) is not None:
            current = found.setdefault(int(match["index"]), {"name": match["name"]})
        elif current and (match := _MIG.match(line)) is not None:
            current["mig.mode.current"] = match["mode"] or "Enabled"
    return found
