# SPDX-License-Identifier: Apache-2.0
"""The bandwidth that NCCL assumes for one link, and its derivation (`bandwidths.toml`)."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nccltune.model.topology import Cpu, Gpu, Pci

Version = tuple[int, int, int]
ASSUMED = ", assumed"
"""Suffix of `Bandwidth.how` if the NVLinks are not from the file but assumed (`fill_in.py`)."""
_PCI_DEFAULT_LANE = 60
_WIDTH_DEFAULT = 16
WIDTHS = (1, 2, 4, 8, 12, 16, 32)
"""The lane counts of PCIe. Files write other values, such as 0, 255 or -1, for an unknown width."""


class Bandwidth(NamedTuple):
    """A bandwidth in GB/s in one direction.

    `how` is its derivation in words. `sure` is False if the value is an assumption or a guess.
    `upper_bound` marks a guess that may be too high, for example because the width is unknown.
    """

    gb_per_s: float
    how: str
    sure: bool = True
    upper_bound: bool = False


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


def memory() -> Bandwidth:
    """Return the bandwidth of a CPU's memory in each direction, which is an assumption."""
    value = float(_tables()["memory_gb_per_s"])
    return Bandwidth(value, f"taken as {value:g} GB/s for any CPU, not measured", False)


def pci_generation(speed: str | None) -> int | None:
    """Return the PCIe generation that NCCL reads from `link_speed`; None for an unknown text."""
    for row in _tables()["pci"]:
        if speed is not None and speed.startswith(row["text"]):
            return int(row["generation"])
    return None


def pci(device: Pci) -> Bandwidth:
    """Return the bandwidth of a PCI device's upstream link: width x speed (`ncclTopoAddPci`).

    NCCL reads an unknown speed as generation 3, and a width of 0 as 16. If the file has no width,
    NCCL asks the machine; 16 is assumed here. NCCL multiplies the speed of a lane by any other
    width, even one that PCIe does not have. With a negative width NCCL finds no ring over the link,
    so the result is 0.
    """
    lane, words, sure = _PCI_DEFAULT_LANE, "", True
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
        return Bandwidth(width * lane / 80.0, words, False, upper_bound=True)
    if width < 0:
        booked = max(width, -(1 << 16)) * lane / 80.0
        return Bandwidth(0.0, f"{words}: NCCL books {booked:g} GB/s, no ring fits", False)
    known = width in WIDTHS
    words += "" if known else ": no width of PCIe, NCCL multiplies by it"
    value = min(width, 1 << 16) * lane / 80.0
    return Bandwidth(value, words, sure and known, upper_bound=not known)


def nvlink(gpu: Gpu, version: Version | None) -> Bandwidth:
    """Return the bandwidth of one NVLink of a GPU, or of one xGMI link of an AMD GPU."""
    if gpu.name is not None and gpu.name.startswith("gfx"):
        row = [row for row in _tables()["xgmi"] if gpu.name.startswith(row["name"])][-1]
        return Bandwidth(row["gb_per_s"], f"{row['gb_per_s']:g} for {gpu.name}")
    # An unknown compute capability counts as 80 (`ncclTopoNVLinkBw`).
    sm = gpu.sm if gpu.sm is not None and gpu.sm >= 60 else 80
    fitting = [
        row
        for row in _tables()["nvlink"]
        if _in_force(row, version) and (row.get("only") == sm or row.get("from", sm + 1) <= sm)
    ]
    value = fitting[-1]["gb_per_s"]
    known = gpu.sm == sm
    doubt = ASSUMED if gpu.assumed else "" if known else ", sm not known"
    return Bandwidth(value, f"{value:g} for sm{sm}{doubt}", known and not gpu.assumed)


def between_cpus(cpu: Cpu, version: Version | None) -> Bandwidth:
    """Return the bandwidth from `cpu` to another CPU of the same host (`ncclTopoGetInterCpuBw`).

    For an unknown kind of CPU NCCL assumes no limit.
    """
    arch = cpu.arch or "x86_64"
    fitting = [
        row
        for row in _tables()["cpu"]
        if _in_force(row, version)
        and row.get("arch", arch) == arch
        and ("arch" in row or (arch == "x86_64" and row["vendor"] == cpu.vendor))
        and row.get("family", cpu.family) == cpu.family
        and row.get("model", 0) <= (cpu.model if cpu.model is not None else 0)
        and ("models" not in row or cpu.model in row["models"])
        and ("families" not in row or cpu.family in row["families"])
    ]
    if not fitting:
        kind = " ".join(part for part in (cpu.arch, cpu.vendor) if part) or "unknown CPU"
        return Bandwidth(local(), f"{kind}: NCCL assumes no limit", False)
    row = fitting[-1]
    sure = cpu.arch is not None and (arch != "x86_64" or cpu.family is not None)
    return Bandwidth(row["gb_per_s"], row["words"], sure)


def net(mbit_per_s: int | None, *, assumed: str | None = None) -> Bandwidth:
    """Return the bandwidth of a NIC's port in each direction (`ncclTopoAddNet`).

    A port without a speed gets NCCL's default. `assumed` names the source of a speed that is not
    from the file.
    """
    if mbit_per_s is None or mbit_per_s <= 0:
        given = "no speed" if mbit_per_s is None else f"speed {mbit_per_s}"
        value = _tables()["net_default_mbit_per_s"]
        return Bandwidth(value / 8000.0, f"{given} read as {value / 1000:g} Gbit/s", False)
    words = f"{mbit_per_s / 1000:g} Gbit/s" + (f" {assumed}" if assumed else "")
    return Bandwidth(mbit_per_s / 8000.0, words, assumed is None)
