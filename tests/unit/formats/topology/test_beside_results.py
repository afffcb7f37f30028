# SPDX-License-Identifier: Apache-2.0
"""The topology in a text that has results."""

import tracemalloc

import pytest

from nccltune.formats.topology.beside_results import topology_beside_results

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


def test_many_matrices_are_not_copied() -> None:
    text = MATRIX.encode() * 2000
    tracemalloc.start()
    try:
        assert topology_beside_results(text) is None
        assert tracemalloc.get_traced_memory()[1] < len(text)
    finally:
        tracemalloc.stop()
