# SPDX-License-Identifier: Apache-2.0
"""The content of a file decides what it is; its name is a hint."""

from itertools import permutations
from pathlib import Path

import pytest

from nccltune.doctor.evidence.collect import collect
from nccltune.doctor.evidence.item_names import named_part
from nccltune.doctor.evidence.kinds import kinds_of, plain_bytes
from tests.unit.doctor.evidence import texts
from tests.unit.doctor.evidence.node import folder_facts, make_node, put, run_made
from tests.unit.doctor.evidence.test_files_of_people import GRAPH, TEST, TOPOLOGY

JOB = "#!/bin/bash\n#SBATCH -N 2\nexport NCCL_ALGO=Ring\nsrun ./all_reduce_perf -g 1\n"
MANIFEST = "apiVersion: v1\nkind: Pod\nspec: {}\n"
ENV = "HOME=/root\nNCCL_NET=IB\nPATH=/bin\n"
DMESG = "[    1.000000] pcieport 0000:00:01.0: AER: enabled\n"
LISTED = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"
CONTENTS = {
    "topology": TOPOLOGY,
    "graph": GRAPH,
    "log": texts.LOG,
    "test": TEST,
    "nvidia-smi": texts.SMI_CSV,
    "nvidia-smi-q": texts.SMI_XML,
    "nvlink": texts.NVLINK,
    "topo": texts.TOPO,
    "p2p-r": texts.P2P,
    "lspci": texts.LSPCI,
    "ibstat": texts.IBSTAT,
    "ibv_devinfo": texts.DEVINFO,
    "nvbandwidth": texts.NVBANDWIDTH,
    "job": JOB,
    "env": ENV,
    "dmesg": DMESG,
    "limits": texts.LIMITS,
    "status": texts.STATUS,
    "cpuinfo": texts.CPUINFO,
    "imex": texts.IMEX,
}
PREFIXES = ("[1,0]<stdout>:", "0: ", "[default0]:", "2026-11-23T10:00:00.1Z stdout F ", "node1 | ")


@pytest.mark.parametrize("item", CONTENTS)
@pytest.mark.parametrize(
    "name", ["topo.xml", "env.txt", "net.log", "status", "x", "lspci.out", "graph-1.txt", "ä b.dat"]
)
def test_the_content_decides(item: str, name: str) -> None:
    assert kinds_of(name, CONTENTS[item].encode())[:2] == ((item,), True)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", ["nccl.node1.4711.log", "slurm-17.out", "system.txt", "cpu.log"])
def test_a_log_of_any_name_and_launcher(prefix: str, name: str) -> None:
    lines = "".join(f"{prefix}{line}\n" for line in texts.LOG.splitlines())
    training = "step 1 loss 2.0\n" * 5000
    assert "log" in kinds_of(name, (training + lines).encode()).items


def test_utf_16_and_crlf() -> None:
    assert kinds_of("x", plain_bytes(texts.LOG.encode("utf-16"))).items == ("log",)
    assert kinds_of("x", TOPOLOGY.replace("\n", "\r\n").encode()).items == ("topology",)


@pytest.mark.parametrize(
    ("name", "text", "item"),
    [
        ("lspci.txt", "", "lspci"),
        ("LSPCI-vvv.log", "", "lspci"),
        ("nvidia-smi-topo-m", "", "topo"),
        ("ib_write_bw.txt", "", "perftest"),
        ("counters.2.txt", "", "counters"),
        ("show_gids.txt", "", "show_gids"),
        ("run.sbatch", "", "job"),
        ("user-nccl.conf", "", "user-nccl-conf"),
        ("p2p-n.txt", texts.P2P, "p2p-n"),
        ("given-topology.xml", TOPOLOGY, "given-topology"),
        ("host-lspci.txt", texts.LSPCI, "vm-host-lspci"),
        ("nccl.conf", "NCCL_ALGO=Ring\n", "etc-nccl-conf"),
        ("user-nccl-conf.txt", "NCCL_ALGO=Ring\n", "user-nccl-conf"),
        ("pod.yaml", MANIFEST, "job"),
        ("pod", MANIFEST, "job"),
        ("setenv.sh", "export NCCL_ALGO=Ring\n", "job"),
        ("virt.txt", "kvm\n", "virt"),
        ("topology.yaml", "kind: Pod", "job"),
        ("smi.txt", "No devices were found\n", "nvidia-smi"),
        ("gpus.txt", LISTED, "nvidia-smi"),
        ("nvlink.txt", LISTED, "nvlink"),
        ("Dockerfile", "FROM a/b:1\n# NCCL version A has\n# NCCL error. GPU is lost\n", "job"),
        ("out.txt", "srun: error: node1: task 0: Exited with exit code 1\n", "output"),
    ],
)
def test_the_name_decides_where_the_content_does_not(name: str, text: str, item: str) -> None:
    assert kinds_of(name, text.encode()).items == (item,)
    # Words in a source file state no failure of a run.
    assert kinds_of(f"{name}.py.old", text.encode()).items == ()


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (texts.SMI_TEXT, ("nvidia-smi-q",)),
        ('<!-- made -->\n<graphs version="1">', ("graph",)),
        # A pattern that backtracks over comments would never end.
        ("<!-- -->" * 500 + "<other>", ()),
        ("# nThread 1 nGpus 8 minBytes 8\n", ("test",)),
        ("# Using devices\n#  Rank  0 Group  0 Pid 3 on n1 device  0 [0x0f] A100\n", ("test",)),
        ("roses are red\n", ()),
        ('>>> line = "[ 9.1] NVRM: Xid (PCI:0000:0f:00): 79"\n', ()),
        ("/usr/mpi/bin/mpirun  \\\n  -np 2 -x NCCL_IB_GID_INDEX=3 ./all_reduce_perf\n", ("job",)),
        ("$ srun -N 2 ./train\n", ("job",)),
        ("export A=1\nmpirun -np 2 \\\n  ./all_reduce_perf -b 8\n", ("job",)),
        ("We start\nmpirun -np 2 ./all_reduce_perf\nand get bad results.\n", ("job", "output")),
        ("mpirun is here\n", ()),
        ("INFO [parallel_state.py:9] world_size=1 rank=0 backend=nccl\n", ("output",)),
        ("| NVIDIA-SMI 5.1\n[W ProcessGroupNCCL.cpp:9]\nNCCL error\n", ("nvidia-smi", "output")),
        # A script that looks for errors states none; a post with a script in it may.
        (f"{JOB}grep -q 'NCCL error' out && echo failed\n", ("job",)),
        ('mpirun -np 2 ./a > log\ngrep -c "Segmentation fault" log\ncp log out\n', ("job",)),
        ("mpirun -np 2 ./a\nSegmentation fault\n", ("job", "output")),
        (f"a: Test NCCL failure x.cu:1 'unhandled cuda error'\nI use this:\n{JOB}", ("job",
         "output")),
        (f"My job:\n```\n{JOB}```\nsrun: error: n1: task 0: Exited with 1\n", ("job", "output")),
    ],
)  # fmt: skip
def test_a_neutral_name_leaves_the_content_to_decide(text: str, items: tuple[str, ...]) -> None:
    assert kinds_of("x.txt", text.encode()).items == items


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("node7-dmesg", ("dmesg", "node7")),
        ("nvidia-smi.gpu-01", ("nvidia-smi", "gpu-01")),
        ("nvidia_smi_q_gpu1", ("nvidia-smi-q", "gpu1")),
        ("ibstat", ("ibstat", "")),
        ("rack1.lsmod.node2", ("modules", "rack1-node2")),
        ("mystatusquo", ("", "mystatusquo")),
    ],
)
def test_the_node_in_a_name(name: str, wanted: tuple[str, str]) -> None:
    assert named_part(name) == wanted


def test_files_are_recognised_in_any_order(tmp_path: Path) -> None:
    """The names of a log, a topology and a job file also match other items."""
    make_node(tmp_path / "root")
    for name, text in (("run.log", texts.LOG), ("topo.xml", TOPOLOGY), ("job.sbatch", JOB)):
        put(tmp_path, name, text)
    for names in permutations(("run.log", "topo.xml", "job.sbatch")):
        paths = [tmp_path / name for name in names]
        facts = collect(tmp_path / "root", environment={}, runner=run_made, files=paths)
        assert facts["topo.devices"].source == str(tmp_path / "topo.xml")
        assert facts.named("log.ranks") == 16
        jobs = [one for one in facts.named("settings") if one["kind"] == "job_file"]
        assert [one["name"] for one in jobs] == ["NCCL_ALGO"]
        assert facts.unused == []


def test_files_of_which_nothing_was_used_are_named(tmp_path: Path) -> None:
    put(tmp_path, "n1/nvidia-smi.txt", texts.SMI_CSV)
    put(tmp_path, "n1/notes.txt", "roses are red\n")
    put(tmp_path, "n1/ibstat.txt", "ibpanic: no device\n")
    put(tmp_path, "n1/lspci.txt", "")
    put(tmp_path, "n1/a-topo.xml", TOPOLOGY)
    put(tmp_path, "n1/b-topo.xml", TOPOLOGY)
    put(tmp_path, "n1/given-topology.xml", "<system version='1'><pci>")
    own = "verdict     1 finding: 1 error · ok 9 · cannot tell 3\n\nerror  A\n  evidence  Xid 79\n"
    put(tmp_path, "n1/doctor.txt", own)
    put(tmp_path, "n1/a.py", "# Xid 79\n")
    put(tmp_path, "n1/core.bin", bytes(range(32)) * 200)
    (facts,) = folder_facts(tmp_path)
    unused = {one.file.removeprefix("n1/"): one.why for one in facts.unused}
    assert "XML" in unused.pop("given-topology.xml")
    assert unused == {
        "notes.txt": "its kind is not recognised",
        "ibstat.txt": "nothing in it was understood (its name suggests ibstat): ibpanic: no device",
        "doctor.txt": "it is what nccltune doctor printed: pass the files it looked at",
        "a.py": "it is a source file, and shows no run of a program",
        "lspci.txt": "is empty",
        "a-topo.xml": "n1/b-topo.xml was read in its place",
        "core.bin": "is a binary file",
    }


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("    Fabric\n        State : Completed\n", ("nvidia-smi-q",)),
        ("    Fabric\n        State\n            Now : Completed\n", ("nvidia-smi-q",)),
        ("    Fabric\n   " + "a" * 1_000_000, ()),
        ("GPU1 " * 200_000 + "\nx\n", ()),
    ],
    ids=["field", "title", "word", "gpu"],
)
def test_a_long_line_is_tried_once(text: str, items: tuple[str, ...]) -> None:
    assert kinds_of("x.txt", text.encode()).items[:1] == items
