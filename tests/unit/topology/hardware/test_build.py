# SPDX-License-Identifier: Apache-2.0
"""Graphs of links, built from topologies, with what nvidia-smi adds to sysfs."""

import pytest

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.formats.topology.nvidia_smi_matrix import read_matrix
from nccltune.model.errors import InputError
from nccltune.model.topology import Cpu, Dialect, Gpu, Pci, Topology
from nccltune.topology.hardware.build import link_graph
from nccltune.topology.hardware.change import add_switch, devices_of, move_nic, nets_of
from nccltune.topology.hardware.links import Link, LinkGraph, LinkKind, NodeKind
from nccltune.topology.hardware.machine import capabilities, this_machine, with_smi
from nccltune.topology.hardware.subset import chosen_nic_indexes, first_gpus, only_nics
from nccltune.topology.nccl_model.paths import PathKind, paths
from tests.unit.topology.samples import FOLDER, changed, changed_text, sample

BACK = '<nvlink target="0000:17:00.0" count="4" tclass="0x030200"/>'


def graph(name: str, **options: object) -> LinkGraph:
    return link_graph([sample(name)], **options)  # type: ignore[arg-type]


def link(found: LinkGraph, name: str) -> Link:
    (one,) = [link for link in found.links if link.name == name]
    return one


def names(found: LinkGraph, kind: NodeKind) -> list[str]:
    return [vertex.name for vertex in found.vertices if vertex.kind is kind]


def test_links_of_the_h200_machine_are_those_of_nccls_log() -> None:
    """NCCL's log has PCI[48.0] to each GPU, NVL[370.8] to NVS, PCI[5000.0] to the NIC, NET[1.2]."""
    found = graph("h200x4-dump")
    assert names(found, NodeKind.GPU) == ["GPU0", "GPU1", "GPU2", "GPU3"]
    assert link(found, "CPU -> GPU2").gb_per_s == 48.0
    assert link(found, "CPU -> GPU2").how == "Gen5 x16 (width 0 read as 16)"
    assert not link(found, "CPU -> GPU2").sure
    nvlink = link(found, "GPU2 -> NVS")
    assert nvlink.gb_per_s == pytest.approx(370.8)
    assert nvlink.how == "18 links of 20.6 for sm90"
    assert link(found, "NIC at CPU -> NET eth0").gb_per_s == 1.25
    assert link(found, "CPU -> NIC at CPU").gb_per_s == 5000.0


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.xml")), ids=lambda path: path.stem)
def test_every_link_has_its_twin_and_every_name_its_vertex(path) -> None:  # type: ignore[no-untyped-def]
    if path.stem.endswith("-graph"):
        return
    found = graph(path.stem)
    assert len({vertex.name for vertex in found.vertices}) == len(found.vertices)
    ends = {(link.source, link.target, link.kind) for link in found.links}
    assert len({link.name for link in found.links}) == len(found.links)
    assert {(target, source, kind) for source, target, kind in ends} == ends
    known = {vertex.name for vertex in found.vertices}
    assert {end for source, target, _ in ends for end in (source, target)} <= known
    assert all(link.how and link.gb_per_s > 0 for link in found.links)


def test_two_levels_of_a_broadcom_switch_are_one() -> None:
    found = graph("broadcom")
    assert names(found, NodeKind.PCI) == ["PCI 0000:0a:00.0"]
    assert link(found, "PCI 0000:0a:00.0 -> GPU2").gb_per_s == 24.0
    assert link(found, "PCI 0000:0a:00.0 -> NIC 0000:15:00.0").kind is LinkKind.PCI


def test_generation_4_switches_are_flattened_since_2_9() -> None:
    topology = sample("broadcom")
    for version, switches in (((2, 9, 6), 1), ((2, 8, 4), 3)):
        assert len(names(link_graph([topology], nccl_version=version), NodeKind.PCI)) == switches


def test_generation_5_switches_are_flattened_since_2_20() -> None:
    text = changed_text("broadcom", ("0xc010", "0xc030")).replace("0xa096", "0x0096", 1)
    topology = read_topology(text.replace("0xa096", "0x1096").encode(), "gen5.xml")
    assert len(names(link_graph([topology]), NodeKind.PCI)) == 1
    old = link_graph([topology], nccl_version=(2, 19, 4))
    assert len(names(old, NodeKind.PCI)) == 3


def test_several_nvswitches_are_one() -> None:
    nvlink = link(graph("virtual-switches"), "GPU0 -> NVS")
    assert nvlink.gb_per_s == pytest.approx(18 * 20.6)
    assert nvlink.how == "4+4+5+5 links of 20.6 for sm90; 4 NVSwitches taken as one"


def test_a_link_to_itself_leads_nowhere() -> None:
    assert not [link for link in graph("flat-vm").links if link.kind is LinkKind.NVLINK]


def test_nvlink_between_gpus() -> None:
    found = graph("nvlink-pairs")
    pairs = [link.name for link in found.links if link.kind is LinkKind.NVLINK]
    assert pairs == ["GPU0 -> GPU1", "GPU1 -> GPU0", "GPU2 -> GPU3", "GPU3 -> GPU2"]
    assert link(found, "GPU0 -> GPU1").gb_per_s == 48.0
    assert link(found, "CPU0 -> CPU1").gb_per_s == 10.0


def test_a_link_that_one_side_lists() -> None:
    found = link_graph([changed("nvlink-pairs", (BACK, ""))])
    twin = link(found, "GPU1 -> GPU0")
    assert (twin.gb_per_s, twin.sure) == (48.0, False)
    assert twin.how == "only GPU0 lists it: 4 links of 12 for sm86"


def test_c2c() -> None:
    found = graph("superchip")
    assert link(found, "GPU1 -> CPU1").gb_per_s == 1.5
    c2c = link(found, "GPU1 -> CPU1 (C2C)")
    assert c2c.gb_per_s == pytest.approx(223.56)
    assert c2c.how == "5 C2C links of 44.712"


def test_skeletons() -> None:
    found = graph("skeleton-vm")
    assert names(found, NodeKind.GPU) == ["GPU0", "GPU1"]
    port = link(found, "NIC 0101:00:00.0 -> NET 0101:00:00.0")
    assert (port.gb_per_s, port.sure, port.upper_bound) == (24.0, False, True)
    assert port.how == "speed not in the file: at most its PCI link's, Gen4 x16"
    # This file has no classes of devices.
    assert names(graph("skeleton-no-class"), NodeKind.GPU) == []


def test_ports_without_a_number_are_left_out_of_a_dump() -> None:
    numbered = 'name="mlx5_1" dev="1"'
    found = link_graph([changed("switch-l40s", (numbered, 'name="mlx5_1"'))])
    assert names(found, NodeKind.NET) == ["NET mlx5_0"]


def test_memory_beside_each_cpu() -> None:
    found = graph("dgx")
    assert names(found, NodeKind.MEMORY) == ["MEM0", "MEM1"]
    memory = link(found, "CPU1 -> MEM1")
    assert (memory.kind, memory.sure) == (LinkKind.MEMORY, False)


def test_several_nodes_have_names_of_their_own() -> None:
    found = link_graph([sample("h200x4-dump"), sample("switch-l40s")])
    assert "node0/GPU0" in names(found, NodeKind.GPU)
    assert "node1/NET mlx5_0" in names(found, NodeKind.NET)
    assert {vertex.node for vertex in found.vertices} == {0, 1}
    nodes = {vertex.name: vertex.node for vertex in found.vertices}
    assert all(nodes[link.source] == nodes[link.target] for link in found.links)


def test_hosts_of_one_file_are_nodes() -> None:
    found = link_graph([changed("superchip", ("0x1c2d3e4f50617283", "0x77"), count=1)])
    assert names(found, NodeKind.GPU) == ["node0/GPU0", "node1/GPU1"]
    assert names(found, NodeKind.NVS) == ["node0/NVS"]
    assert not [link for link in found.links if link.kind is LinkKind.CPU_TO_CPU]


def test_a_second_device_of_a_name_gets_a_suffix() -> None:
    found = link_graph([changed("nvlink-pairs", ('dev="1"', 'dev="0"'))])
    assert names(found, NodeKind.GPU) == ["GPU0", "GPU0#2", "GPU2", "GPU3"]


def test_switches_joined_without_the_cpu() -> None:
    inside = '<pcilink target="0000:28:00.0"/>\n      <pci busid="0000:1a'
    found = link_graph([changed("dgx", ('<pci busid="0000:1a', inside), count=1)])
    joined = link(found, "PCI 0000:18:00.0 -> PCI 0000:28:00.0")
    assert (joined.gb_per_s, joined.kind) == (5000.0, LinkKind.SWITCH_TO_SWITCH)


def test_more_devices_than_any_machine_has() -> None:
    pci = "".join(f'<pci busid="{place:04x}:00:00.0" class="0x060400"/>' for place in range(800))
    cpus = '<cpu numaid="0"/>' * 200
    for inside, message in ((f'<cpu numaid="0">{pci}</cpu>', "800 PCI"), (cpus, "200 CPUs")):
        topology = read_topology(f'<system version="1">{inside}</system>'.encode(), "x.xml")
        with pytest.raises(InputError, match=message) as caught:
            link_graph([topology])
        assert caught.value.hint


def test_a_link_of_one_side_in_each_of_several_nodes() -> None:
    topology = changed("nvlink-pairs", (BACK, ""))
    found = link_graph([topology, sample("nvlink-pairs"), topology])
    assert [one.name for one in found.links if "lists it" in one.how] == [
        "node0/GPU1 -> node0/GPU0",
        "node2/GPU1 -> node2/GPU0",
    ]


MACHINE = Topology(
    source="/sys",
    dialect=Dialect.SYSFS,
    cpus=(
        Cpu(
            numa=0,
            devices=tuple(
                Pci(bus_id=bus_id, class_code="0x030200", gpu=Gpu(index=index))
                for index, bus_id in enumerate(("0000:17:00.0", "0000:31:00.0"))
            ),
        ),
    ),
)
ROWS = "0, 00000000:17:00.0, 8.6\n1, 00000000:31:00.0, 8.6\nnonsense\n"
MATRIX = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tNV4\t0-7\nGPU1\tNV4\tX\t0-7\n"


def test_rows() -> None:
    assert capabilities(ROWS) == {"0000:17:00.0": (0, 86), "0000:31:00.0": (1, 86)}
    assert capabilities("0, 00010001:17:00.0, 10.0\n") == {"0001:17:00.0": (0, 100)}


def test_nvlinks_and_capabilities_at_real_bus_ids() -> None:
    topology = with_smi(MACHINE, read_matrix(MATRIX.encode(), "smi"), capabilities(ROWS))
    path = paths(link_graph([topology])).between("GPU0", "GPU1")
    assert (path.kind, path.gb_per_s) == (PathKind.NVL, 48.0)
    assert topology.cpus[0].devices[1].bus_id == "0000:31:00.0"


def test_another_number_of_gpus() -> None:
    matrix = read_matrix(b"\tGPU0\tCPU Affinity\nGPU0\tX\t0-7\n", "smi")
    topology = with_smi(MACHINE, matrix, {})
    assert topology.unread == (
        "nvidia-smi lists 1 GPU, sysfs 2: NVLinks are left out",
    )  # fmt: skip


def test_this_machine_answers() -> None:
    assert this_machine().cpus


def kind(topology: Topology, a: str, b: str) -> PathKind:
    return paths(link_graph([topology])).between(a, b).kind


def test_a_nic_moved_to_the_cpu_is_farther():
    here = sample("switch-l40s")
    assert kind(here, "GPU0", "NET mlx5_1") is PathKind.PIX
    there = move_nic(here, "mlx5_1", "CPU0")
    assert kind(there, "GPU0", "NET mlx5_1") is PathKind.PHB
    assert kind(move_nic(here, "0000:4b:00.0", "CPU1"), "GPU0", "NET mlx5_1") is PathKind.SYS
    assert kind(there, "GPU0", "NET mlx5_0") is PathKind.PIX
    assert len(list(devices_of(there))) == len(list(devices_of(here)))


def test_a_nic_moved_beside_a_gpu_or_to_a_switch_is_near():
    dgx = sample("dgx")
    assert kind(dgx, "GPU1", "NET mlx5_0") is not PathKind.PIX
    for place in ("GPU1", "0000:28:00.0"):
        assert kind(move_nic(dgx, "mlx5_0", place), "GPU1", "NET mlx5_0") is PathKind.PIX


def test_a_switch_added_takes_devices_with_it():
    here = sample("switch-l40s")
    there = add_switch(here, "CPU1", ["GPU2", "GPU3", "mlx5_1"])
    assert kind(there, "GPU2", "NET mlx5_1") is PathKind.PIX
    assert kind(there, "GPU0", "GPU2") is PathKind.SYS
    switch = next(one for one in devices_of(there) if one.bus_id == "new-switch")
    assert (switch.speed, switch.width) == ("16.0 GT/s PCIe", 16)
    again = add_switch(there, "CPU0", ["mlx5_0"])
    assert "new-switch-2" in {one.bus_id for one in devices_of(again)}


@pytest.mark.parametrize(
    ("nic", "place", "words"),
    [
        ("mlx5_9", "CPU0", "no device 'mlx5_9'"),
        ("GPU0", "CPU0", "is not a NIC"),
        ("mlx5_0", "CPU7", "not a place for a device"),
        ("mlx5_0", "GPU9", "no device 'GPU9'"),
        ("mlx5_0", "0000:4b:00.0", "not a place for a device"),
    ],
)
def test_unknown_devices_and_places_are_errors(nic: str, place: str, words: str):
    with pytest.raises(InputError, match=words):
        move_nic(sample("switch-l40s"), nic, place)
    if words.startswith("not a place"):
        with pytest.raises(InputError, match=words):
            add_switch(sample("switch-l40s"), place, [nic])


def test_a_switch_without_devices_is_an_error():
    with pytest.raises(InputError, match="needs devices below it"):
        add_switch(sample("switch-l40s"), "CPU0", [])


def test_the_first_gpus_stay():
    two = first_gpus(sample("dgx"), 2)
    assert [one.gpu.index for one in devices_of(two) if one.gpu is not None] == [0, 1]
    assert len(nets_of(two)) == 8
    assert first_gpus(sample("dgx"), 8) == sample("dgx")


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (None, ["mlx5_0", "mlx5_1", "mlx5_10", "eth0"]),
        ("mlx5_1", ["mlx5_1", "mlx5_10"]),
        ("=mlx5_1", ["mlx5_1"]),
        ("mlx5:1", ["mlx5_0", "mlx5_10"]),
        ("=mlx5_1:2,eth0", ["mlx5_1", "eth0"]),
        ("^mlx5_0,eth", ["mlx5_1", "mlx5_10"]),
        ("^=mlx5_1", ["mlx5_0", "mlx5_10", "eth0"]),
        ("mlx5_0, mlx5_1", ["mlx5_0"]),
        ("=mlx5_0 ", []),
        ("^mlx5_0,^mlx5_1", ["mlx5_1", "mlx5_10", "eth0"]),
        ("mlx5_0,=mlx5_1", ["mlx5_0"]),
        ("^", []),
        ("=", ["mlx5_0", "mlx5_1", "mlx5_10", "eth0"]),
        (",", ["mlx5_0", "mlx5_1", "mlx5_10", "eth0"]),
        ("mlx5_0,,mlx5_1:2", ["mlx5_0", "mlx5_1"]),
        ("mlx5_0:x", []),
        ("mlx5_0:1/IB", ["mlx5_0"]),
        (":1,eth0", ["eth0"]),
    ],
)
def test_which_nics_a_list_leaves(rule: str | None, left: list[str]):
    nics = [("mlx5_0", 1), ("mlx5_1", 2), ("mlx5_10", 1), ("eth0", 0)]
    assert [nics[place][0] for place in chosen_nic_indexes(nics, rule)] == left


def test_nics_left_out_are_gone_from_the_tree():
    one = only_nics(sample("switch-l40s"), "=mlx5_1")
    assert [net.name for net in nets_of(one)] == ["mlx5_1"]
    assert "0000:4a:00.0" not in {device.bus_id for device in devices_of(one)}
    assert only_nics(sample("nvlink-pairs"), "mlx5") == sample("nvlink-pairs")
