# SPDX-License-Identifier: Apache-2.0
"""The topology in a text that has results."""

import tracemalloc

import pytest

from nccltune.formats.topology.beside_results import topology_beside_results
from nccltune.formats.topology.nvidia_smi_matrix import read_matrix, smi_topology
from nccltune.topology.hardware.change import devices_of

MATRIX = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV2\t0-3\nGPU1\tNV2\t X \t0-3\n"
XML = """\
<system version="1">
  <cpu numaid="0" affinity="f" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:1a:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="70" rank="0" gdr="1"/>
    </pci>
  </cpu>
</system>
"""
ROW = "# results\n  1048576  262144  float  sum  30.0  34.95  34.95  0e+00\n"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        (f"Is this normal?\n{MATRIX}\n{ROW}", b"NV2"),
        (f"{ROW}$ nvidia-smi topo -m\n{MATRIX}$ exit\n", b"NV2"),
        (f"Hello\n{XML}{ROW}", b"</system>"),
        (f"node a\n{MATRIX}node b\n{MATRIX}{ROW}", None),
        (f"{XML}{MATRIX}{ROW}", None),
        (MATRIX.replace("NV2\t X ", "NV2 ?"), None),
        (XML.replace("<gpu", "<<gpu"), None),
        (ROW, None),
    ],
    ids=["above", "below", "xml", "two", "two-kinds", "damaged", "bad-xml", "none"],
)
def test_one_topology_beside_results(text: str, holds: bytes | None) -> None:
    found = topology_beside_results(text.encode())
    assert (found is None) if holds is None else (found is not None and holds in found)
    assert found is None or b"1048576" not in found


IBSTAT = """\
$ ibstat
CA '{0}'
\tPort 1:
\t\tState: {1}
\t\tPhysical state: LinkUp
\t\tRate: {2}
"""
IBSTATUS = """\
# ibstatus
Infiniband device '{0}' port 1 status:
\tstate:\t\t 4: {1}
\tphys state:\t 5: LinkUp
\trate:\t\t {2} Gb/sec (4X EDR)
"""
NICS = "\tGPU0\tmlx5_0\tmlx5_1\nGPU0\t X \tPIX\tSYS\nmlx5_0\tPIX\t X \tSYS\nmlx5_1\tSYS\tSYS\t X \n"


@pytest.mark.parametrize(
    ("ports", "speeds"),
    [
        (IBSTAT.format("mlx5_0", "Active", 100), [100000, None]),
        (IBSTATUS.format("mlx5_0", "ACTIVE", 100), [100000, None]),
        (IBSTAT.format("mlx5_0", "Active", "56 (FDR)") + IBSTAT.format("mlx5_1", "Active", 400),
         [56000, 400000]),
        (IBSTAT.format("mlx5_0", "Down", 10), [None, None]),
        (IBSTAT.format("mlx5_1", "Active", 100) + IBSTAT.format("mlx5_1", "Active", 200),
         [None, None]),
        (IBSTAT.format("mlx5_1", "Active", 100) * 2, [None, 100000]),
        ("", [None, None]),
    ],
)  # fmt: skip
def test_rates_of_nics_beside_a_matrix(ports: str, speeds: list[int | None]) -> None:
    found = topology_beside_results(f"{NICS}{ROW}{ports}{ROW}".encode())
    assert found is not None
    assert b"1048576" not in found
    topology = smi_topology(read_matrix(found, "t"))
    nets = [net for device in devices_of(topology) for net in device.nets]
    assert [net.mbit_per_s for net in nets] == speeds
    assert ("speeds of links and NICs" in topology.unread[0]) is (None in speeds)


def test_many_matrices_are_not_copied() -> None:
    text = MATRIX.encode() * 2000
    tracemalloc.start()
    try:
        assert topology_beside_results(text) is None
        assert tracemalloc.get_traced_memory()[1] < len(text)
    finally:
        tracemalloc.stop()
