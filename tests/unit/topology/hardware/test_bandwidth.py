# SPDX-License-Identifier: Apache-2.0
"""The bandwidths that NCCL assumes for links."""

import pytest

from nccltune.model.topology import Cpu, Gpu, NvLink, Pci
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
    found = bandwidth.nvlink(Gpu(sm=sm), version)
    assert found[:3] == (gb_per_s, f"{gb_per_s:g} for sm{sm}", True)
    # Links carry more than NCCL books, and never more than their raw rate.
    raw = 50 if sm >= 100 else 14.1 if sm in (86, 89) else 20 if sm < 70 else 25
    assert sm == 89 or gb_per_s < found.wire < raw


def test_links_of_an_unknown_gpu() -> None:
    unknown = bandwidth.nvlink(Gpu(), None)
    assert unknown[:3] == (20.0, "20 for sm80, sm not known", False)
    assert unknown.wire == bandwidth.UNKNOWN
    links = (NvLink(target="fffffff:ffff:ff", count=18),)
    later = bandwidth.nvlink(Gpu(nvlinks=links), None)
    assert later[:3] == (20.6, "20.6 for sm90, sm not known", False)
    assert later.wire == bandwidth.UNKNOWN
    assert bandwidth.nvlink(Gpu(sm=90, name="gfx90a"), None).gb_per_s == 36.0
    assert bandwidth.nvlink(Gpu(name="gfx906"), None).gb_per_s == 24.0
    assert bandwidth.nvlink(Gpu(name="gfx942"), None).gb_per_s == 48.0
    assert bandwidth.nvlink(Gpu(name="gfx942"), None).wire == 48.0
    # Eight MI350X reach 365.8 GB/s in all-reduce by 7 links, whose wires have 76.8 each.
    assert 365.8 / 7 < bandwidth.nvlink(Gpu(name="gfx950"), None).wire < 76.8
    assert bandwidth.nvlink_generation(942) == 942
    assert bandwidth.nvlink_generation(103) == 100


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
    arm = bandwidth.between_cpus(Cpu(arch="arm64"), None)
    assert (arm.gb_per_s, arm.how, arm.wire) == (6.0, "ARM", bandwidth.UNKNOWN)
    assert bandwidth.between_cpus(Cpu(arch="ppc64"), None).gb_per_s == 32.0
    unknown = bandwidth.between_cpus(Cpu(), None)
    assert unknown == Bandwidth(5000.0, "unknown CPU: NCCL assumes no limit", False)


def test_net() -> None:
    assert bandwidth.net(100000) == Bandwidth(12.5, "100 Gbit/s")
    assert bandwidth.net(-1)[:3] == (1.25, "speed -1 read as 10 Gbit/s", False)
    assert bandwidth.net(None)[:3] == (1.25, "no speed read as 10 Gbit/s", False)
    assert bandwidth.net(None).wire == bandwidth.UNKNOWN


def test_pcie_carries_a_fifth_more_than_nccl_books() -> None:
    assert pci("16.0 GT/s PCIe", 16).wire == pytest.approx(28.8)
    assert pci("32.0 GT/s PCIe", 4).wire == pytest.approx(14.4)
    assert pci("", 16).wire == bandwidth.UNKNOWN
    known = pci("16.0 GT/s PCIe", 16)
    assert bandwidth.pci_of_gpu(90, known) == known
    most = bandwidth.pci_of_gpu(80, pci("", 0))
    assert (most.wire, most.sure, most.upper_bound) == (28.8, False, True)
    assert bandwidth.pci_of_gpu(None, pci("", 0)).wire == bandwidth.UNKNOWN


@pytest.mark.parametrize(
    ("cpu", "gb_per_s"),
    [
        (Cpu(arch="x86_64", vendor=INTEL, family=6, model=0x4F), 38.5 * 0.92),
        (Cpu(arch="x86_64", vendor=INTEL, family=6, model=0x8F), 153.5 * 0.92),
        (Cpu(arch="x86_64", vendor=INTEL, family=6, model=0xCF), 179.0 * 0.92),
        (Cpu(arch="x86_64", vendor=INTEL, family=6, model=0xAD), 422.5 * 0.92),
        (Cpu(arch="x86_64", vendor=AMD, family=143, model=49), 102.5 * 0.92),
        (Cpu(arch="x86_64", vendor=AMD, family=175, model=1), 102.5 * 0.92),
        (Cpu(arch="x86_64", vendor=AMD, family=25, model=0x11), 230.5 * 0.92),
        (Cpu(arch="x86_64", vendor=AMD, family=26, model=2), 307.0 * 0.92),
        (Cpu(arch="arm64"), bandwidth.UNKNOWN),
        (Cpu(), bandwidth.UNKNOWN),
    ],
)
def test_memory_is_an_estimate_by_cpu(cpu: Cpu, gb_per_s: float) -> None:
    found = bandwidth.memory(cpu)
    assert found.gb_per_s == pytest.approx(gb_per_s)
    assert (found.sure, found.upper_bound) == (False, True)
