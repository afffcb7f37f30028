# SPDX-License-Identifier: Apache-2.0
"""The bandwidth that NCCL assumes for one link, and the one that its wires carry.

Both are in `bandwidths.toml`. NCCL's search books the first; ceilings rest on the second.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nccltune.model.topology import Cpu, Gpu, Pci

Version = tuple[int, int, int]
ASSUMED = ", assumed"
"""Suffix of `Bandwidth.how` if the NVLinks are not from the file but assumed (`fill_in.py`)."""
UNKNOWN = 5000.0
"""The wire's bandwidth of a link that nothing is known of. No other link has as much."""
SLOWEST_SWITCH = 3.0
"""A switch with a slower uplink, such as 2.5 GT/s x1, is made up by a virtual machine (GB/s)."""
_PCI_DEFAULT_LANE = 60
_WIDTH_DEFAULT = 16
_MOST_LINKS_OF_AMPERE = 12
_AMD = 900
"""RCCL writes AMD's architecture as compute capability: 908, 942, 950."""
NO_SPEED = 10000
"""What NCCL writes for a port whose speed the kernel does not know, in Mbit/s."""
WIDTHS = (1, 2, 4, 8, 12, 16, 32)
"""The lane counts of PCIe. Files write other values, such as 0, 255 or -1, for an unknown width."""


class Bandwidth(NamedTuple):
    """A bandwidth in GB/s in one direction.

    `how` is its derivation in words. `sure` is False if the value is an assumption or a guess.
    `upper_bound` marks a guess that may be too high, for example because the width is unknown.
    `wire_gb_per_s` is the most that any transfer gets; None is `gb_per_s`.
    """

    gb_per_s: float
    how: str
    sure: bool = True
    upper_bound: bool = False
    wire_gb_per_s: float | None = None

    @property
    def wire(self) -> float:
        """Return the most that any transfer gets, in GB/s; `UNKNOWN` if nothing limits it here."""
        return self.gb_per_s if self.wire_gb_per_s is None else self.wire_gb_per_s


@cache
def _tables() -> dict[str, Any]:
    text = (Path(__file__).parent / "bandwidths.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _in_force(row: dict[str, Any], version: Version | None) -> bool:
    """Return whether a row of a table applies to a version; None is the newest known version."""
    since = row.get("since")
    if since is None or version is None:
        return True
    return version >= tuple(int(part) for part in since.split("."))


def local() -> float:
    """Return the bandwidth inside a chip in GB/s."""
    return float(_tables()["local_gb_per_s"])


def memory(cpu: Cpu) -> Bandwidth:
    """Return an estimate of a CPU's memory each way: half of the channels, as all is read and
    written."""
    row = _last(_tables()["memory"], cpu)
    if row is None:
        return Bandwidth(UNKNOWN, "host memory of an unknown CPU, no limit known", False, True)
    value = row["gb_per_s"] * float(_tables()["memory_share"]) / 2
    words = f"{value:.0f} GB/s each way for host memory of {row['words']}, not measured"
    return Bandwidth(value, words, False, True)


def pci_generation(speed: str | None) -> int | None:
    """Return the PCIe generation that NCCL reads from `link_speed`; None for an unknown text."""
    for row in _tables()["pci"]:
        if speed is not None and speed.startswith(row["text"]):
            return int(row["generation"])
    return None


def pci(device: Pci) -> Bandwidth:
    """Return the bandwidth of a PCI device's upstream link: width x speed (`ncclTopoAddPci`).

    As NCCL does: an unknown speed is generation 3, width 0 or none is 16, any other width counts,
    even one that PCIe lacks, and over a negative one no ring is found (0).
    """
    lane, words, sure, factor = _PCI_DEFAULT_LANE, "", True, float(_tables()["pci_wire"])
    for row in _tables()["pci"]:
        if device.speed is not None and device.speed.startswith(row["text"]):
            lane, words = row["lane"], f"Gen{row['generation']}"
            break
    else:
        given = "no link_speed" if device.speed is None else f"link_speed '{device.speed}'"
        words, sure = f"{given} read as Gen3", False
    width = device.width
    if width:
        words += f" x{width}"
    else:
        given = "no link_width" if width is None else "width 0"
        width = _WIDTH_DEFAULT
        words += f" x16 ({given} read as 16)"
        value = width * lane / 80.0
        return Bandwidth(value, words, False, True, factor * value if sure else UNKNOWN)
    if width < 0:
        booked = max(width, -(1 << 16)) * lane / 80.0
        return Bandwidth(0.0, f"{words}: NCCL books {booked:g} GB/s, no ring fits", False)
    known = width in WIDTHS
    words += "" if known else ": no width of PCIe, NCCL multiplies by it"
    value = min(width, 1 << 16) * lane / 80.0
    return Bandwidth(
        value, words, sure and known, not sure or not known, factor * value if sure else UNKNOWN
    )


def pci_of_gpu(sm: int | None, found: Bandwidth) -> Bandwidth:
    """Return a GPU's PCIe link `found`; if the file has no speed, with the most its model has."""
    if found.wire < UNKNOWN or sm is None:
        return found
    row = [row for row in _tables()["pci_of_gpu"] if row["from"] <= sm][-1]
    how = f"{found.how}; at most {row['words']}, as compute capability {sm / 10:.1f} has"
    return found._replace(how=how, upper_bound=True, wire_gb_per_s=row["gb_per_s"])


def architecture(gpu: Gpu) -> str | None:
    """Return the architecture of an AMD GPU, such as `gfx90a`, which older RCCL writes as 910."""
    name = gpu.name or ""
    if name.isdigit():
        return {"910": "gfx90a"}.get(name, f"gfx{name}")
    return name if name.startswith("gfx") else None


def nvlink(gpu: Gpu, version: Version | None) -> Bandwidth:
    """Return the bandwidth of one NVLink of a GPU, or of one xGMI link of an AMD GPU."""
    if (name := architecture(gpu)) is not None:
        row = [row for row in _tables()["xgmi"] if name.startswith(row["name"])][-1]
        value = row["gb_per_s"]
        return Bandwidth(value, f"{value:g} for {name}", wire_gb_per_s=row.get("wire", value))
    sm = known_sm(gpu)
    fitting = [
        row
        for row in _tables()["nvlink"]
        if _in_force(row, version) and (row.get("only") == sm or row.get("from", sm + 1) <= sm)
    ]
    value = fitting[-1]["gb_per_s"]
    known = gpu.sm == sm
    doubt = ASSUMED if gpu.assumed else "" if known else ", sm not known"
    wire = _nvlink_wire(sm)["gb_per_s"]
    return Bandwidth(
        value, f"{value:g} for sm{sm}{doubt}", known and not gpu.assumed, False,
        wire if known else UNKNOWN,
    )  # fmt: skip


def _nvlink_wire(sm: int) -> dict[str, Any]:
    found: dict[str, Any] = [row for row in _tables()["nvlink_wire"] if row["from"] <= sm][-1]
    return found


def nvlink_generation(sm: int) -> int:
    """Return the least compute capability with these NVLinks (90 for 90, 100 for 103), or AMD's."""
    return sm if sm >= _AMD else int(_nvlink_wire(max(sm, 60))["from"])


def known_sm(gpu: Gpu) -> int:
    """Return the compute capability; 80 if unknown, 90 with over 12 NVLinks
    (`ncclTopoNVLinkBw`)."""
    if gpu.sm is not None and gpu.sm >= 60:
        return gpu.sm
    return 90 if sum(link.count for link in gpu.nvlinks) > _MOST_LINKS_OF_AMPERE else 80


def between_cpus(cpu: Cpu, version: Version | None) -> Bandwidth:
    """Return the bandwidth to another CPU that NCCL's search books (`ncclTopoGetInterCpuBw`).

    For an unknown kind NCCL assumes no limit. What such links carry is unknown, and more.
    """
    row = _last([row for row in _tables()["cpu"] if _in_force(row, version)], cpu)
    if row is None:
        kind = " ".join(part for part in (cpu.arch, cpu.vendor) if part) or "unknown CPU"
        return Bandwidth(local(), f"{kind}: NCCL assumes no limit", False)
    sure = cpu.arch is not None and (cpu.arch != "x86_64" or cpu.family is not None)
    return Bandwidth(row["gb_per_s"], row["words"], sure, False, UNKNOWN)


def _last(rows: list[dict[str, Any]], cpu: Cpu) -> dict[str, Any] | None:
    arch = cpu.arch or "x86_64"
    model = cpu.model if cpu.model is not None else 0
    fitting = [
        row
        for row in rows
        if row.get("arch", arch) == arch
        and ("arch" in row or (arch == "x86_64" and row["vendor"] == cpu.vendor))
        and row.get("family", cpu.family) == cpu.family
        and row.get("model", 0) <= model
        and ("models" not in row or cpu.model in row["models"])
        and ("families" not in row or cpu.family in row["families"])
    ]
    return fitting[-1] if fitting else None


def net(mbit_per_s: int | None, *, assumed: str | None = None) -> Bandwidth:
    """Return the bandwidth of a NIC's port in each direction (`ncclTopoAddNet`).

    Without a speed it is NCCL's default, no base for a ceiling; `assumed` names another source.
    """
    if mbit_per_s is None or mbit_per_s <= 0:
        given = "no speed" if mbit_per_s is None else f"speed {mbit_per_s}"
        value = _tables()["net_default_mbit_per_s"]
        words = f"{given} read as {value / 1000:g} Gbit/s"
        return Bandwidth(value / 8000.0, words, False, True, UNKNOWN)
    words = f"{mbit_per_s / 1000:g} Gbit/s" + (f" {assumed}" if assumed else "")
    return Bandwidth(mbit_per_s / 8000.0, words, assumed is None)
