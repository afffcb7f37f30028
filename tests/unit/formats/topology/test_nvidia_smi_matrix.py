# SPDX-License-Identifier: Apache-2.0
"""The matrix of `nvidia-smi topo -m` in its variants, and the tree built from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccltune.formats.topology.cpu_list import cpus_of, mask_of
from nccltune.formats.topology.nvidia_smi_matrix import (
    PCI_ONLY,
    looks_like_matrix,
    read_matrix,
    smi_topology,
)
from nccltune.model.errors import InputError
from nccltune.model.topology import Dialect, Topology
from nccltune.topology.hardware.build import link_graph
from nccltune.topology.nccl_model.paths import PathKind, Paths, paths

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  PIX  = Connection traversing at most a single PCIe bridge
"""
# Two GPUs and a NIC on one switch of each socket; driver 535 and later.
SWITCHES = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tPIX\tSYS\tPIX\tSYS\t0-15,32-47\t0\t\tN/A\n"
    "GPU1\tPIX\t X \tSYS\tPIX\tSYS\t0-15,32-47\t0\t\tN/A\n"
    "GPU2\tSYS\tSYS\t X \tSYS\tNODE\t16-31,48-63\t1\t\tN/A\n"
    "NIC0\tPIX\tPIX\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tSYS\tNODE\tSYS\t X \t\t\t\t\n" + LEGEND + "\nNIC Legend:\n\n"
    "  NIC0: mlx5_0\n  NIC1: mlx5_bond_1\n"
)
# An old driver, pasted: names of NICs in the table, spaces for tabs, one affinity column.
PASTED = """\
$ nvidia-smi topo -m
        GPU0    GPU1    mlx5_0  CPU Affinity
GPU0     X      NV2     PHB     0-19
GPU1    NV2      X      SYS     20-39
mlx5_0  PHB     SYS      X
"""


def matrix(text: str) -> Topology:
    return smi_topology(read_matrix(text.encode(), "topo.txt"))


def found(topology: Topology) -> Paths:
    return paths(link_graph([topology]))


def switched(gpus: int, links: int) -> str:
    """Return a matrix of GPUs behind NVSwitches, four per socket, each with a NIC on its switch."""
    names = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(gpus)]
    lines = ["\t" + "\t".join([*names, "CPU Affinity", "NUMA Affinity"])]
    for row, name in enumerate(names):
        cells = []
        for column in range(len(names)):
            if row == column:
                cells.append("X")
            elif row < gpus and column < gpus:
                cells.append(f"NV{links}")
            elif row % gpus == column % gpus:
                cells.append("PIX")
            else:
                cells.append("NODE" if row % gpus // 4 == column % gpus // 4 else "SYS")
        tail = [f"{row // 4 * 8}-{row // 4 * 8 + 7}", str(row // 4)] if row < gpus else ["", ""]
        lines.append("\t".join([name, *cells, *tail]))
    return "\n".join(lines)


def test_a_table() -> None:
    read = read_matrix(SWITCHES.encode(), "topo.txt")
    assert [device.name for device in read.devices] == [
        "GPU0", "GPU1", "GPU2", "mlx5_0", "mlx5_bond_1",
    ]  # fmt: skip
    assert read.cells[0] == ("X", "PIX", "SYS", "PIX", "SYS")
    assert read.devices[2].cpu_affinity == "16-31,48-63"
    assert [device.numa for device in read.devices] == [0, 0, 1, None, None]
    assert [device.index for device in read.devices] == [0, 1, 2, 0, 1]
    assert looks_like_matrix(SWITCHES)
    assert not looks_like_matrix("<system/>")


def test_a_matrix_far_down_a_text_is_seen() -> None:
    above = "Flags: fpu vme de pse\n" * 200_000
    assert looks_like_matrix(above + SWITCHES)
    assert not looks_like_matrix(above + "GPU0 is slow\n")


_LIST = "".join(f"GPU {at}: NVIDIA H100 80GB HBM3 (UUID: GPU-{at}0f)\n" for at in range(3))
_COLLECTED = "GPU models and configuration: \nGPU 0: NVIDIA A800-SXM4-80GB\n"


@pytest.mark.parametrize(
    ("above", "name"),
    [
        (_LIST, "NVIDIA H100 80GB HBM3"),
        (_LIST + "GPU 3: NVIDIA L40S (UUID: GPU-30f)\n", None),
        (_COLLECTED, "NVIDIA A800-SXM4-80GB"),
        (
            _COLLECTED + "GPU 1: NVIDIA A800-SXM4-80GB\n\nNvidia driver: 550",
            "NVIDIA A800-SXM4-80GB",
        ),
        (_COLLECTED.replace("\n", "") + "\n", "NVIDIA A800-SXM4-80GB"),
        (_COLLECTED + _LIST, None),
        ("GPU 0: NVIDIA H100 fell off the bus\n", None),
        ("", None),
    ],
)
def test_the_text_names_the_gpus(above: str, name: str | None) -> None:
    assert read_matrix((above + "\n" + SWITCHES).encode(), "t").gpu == name


def test_gpus_of_one_numa_node_far_apart_are_no_more_nodes() -> None:
    rows = [f"GPU{one}\t" + "\t".join("X" if one == at else "SYS" for at in range(4))
            + f"\t0-7\t{one // 2}" for one in range(4)]  # fmt: skip
    header = "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity"
    cpus = matrix("\n".join([header, *rows])).cpus
    assert [cpu.is_guess for cpu in cpus] == [False, True, False, True]
    assert [cpu.numa for cpu in cpus if not cpu.is_guess] == [0, 1]
    assert len({cpu.numa for cpu in cpus}) == 4


def test_a_tree() -> None:
    topology = matrix(SWITCHES)
    assert topology.dialect is Dialect.SMI
    assert [cpu.numa for cpu in topology.cpus] == [0, 1]
    assert topology.cpus[0].affinity == "0000ffff,0000ffff"
    (switch,) = topology.cpus[0].devices
    assert switch.class_code == "0x060400"
    assert len(switch.children) == 3
    # On the other socket GPU and NIC are on different ports of the CPU.
    assert [device.children for device in topology.cpus[1].devices] == [(), ()]
    assert "made up" in topology.unread[0]
    way = found(topology)
    assert way.between("GPU0", "GPU1").kind is PathKind.PIX
    assert way.between("GPU1", "NET mlx5_0").kind is PathKind.PIX
    assert way.between("GPU0", "GPU2").kind is PathKind.SYS
    assert way.between("GPU2", "NET mlx5_bond_1").kind is PathKind.PHB


def test_a_pasted_table() -> None:
    read = read_matrix(PASTED.encode(), "paste.txt")
    assert [device.name for device in read.devices] == ["GPU0", "GPU1", "mlx5_0"]
    assert read.devices[1].cpu_affinity == "20-39"
    way = found(smi_topology(read, sm=70))
    path = way.between("GPU0", "GPU1")
    assert (path.kind, path.gb_per_s) == (PathKind.NVL, 40.0)
    assert way.between("GPU0", "NET mlx5_0").kind is PathKind.PHB
    assert way.between("GPU1", "NET mlx5_0").kind is PathKind.SYS


def test_a_row_that_kept_some_of_its_tabs() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0     X \tNV2\t0-7\nGPU1\tNV2\tX\t8-15\n"
    read = read_matrix(text.encode(), "paste.txt")
    assert read.cells == (("X", "NV2"), ("NV2", "X"))
    assert [device.cpu_affinity for device in read.devices] == ["0-7", "8-15"]


def test_rows_of_nics_may_be_cut_off() -> None:
    head = SWITCHES.index("NIC0\tPIX")
    cut = read_matrix(f"{SWITCHES[:head]}...\n".encode(), "topo.txt")
    whole = matrix(SWITCHES)
    assert cut.notes == ("rows that are cut off, taken from the columns: NIC0 NIC1",)
    assert [row[:3] for row in cut.cells] == [
        row[:3] for row in read_matrix(SWITCHES.encode(), "topo.txt").cells
    ]
    shown = [[len(cpu.devices), cpu.affinity] for cpu in smi_topology(cut).cpus]
    assert shown == [[len(cpu.devices), cpu.affinity] for cpu in whole.cpus]
    with pytest.raises(InputError, match="2 rows for 5 columns"):
        read_matrix(SWITCHES[: SWITCHES.index("GPU2\tSYS")].encode(), "topo.txt")


def test_pcie_alone_shows_no_nvlink() -> None:
    """`topo -mp` has a command above it, or a whole legend without NVLink; `topo -m` after it is
    the one that is read."""
    asked = "$ nvidia-smi topo -mp\n"
    assert PCI_ONLY in matrix(asked + PASTED.partition("\n")[2].replace("NV2", "PIX")).unread
    assert PCI_ONLY in matrix(SWITCHES).unread
    for text in (PASTED, SWITCHES.replace("\nNIC L", "  NV#  = Bonded\nNIC L"), SWITCHES[:400]):
        assert PCI_ONLY not in matrix(text).unread
    assert (
        read_matrix(
            f"{asked}{PASTED.partition(chr(10))[2].replace('NV2', 'PIX')}\n{PASTED}".encode(), "t"
        ).cells[0][1]
        == "NV2"
    )


def test_nvswitches() -> None:
    topology = matrix(switched(8, 18))
    graph = link_graph([topology])
    assert [vertex.name for vertex in graph.vertices if vertex.kind == "NVS"] == ["NVS"]
    way = paths(graph)
    assert way.between("GPU0", "GPU7").stops == ("GPU0", "NVS", "GPU7")
    assert way.between("GPU3", "NET NIC3").kind is PathKind.PIX
    assert way.between("GPU3", "NET NIC4").kind is PathKind.PXN
    assert [len(cpu.devices) for cpu in topology.cpus] == [4, 4]


def test_nvlink_from_gpu_to_gpu() -> None:
    # 3 peers x 4 links are the 12 links of an A100: no switch is needed.
    graph = link_graph([matrix(switched(4, 4))])
    assert not [vertex for vertex in graph.vertices if vertex.kind == "NVS"]
    assert paths(graph).between("GPU0", "GPU3").hops == 1


def test_several_bridges() -> None:
    text = (
        "\tGPU0\tGPU1\tGPU2\tCPU Affinity\n"
        "GPU0\tX\tPIX\tPXB\t0-7\nGPU1\tPIX\tX\tPXB\t0-7\nGPU2\tPXB\tPXB\tX\t0-7\n"
    )
    way = found(matrix(text))
    assert way.between("GPU0", "GPU1").kind is PathKind.PIX
    assert way.between("GPU0", "GPU2").kind is PathKind.PXB


def test_contradicting_cells_are_noted() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tPIX\t0\nGPU1\tSYS\tX\t0\n"
    topology = matrix(text)
    assert topology.unread[1:] == ("GPU1 to GPU0 is SYS, but back it is PIX",)
    assert found(topology).between("GPU0", "GPU1").kind is PathKind.SYS


@pytest.mark.parametrize(
    ("data", "message", "where"),
    [
        (b"", "holds no matrix", "t"),
        (b"GPU 0: NVIDIA L40S\n", "holds no matrix", "t"),
        (b"\tGPU0\tGPU1\nGPU0\tX\tPIX\n", "has 1 rows for 2 columns", "t"),
        (b"\tGPU0\tGPU1\nGPU0\tX\n", "row GPU0 has 1 cells for 2 devices", "t:2"),
        (b"\tGPU0\tGPU1\nGPU1\tX\tPIX\n", "row GPU1 stands where GPU0 belongs", "t:2"),
        (b"\tGPU0\tGPU1\nGPU0\tX\tFAR\n", "'FAR' is no kind of connection", "t:2"),
        (b"\tGPU0\tGPU0\n", "the header names 2 devices, not all different", "t:1"),
        (b"\t" + b"\t".join(b"GPU%d" % i for i in range(200)), "the header names 200", "t:1"),
        (b"\x7fELF\x00\x00\x00\x00\x00\x00\x00\x00", "is a binary file", "t"),
        (b"x" * (1 << 21), "has 2097152 bytes", "t"),
    ],
)
def test_text_that_is_no_matrix_is_refused(data: bytes, message: str, where: str) -> None:
    with pytest.raises(InputError) as caught:
        read_matrix(data, "t")
    assert caught.value.message.startswith(message)
    assert caught.value.where == where
    assert caught.value.hint


CELLS = st.sampled_from(["X", "NV1", "NV12", "PIX", "PXB", "PHB", "NODE", "SYS"])


@given(st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n),
                                                    min_size=n, max_size=n)))  # fmt: skip
def test_any_matrix_becomes_a_tree(cells: list[list[str]]) -> None:
    names = [f"GPU{place}" for place in range(len(cells))]
    lines = ["\t" + "\t".join(names)]
    lines += ["\t".join([name, *row]) for name, row in zip(names, cells, strict=True)]
    graph = link_graph([matrix("\n".join(lines))])
    assert sorted(v.name for v in graph.vertices if v.kind == "GPU") == names
    ways = paths(graph)
    for one in names:
        for other in names:
            assert ways.between(one, other).kind < PathKind.NET


def test_cpu_lists() -> None:
    assert cpus_of("0-2,8") == [0, 1, 2, 8]
    # The kernel lists no CPU for a NUMA node of memory only.
    assert cpus_of("") == cpus_of("\n") == []
    for damaged in ("N/A", "0-3,", "-5", "0-", "0--1", "\u00b2"):
        assert cpus_of(damaged) is None, damaged
    assert cpus_of("3-1") is None
    assert cpus_of("0-999999") is None
    assert mask_of([0, 1, 2, 8]) == "00000107"
    assert mask_of([0, 32, 95]) == "80000000,00000001,00000001"
