# SPDX-License-Identifier: Apache-2.0
"""The bandwidths that NCCL assumes for links."""

import pytest

from nccltune.model.topology import Cpu, Gpu, Pci
from nccltune.topology.hardware import bandwidth
from nccltune.topology.hardware.bandwidth import Bandwidth, Version


def pci(speed: str | None, width: int | None) -> Bandwidth:
    return bandwidth.pci(Pci(bus_id="0000:01:00.0", speed=speed, width=width))


@pytest.mark.parametrize(
    ("speed", "width", "gb_per_s", "how", "sure"),
    [
        ("2.5 GT/s PCIe", 1, 0.1875, "Gen1 x1", True),
        ("8.0 GT/s PCIe", 16, 12, "Gen3 x16", True),
        ("16 GT/s", 16, 24, "Gen4 x16", True),
        ("32 GT/s PCIe/s", 16, 48, "Gen5 x16", True),
        ("32.0 GT/s PCIe", 8, 24, "Gen5 x8", True),
        ("64.0 GT/s PCIe", 16, 96, "Gen6 x16", True),
        # NCCL's table has only the longer spelling with a decimal point.
        ("32.0 GT/s", 16, 12, "link_speed '32.0 GT/s' read as Gen3 x16", False),
        ("16.0 GT/s", 16, 12, "link_speed '16.0 GT/s' read as Gen3 x16", False),
        ("Unknown", 16, 12, "link_speed 'Unknown' read as Gen3 x16", False),
        ("", 0, 12, "link_speed '' read as Gen3 x16 (width 0 read as 16)", False),
        (None, None, 12, "no link_speed read as Gen3 x16 (no link_width read as 16)", False),
        ("32.0 GT/s PCIe", 0, 48, "Gen5 x16 (width 0 read as 16)", False),
        ("32.0 GT/s PCIe", -1, 0, "Gen5 x-1: NCCL books -3 GB/s, no ring fits", False),
        ("16.0 GT/s PCIe", 255, 382.5, "Gen4 x255: no width of PCIe, NCCL multiplies by it", False),
    ],
)
def test_pci(speed: str | None, width: int | None, gb_per_s: float, how: str, sure: bool) -> None:
    assert pci(speed, width)[:3] == (gb_per_s, how, sure)


@pytest.mark.parametrize(
    ("width", "upper_bound"), [(16, False), (0, True), (None, True), (255, True)]
)
def test_a_link_of_a_width_that_is_not_known_may_be_slower(
    width: int | None, upper_bound: bool
) -> None:
    assert pci("16.0 GT/s PCIe", width).upper_bound == upper_bound


@pytest.mark.parametrize(
    ("sm", "version", "gb_per_s"),
    [
        (60, None, 18.0),
        (70, None, 20.0),
        (80, None, 20.0),
        (86, None, 12.0),
        (89, None, 20.0),
        (90, (2, 19, 4), 20.0),
        (90, (2, 20, 3), 20.6),
        (90, None, 20.6),
        (100, (2, 27, 3), 40.0),
        (103, (2, 27, 5), 40.1),
        (120, None, 40.1),
    ],
)
def test_nvlink(sm: int, version: Version | None, gb_per_s: float) -> None:
    assert bandwidth.nvlink(Gpu(sm=sm), version) == Bandwidth(gb_per_s, f"{gb_per_s:g} for sm{sm}")


def test_links_of_an_unknown_gpu() -> None:
    assert bandwidth.nvlink(Gpu(), None) == Bandwidth(20.0, "20 for sm80, sm not known", False)
    assert bandwidth.nvlink(Gpu(sm=90, name="gfx90a"), None).gb_per_s == 36.0
    assert bandwidth.nvlink(Gpu(name="gfx906"), None).gb_per_s == 24.0
    assert bandwidth.nvlink(Gpu(name="gfx942"), None).gb_per_s == 48.0


INTEL = "GenuineIntel"
AMD = "AuthenticAMD"


@pytest.mark.parametrize(
    ("vendor", "family", "model", "version", "gb_per_s"),
    [
        (INTEL, 6, 0x4F, None, 6.0),
        (INTEL, 6, 0x55, None, 10.0),
        (INTEL, 6, 0x8F, None, 22.0),
        (INTEL, 6, 0x8F, (2, 25, 1), 10.0),
        (INTEL, 6, 0xCF, None, 40.0),
        # Granite Rapids has a lower model number than Emerald Rapids.
        (INTEL, 6, 0xAD, (2, 30, 7), 22.0),
        (INTEL, 6, 0xAD, (2, 31, 2), 40.0),
        (AMD, 23, 49, None, 16.0),
        (AMD, 25, 1, (2, 30, 7), 16.0),
        (AMD, 25, 1, (2, 31, 2), 24.0),
        (AMD, 175, 1, None, 24.0),
        (AMD, 26, 2, None, 32.0),
        (AMD, 191, 2, None, 32.0),
        ("  Shanghai  ", 7, 0x5B, None, 9.0),
        ("CentaurHauls", 7, 0x3B, None, 6.0),
    ],
)
def test_between_cpus(
    vendor: str, family: int, model: int, version: Version | None, gb_per_s: float
) -> None:
    cpu = Cpu(arch="x86_64", vendor=vendor, family=family, model=model)
    found = bandwidth.between_cpus(cpu, version)
    assert (found.gb_per_s, found.sure) == (gb_per_s, True)


def test_between_other_cpus() -> None:
    assert bandwidth.between_cpus(Cpu(arch="arm64"), None) == Bandwidth(6.0, "ARM")
    assert bandwidth.between_cpus(Cpu(arch="ppc64"), None).gb_per_s == 32.0
    unknown = bandwidth.between_cpus(Cpu(), None)
    assert unknown == Bandwidth(5000.0, "unknown CPU: NCCL assumes no limit", False)


def test_net() -> None:
    assert bandwidth.net(100000) == Bandwidth(12.5, "100 Gbit/s")
    assert bandwidth.net(-1) == Bandwidth(1.25, "speed -1 read as 10 Gbit/s", False)
    assert bandwidth.net(None) == Bandwidth(1.25, "no speed read as 10 Gbit/s", False)
