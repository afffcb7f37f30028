# SPDX-License-Identifier: Apache-2.0
"""NCCL's topologies in the words of a post."""

from pathlib import Path

import pytest

from nccltune.doctor.evidence.elsewhere import read_elsewhere
from nccltune.doctor.facts.topo import TOPO_DEVICES
from nccltune.model.errors import InputError
from nccltune.topology.files.load import load_topology
from tests.unit.doctor.evidence.node import folder_facts, put

LOG_LINE = "a:1:2 [0] NCCL INFO NET/Socket : Using eth0\n"
DUMP = """\
<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="106">
    <pci busid="0000:09:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="80" rank="0" gdr="1"/>
    </pci>
  </cpu>
</system>
"""


@pytest.mark.parametrize("before", ["Our machine:\n", LOG_LINE])
def test_topology_in_the_words_of_a_post(before: str, tmp_path: Path) -> None:
    put(tmp_path, "post.txt", f"{before}{DUMP}It ends with </system>. Thanks!\n")
    ((device,),) = (facts.value(TOPO_DEVICES) for facts in folder_facts(tmp_path))
    assert (device.bus_id, device.width) == ("0000:09:00.0", 16)
    assert len(load_topology(tmp_path / "post.txt").cpus[0].devices) == 1


def test_topologies_of_two_nodes_in_a_post(tmp_path: Path) -> None:
    other = DUMP.replace(":09:", ":0a:")
    post = tmp_path / "post.txt"
    post.write_text(f"First node:\n{DUMP}Second node:\n{other}{LOG_LINE}")
    found = read_elsewhere([post])
    assert found is not None
    devices = {name: facts.value(TOPO_DEVICES) for name, facts in found.items()}
    assert {name: one[0].bus_id for name, one in devices.items() if one} == {
        "First node": "0000:09:00.0",
        "Second node": "0000:0a:00.0",
    }
    with pytest.raises(InputError, match="has 2 topologies"):
        load_topology(post)
    # A dump of which the end is missing, and one that two ranks wrote.
    post.write_text(f"Cut:\n{DUMP[:200]}\nWhole:\n{other}Again:\n{other}")
    assert load_topology(post).cpus[0].devices[0].bus_id == "0000:0a:00.0"
