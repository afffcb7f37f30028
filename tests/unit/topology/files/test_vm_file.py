# SPDX-License-Identifier: Apache-2.0
"""Files for virtual machines: written, read again, and checked by NCCL's rules."""

import pytest
from msgspec.structs import replace

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.formats.topology.nccl_xml_writer import write_topology
from nccltune.model.errors import InputError
from nccltune.model.finding import Severity
from nccltune.model.topology import Cpu, Dialect, Gpu, Net, Pci, Topology
from nccltune.topology.files.vm_file import (
    Pcie,
    lacks_kind,
    parse_bus_ids,
    parse_pcie,
    with_bus_ids,
    with_cpus,
    with_links,
)
from nccltune.topology.lint.check import lint_topology
from tests.unit.topology.samples import sample


def even_tree(cpus: int, switches: int, gpus: int, nics: int) -> Topology:
    """Return a topology with GPUs and NICs spread evenly over switches, these over CPUs."""
    trees = []
    for place in range(switches):
        devices = [
            Pci(bus_id=f"fff0:{index:02x}:00.0", class_code="0x030200", gpu=Gpu(index=index))
            for index in _share(gpus, switches, place)
        ] + [
            Pci(
                bus_id=f"fff1:{index:02x}:00.0", class_code="0x020000",
                nets=(Net(name=f"nic{index}", index=index),),
            )
            for index in _share(nics, switches, place)
        ]  # fmt: skip
        bus_id = f"ffff:ff:{place + 1 & 31:02x}.{place + 1 >> 5}"
        trees.append(Pci(bus_id=bus_id, class_code="0x060400", children=tuple(devices)))
    return Topology(
        source="options",
        dialect=Dialect.SMI,
        cpus=tuple(
            Cpu(numa=numa, devices=tuple(trees[place] for place in _share(switches, cpus, numa)))
            for numa in range(cpus)
        ),
    )


def _share(number: int, parts: int, place: int) -> range:
    return range(number * place // parts, number * (place + 1) // parts)


def test_a_skeleton_has_devices_and_no_more() -> None:
    text = write_topology(sample("dgx"), ["a -- b"])
    assert text.startswith("<!-- a - - b -->\n<system ")
    assert "<gpu" not in text
    assert "<net" not in text
    assert "host_hash" not in text
    assert text.count("<pci ") == 24


def test_what_nccls_parser_cannot_read_is_not_written() -> None:
    def one(**facts: object) -> Topology:
        device = Pci(bus_id="0000:01:00.0", **facts)  # type: ignore[arg-type]
        return Topology(source="x", dialect=Dialect.NCCL, cpus=(Cpu(numa=0, devices=(device,)),))

    with pytest.raises(InputError, match="cannot read"):
        write_topology(one(speed='"'))
    with pytest.raises(InputError, match="NCCL would refuse the file: it has a value of 300"):
        write_topology(one(speed="x" * 300))
    many = Topology(
        source="x", dialect=Dialect.NCCL,
        cpus=(Cpu(numa=0, devices=tuple(Pci(bus_id=f"{i:04x}:00:00.0") for i in range(300))),),
    )  # fmt: skip
    with pytest.raises(InputError, match="301 elements|302 elements"):
        write_topology(many)


def test_an_even_tree() -> None:
    topology = even_tree(2, 4, 8, 4)
    assert [len(cpu.devices) for cpu in topology.cpus] == [2, 2]
    first = topology.cpus[0].devices[0]
    assert [bool(device.gpu) for device in first.children] == [True, True, False]
    ids = [(None, f"0000:{i:02x}:00.0") for i in range(1, 9)]
    nics = [("nic2", "0000:20:00.0"), (None, "0000:21:00.0")]
    placed, left_out = with_bus_ids(topology, ids, nics)
    assert left_out == ["nic1", "nic3"]
    second = placed.cpus[1].devices[0]
    assert [device.bus_id for device in second.children] == [
        "0000:05:00.0", "0000:06:00.0", "0000:20:00.0",
    ]  # fmt: skip
    written = write_topology(with_links(placed, Pcie(5)))
    again = read_topology(written.encode(), "vm.xml")
    assert {issue.id for issue in lint_topology(again)} == {
        "cpu-kind-missing",
        "nic-other-switch",
        "nvlink-detected",
    }
    assert {issue.severity for issue in lint_topology(again)} == {Severity.NOTE}
    machine = Topology(
        source="sys", dialect=Dialect.SYSFS,
        cpus=(
            Cpu(numa=0, affinity="f", arch="x86_64", vendor="GenuineIntel", family=6, model=207),
        ),
    )  # fmt: skip
    known = with_cpus(with_links(placed, Pcie(5)), machine, made_up=True)
    again = read_topology(write_topology(known).encode(), "vm.xml")
    assert {issue.id for issue in lint_topology(again)} == {"nic-other-switch", "nvlink-detected"}
    assert [cpu.affinity for cpu in again.cpus] == ["f", "0000000f"]


def test_kinds_and_affinities_of_cpus() -> None:
    machine = Topology(
        source="sys", dialect=Dialect.SYSFS,
        cpus=tuple(
            Cpu(numa=numa, affinity=mask, arch="x86_64", vendor="AuthenticAMD", family=25, model=1)
            for numa, mask in ((0, "ffff0000,0000ffff"), (1, "ffff,ffff0000"))
        ),
    )  # fmt: skip
    known = sample("dgx")
    assert with_cpus(known, machine, made_up=False) == known
    # Affinities of another machine are invalid here. The kind of its CPUs is kept.
    moved = with_cpus(known, machine, made_up=True)
    assert [cpu.affinity for cpu in moved.cpus][:2] == ["ffff0000,0000ffff", "ffff,ffff0000"]
    assert [cpu.vendor for cpu in moved.cpus] == [cpu.vendor for cpu in known.cpus]
    one = replace(known.cpus[0], numa=7, affinity=None, arch=None)
    alone = replace(known, cpus=(one,))
    (cpu,) = with_cpus(alone, machine, made_up=False).cpus
    assert (cpu.affinity, cpu.vendor) == ("ffffffff,ffffffff", "AuthenticAMD")
    nothing = replace(machine, cpus=())
    assert with_cpus(alone, nothing, made_up=False) == alone


INTEL = Cpu(numa=0, arch="x86_64", vendor="GenuineIntel", family=6, model=207)
AMD = Cpu(numa=0, arch="x86_64", vendor="AuthenticAMD", family=25, model=1)
ARM = Cpu(numa=0, arch="arm64")


@pytest.mark.parametrize(
    ("given", "machine"),
    [
        (Cpu(), INTEL),
        (Cpu(vendor="GenuineIntel"), AMD),
        (Cpu(arch="x86_64"), AMD),
        (Cpu(arch="x86_64", vendor="GenuineIntel", family=6), INTEL),
    ],
)
def test_a_kind_with_missing_parts_is_replaced_by_the_machines(given: Cpu, machine: Cpu) -> None:
    assert lacks_kind(given)
    assert kind_after(given, machine) == machine


@pytest.mark.parametrize(
    ("given", "machine", "lacks"),
    [
        (Cpu(arch="x86_64", vendor="GenuineIntel", family=6, model=85), INTEL, False),
        # NCCL needs family and model only for Intel CPUs.
        (Cpu(arch="x86_64", vendor="AuthenticAMD"), AMD, False),
        (Cpu(arch="arm64"), INTEL, False),
        # The file is of another machine, so missing values cannot be read here.
        (Cpu(arch="x86_64", vendor="GenuineIntel"), AMD, True),
        (Cpu(arch="x86_64"), ARM, True),
    ],
)
def test_a_complete_kind_or_one_of_another_cpu_is_kept(
    given: Cpu, machine: Cpu, lacks: bool
) -> None:
    assert lacks_kind(given) is lacks
    assert kind_after(given, machine) == replace(given, numa=0)


def kind_after(given: Cpu, machine: Cpu) -> Cpu:
    tree = Topology(source="tree", dialect=Dialect.NCCL, cpus=(replace(given, numa=0),))
    here = Topology(source="sys", dialect=Dialect.SYSFS, cpus=(machine,))
    (cpu,) = with_cpus(tree, here, made_up=False).cpus
    return cpu


def test_links_that_are_known_stay() -> None:
    topology = with_links(sample("virtual-switches"), Pcie(4, 8))
    switch = topology.cpus[0].devices[0]
    assert (switch.speed, switch.width) == ("16.0 GT/s PCIe", 8)
    gpu = switch.children[0].children[0]
    assert (gpu.speed, gpu.width) == ("32.0 GT/s PCIe", 8)
    assert with_links(sample("dgx"), None) == sample("dgx")
    with pytest.raises(InputError, match="link of 0000:03:00.0 is not known"):
        with_links(sample("virtual-switches"), None)


def test_devices_without_a_class_get_one() -> None:
    topology = with_links(sample("skeleton-no-class"), Pcie(5))
    assert topology.cpus[0].devices[0].class_code == "0x060400"


@pytest.mark.parametrize(
    ("text", "link"),
    [("4", Pcie(4)), ("gen5", Pcie(5)), ("5x8", Pcie(5, 8)), (" Gen6 x 16 ", Pcie(6))],
)
def test_links(text: str, link: Pcie) -> None:
    assert parse_pcie(text) == link


@pytest.mark.parametrize("text", ["7", "5x3", "fast", ""])
def test_no_links(text: str) -> None:
    with pytest.raises(InputError, match="is not a PCIe link"):
        parse_pcie(text)


def test_bus_ids() -> None:
    assert parse_bus_ids("05:00.0, mlx5_0=0001:AF:00.1") == [
        (None, "0000:05:00.0"),
        ("mlx5_0", "0001:af:00.1"),
    ]
    for bad in ("0000:05", "05:00.9", "x", "05:00.0,0000:05:00.0"):
        with pytest.raises(InputError):
            parse_bus_ids(bad)


def test_wrong_numbers_of_devices() -> None:
    tree = even_tree(1, 1, 2, 1)
    gpus = [(None, "0000:01:00.0"), (None, "0000:02:00.0")]
    with pytest.raises(InputError, match="1 bus ids are given for 2 GPUs"):
        with_bus_ids(tree, gpus[:1], [])
    with pytest.raises(InputError, match="no NIC is called 'mlx5_9'"):
        with_bus_ids(tree, gpus, [("mlx5_9", "0000:03:00.0")])
    with pytest.raises(InputError, match="2 NICs are given, and the tree has 1"):
        with_bus_ids(tree, gpus, [(None, "0000:03:00.0"), (None, "0000:04:00.0")])
