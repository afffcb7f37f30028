# SPDX-License-Identifier: Apache-2.0
"""Files of another host are examined alone; files of this node are further evidence."""

import os
from pathlib import Path

import pytest

from nccltune.doctor.evidence import elsewhere
from nccltune.doctor.evidence.elsewhere import read_elsewhere
from nccltune.doctor.examine import examine
from nccltune.doctor.facts import Facts
from nccltune.doctor.facts.log import LOG_NODES
from nccltune.doctor.facts.network import HCAS
from nccltune.doctor.facts.node import KERNEL_NUMA_BALANCING
from nccltune.doctor.facts.results import FAILURES
from nccltune.doctor.facts.topo import TOPO_DEVICES
from nccltune.doctor.result import RuleVerdict
from nccltune.doctor.rulebase import rule_base
from nccltune.model.errors import InputError
from nccltune.topology.files.load import load_topology
from tests.unit.doctor.evidence import texts
from tests.unit.doctor.evidence.node import folder_facts, pasted_facts, put

HERE = os.uname().nodename.partition(".")[0]
LOG = (
    "{0}:10:20 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"
    "{0}:10:20 [0] NCCL INFO Using network IB\n"
)
DEVICE = "#  Rank  0 Group  0 Pid  7 on {} device  0 [0x01] NVIDIA H200\n"


def read_all(folder: Path, **files: str) -> dict[str, Facts] | None:
    paths = []
    for name, text in files.items():
        paths.append(folder / name.replace("_", "."))
        paths[-1].write_text(text)
    return read_elsewhere(paths)


def read(folder: Path, **files: str) -> Facts | None:
    found = read_all(folder, **files)
    if found is None:
        return None
    (facts,) = found.values()
    return facts


@pytest.fixture(params=[True, False], ids=["gpu", "laptop"])
def driver(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether this node has an NVIDIA driver."""
    here = str(tmp_path) if request.param else str(tmp_path / "none")
    monkeypatch.setattr(elsewhere, "_DRIVERS", (here,))
    return bool(request.param)


@pytest.mark.usefixtures("driver")
def test_a_log_of_another_host(tmp_path: Path) -> None:
    found = read(tmp_path, run_log=LOG.format("other-7"))
    assert found is not None
    assert found.node == "other-7"
    assert "gpus" not in found
    found = read(tmp_path, run_log=LOG.format("a-1") + LOG.format("a-2"))
    assert found is not None
    assert found.node == "run.log"
    assert read(tmp_path, run_out=DEVICE.format("other-7") + "# nThread 1 nGpus 1\n") is not None


@pytest.mark.usefixtures("driver")
def test_a_log_of_this_host(tmp_path: Path) -> None:
    assert read(tmp_path, run_log=LOG.format("other-7") + LOG.format(HERE)) is None
    assert read(tmp_path, run_log=LOG.format(f"{HERE}.example.org")) is None


def test_outputs_without_a_host(tmp_path: Path, driver: bool) -> None:
    table = "# nThread 1 nGpus 1 minBytes 8\n# Out of bounds values : 0 OK\n"
    assert (read(tmp_path, run_out=table) is None) is driver
    kernel = "[    1.402311] AMD-Vi: Interrupt remapping enabled\n"
    assert (read(tmp_path, dmesg_txt=kernel) is None) is driver


@pytest.mark.usefixtures("driver")
def test_what_this_node_shows_itself_is_of_another(tmp_path: Path) -> None:
    found = read(tmp_path, topo_txt=texts.TOPO)
    assert found is not None
    assert found.node == "topo.txt"
    environment = read(tmp_path, env_txt="NCCL_IB_HCA=mlx5_0\nPATH=/bin\n")
    assert environment is not None
    assert environment.node == "env.txt"


def test_files_that_go_with_this_node(tmp_path: Path, driver: bool) -> None:
    job = "#!/bin/bash\n#SBATCH -N 2\nexport NCCL_DEBUG=WARN\nsrun -n 16 ./all_reduce_perf\n"
    assert (read(tmp_path, job_sbatch=job) is None) is driver
    assert read(tmp_path, topo_xml='<system version="1">\n</system>\n') is None
    assert read(tmp_path, notes_txt="roses are red\n") is None
    assert read_elsewhere([]) is None


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("kind", [' class="0x030200"', ' class="0x120000"', ""])
def test_a_topology_whose_devices_are_not_here(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "_DEVICES", tmp_path / "devices")
    dump = f'<system version="1">\n<pci busid="0000:1A:00.0"{kind}>\n</pci>\n</system>\n'
    found = read(tmp_path, topo_xml=dump)
    assert found is not None
    assert found.node == "topo.xml"
    (tmp_path / "devices" / "0000:1a:00.0").mkdir(parents=True)
    assert read(tmp_path, topo_xml=dump) is None


SLOW = texts.TOPO.replace("NV18", "NV12")


@pytest.mark.parametrize("name", ["paste_txt", "topo_txt"])
@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (f"node1:\n{texts.TOPO}\nnode2:\n{SLOW}", ["node1", "node2"]),
        (f"**a-1**\n{texts.TOPO}== b-2 ==\n{SLOW}", ["a-1", "b-2"]),
        (f"root@a:~# nvidia-smi topo -m\n{texts.TOPO}[root@b ~]$ nvidia-smi topo -m\n{SLOW}", ["a",
         "b"]),
        (texts.TOPO + SLOW, ["{} output 1", "{} output 2"]),
    ],
)  # fmt: skip
def test_outputs_of_two_machines_are_compared(
    name: str, text: str, nodes: list[str], tmp_path: Path
) -> None:
    found = read_all(tmp_path, **{name: text})
    assert found is not None
    assert list(found) == [node.format(name.replace("_", ".")) for node in nodes]
    judged = {one.rule: one for one in examine(found, rule_base(), "x").of(RuleVerdict.FINDING)}
    (first, second) = judged["gpu-paths-differ"].evidence
    assert first.nodes == (next(iter(found)),)
    assert "has GPU0-GPU1 NV18" in first.text
    assert "has GPU0-GPU1 NV12" in second.text


def test_ports_of_two_machines_beside_the_log_of_one(tmp_path: Path) -> None:
    """The log is of the machine that it names, and devices of one name are not the same."""
    text = (
        "h1:9:9 [0] net_ib.cc:9 NCCL WARN NET/IB : Got completion from peer 10.9.2.14<39> with "
        "error 12, opcode 0, len 0, vendor err 129 (Recv)\n"
        "root@h1:~# ibdev2netdev\nmlx5_0 port 1 ==> e0 (Up)\nmlx5_1 port 1 ==> e1 (Down)\n"
        "root@h2:~# ibdev2netdev\nmlx5_0 port 1 ==> bond0 (Up)\nmlx5_1 port 1 ==> e0 (Up)\n"
    )
    found = read_all(tmp_path, paste_txt=text)
    assert found is not None
    states = {
        node: [(one.name, one.state) for one in facts.value(HCAS) or []]
        for node, facts in found.items()
    }
    assert states == {
        "h1": [("mlx5_0", "ACTIVE"), ("mlx5_1", "DOWN")],
        "h2": [("mlx5_0", "ACTIVE"), ("mlx5_1", "ACTIVE")],
    }
    assert [one.kind for one in found["h1"].value(FAILURES) or []] == ["rdma_no_answer"]


def test_outputs_behind_the_prompts_of_two_hosts(tmp_path: Path) -> None:
    """All that stands behind a prompt is of its host, where two hosts show the same tool."""
    port = "CA 'mlx5_0'\n\tPort 1:\n\t\tState: {}\n\t\tSM lid: 0\n"
    one = "root@h1:~# ibstat\n" + port.format("Active")
    two = "[root@h2 ~]$ sysctl kernel.numa_balancing\nkernel.numa_balancing = 1\n"
    two += "[root@h2 ~]$ ibstat\n" + port.format("Initializing")
    found = read_all(tmp_path, paste_txt=one + two)
    assert found is not None
    assert {
        node: [one.state for one in facts.value(HCAS) or []] for node, facts in found.items()
    } == {
        "h1": ["ACTIVE"],
        "h2": ["INIT"],
    }
    assert [facts.value(KERNEL_NUMA_BALANCING) for facts in found.values()] == [None, 1]
    login = read_all(tmp_path, paste_txt="a@login:~$ ls\nb\n" + one)
    assert login is not None
    assert len(login) == 1


def test_a_script_beside_outputs_of_two_machines_is_no_third(tmp_path: Path) -> None:
    job = "#!/bin/bash\n#SBATCH -N 2\nexport NCCL_DEBUG=WARN\nsrun ./all_reduce_perf\n"
    found = read_all(tmp_path, paste_txt=f"a:\n{texts.TOPO}b:\n{SLOW}", job_sbatch=job)
    assert found is not None
    assert list(found) == ["a", "b"]


def test_two_files_with_a_matrix_each_are_two_machines(tmp_path: Path) -> None:
    found = read_all(tmp_path, one_txt=texts.TOPO, bad_txt=SLOW)
    assert found is not None
    assert list(found) == ["one.txt", "bad.txt"]
    judged = {one.rule: one for one in examine(found, rule_base(), "x").of(RuleVerdict.FINDING)}
    assert {one.nodes for one in judged["gpu-paths-differ"].evidence} == {
        ("one.txt",),
        ("bad.txt",),
    }
    assert all(not facts.unused for facts in found.values())


def test_what_else_is_in_a_text_of_two_machines_is_of_neither(tmp_path: Path) -> None:
    port = "CA 'mlx5_9'\n\tPort 1:\n\t\tState: Down\n\t\tLink layer: InfiniBand\n"
    found = read_all(tmp_path, paste_txt=f"{port}a:\n{texts.TOPO}b:\n{SLOW}")
    assert found is not None
    assert [name for name, facts in found.items() if "hcas" in facts] == ["paste.txt"]
    again = read_all(tmp_path, paste_txt=f"a:\n{texts.TOPO}a:\n{SLOW}")
    assert again is None


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


def test_hosts_of_a_communicator_are_its_nodes(tmp_path: Path) -> None:
    text = "".join(
        f"h{rank}:{rank}:9 [0] NCCL INFO ncclCommInitRank comm 0xa rank {rank} nranks 2 cudaDev 0 "
        "nvmlDev 0 busId 1000 commId 0xb - Init COMPLETE\n"
        for rank in range(2)
    )
    assert pasted_facts(tmp_path, "run.log", text).value(LOG_NODES) == 2
