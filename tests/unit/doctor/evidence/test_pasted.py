# SPDX-License-Identifier: Apache-2.0
"""Outputs that people paste in place of a tool's whole output."""

from pathlib import Path

import pytest

from nccltune.doctor.evidence.kinds import kinds_of
from nccltune.doctor.evidence.parsers.copies import parse_copies
from nccltune.doctor.evidence.parsers.gpu_query import parse_gpu_query
from nccltune.doctor.evidence.parsers.kernel_log import failure_kinds
from nccltune.doctor.evidence.parsers.pasted import parse_pci_lines
from nccltune.doctor.evidence.parsers.rdma_ports import parse_rdma_ports
from nccltune.doctor.examine import examine
from nccltune.doctor.facts.gpu import GPU_P2P_TEST, GPUS, PeerTest
from nccltune.doctor.facts.log import LOG_CALLS_APART
from nccltune.doctor.facts.network import (
    NICS,
    RDMA_FABRIC_LINKS,
)
from nccltune.doctor.facts.node import (
    NODE_MODULES,
    NODE_PEERMEM,
    NODE_SERVICES,
    SHM_BYTES,
    SHM_NCCL_FILES,
)
from nccltune.doctor.facts.results import FAILURES, TESTS
from nccltune.doctor.facts.settings import SETTINGS
from nccltune.doctor.rulebase import rule_base
from nccltune.doctor.summary import verdict_words
from tests.unit.doctor.evidence import texts
from tests.unit.doctor.evidence.node import folder_facts, pasted_facts, put
from tests.unit.doctor.evidence.texts import ACS, MLXLINK, P2P_BANDWIDTH


def test_acs_lines_without_their_devices() -> None:
    off = ACS.replace("SrcValid+", "SrcValid-").format("-")
    found = parse_pci_lines(ACS.format("+") * 2 + off)
    assert [(one.count, one.redirects) for one in found.acs] == [(2, True), (1, False)]
    assert [one.redirects for one in parse_pci_lines(ACS.format("-")).acs] == [False]
    asked = "# lspci -vvv -s 00:01.1\n" + ACS.format("+") + "$ lspci -vv -s 0001:41:00.0\n"
    named = parse_pci_lines(asked + "LnkSta: Speed 8GT/s, Width x8\n")
    (acs,), (link,) = named.acs, named.links
    assert str(acs.text).startswith("0000:00:01.1: SrcValid+")
    assert link.text == "0001:41:00.0: Speed 8GT/s, Width x8"
    assert not found.devices
    assert parse_pci_lines("c0:01.1 PCI bridge: x\n" + ACS.format("+")).devices
    assert kinds_of("x.txt", ACS.format("+").encode()).items == ("acs",)


@pytest.mark.parametrize(
    ("text", "slower", "fewer"),
    [
        ("\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16 (ok)\n", True, False),
        ("\tLnkSta:\tSpeed 16GT/s (ok), Width x4 (downgraded)\n", False, True),
        ("LnkCap: Port #0, Speed 8GT/s, Width x16, ASPM\nLnkSta: Speed 8GT/s, Width x8\n", False,
         True),
        ("LnkCap: Port #0, Speed 16GT/s, Width x8\nLnkSta: Speed 8GT/s, Width x8\n", True, False),
        ("LnkSta: Speed 8GT/s, Width x8\n", False, False),
    ],
    ids=["slow", "narrow", "of-x16", "of-16-gt", "not-known"],
)  # fmt: skip
def test_links_without_their_devices(text, slower, fewer) -> None:
    (found,) = parse_pci_lines(text * 2).links
    assert (found.count, found.slower, found.fewer_lanes) == (2, slower, fewer)
    assert kinds_of("x.txt", text.encode()).items == ("acs",)


def test_sections_of_a_query_without_titles_of_gpus() -> None:
    section = "    Remapped Rows\n        Uncorrectable Error  : 5\n        Pending  : {}\n"
    ecc = "    ECC Errors\n        Volatile\n            DRAM Uncorrectable  : 2\n"
    text = "".join(ecc + section.format(pending) for pending in ("No", "Yes"))
    found = parse_gpu_query(text).gpus
    assert [(one.ecc_uncorrected, one.remap_pending) for one in found] == [(2, False), (2, True)]
    assert kinds_of("x.txt", text.encode()).items == ("nvidia-smi-q",)


@pytest.mark.parametrize(
    ("text", "item"),
    [
        (
            "$ cat /proc/cmdline\nBOOT_IMAGE=/vmlinuz root=/dev/sda ro iommu=pt\n$ uname\n",
            "cmdline",
        ),
        ("$ ulimit -l\n64\n", "ulimit"),
    ],
    ids=["cmdline", "ulimit"],
)
def test_one_line_of_a_session(text, item) -> None:
    assert kinds_of("x.txt", text.encode()).items == (item,)


def test_bandwidth_without_and_with_p2p() -> None:
    assert parse_copies(P2P_BANDWIDTH).tests == [
        PeerTest(a=0, b=1, without_gb_per_s=21.48, with_gb_per_s=2.11),
        PeerTest(a=1, b=0, without_gb_per_s=21.59, with_gb_per_s=26.1),
    ]
    assert parse_copies(P2P_BANDWIDTH.partition("Unidirectional P2P=Enabled")[0]).tests == []
    assert [one.gb_per_s for one in parse_copies(P2P_BANDWIDTH).peers] == [2.11, 26.1]
    assert kinds_of("x.txt", P2P_BANDWIDTH.encode()).items == ("p2p-test",)


def test_gpus_without_peer_access_in_hip_bus_bandwidth() -> None:
    text = (
        "for gpu#0 Device 687f\n    peer2peer supported : gpu#2\n"
        "    peer2peer not supported : gpu#1 gpu#3\n"
        "for gpu#1 Device 687f\n    peer2peer not supported : gpu#0\n"
    )
    assert kinds_of("x.txt", text.encode()).items == ("p2p-test",)
    assert [(one.a, one.b) for one in parse_copies(text).refused] == [(0, 1), (0, 3), (1, 0)]


def test_ports_of_ibdev2netdev() -> None:
    text = "mlx5_0 port 1 ==> ens1np0 (Up)\n0000:03:00.1 mlx5_1 port 1 ==> ens2np0 (Down)\n"
    found = parse_rdma_ports(text)
    assert [(one.name, one.state) for one in found.ports] == [
        ("mlx5_0", "ACTIVE"),
        ("mlx5_1", "DOWN"),
    ]
    assert found.unread == 0
    assert kinds_of("x.txt", text.encode()).items == ("rdma-link",)


def test_ports_in_columns_and_interfaces_of_infiniband() -> None:
    """`ibdev2netdev | column -t`: the state of IP over InfiniBand is not that of the port."""
    text = (
        "mlx5_0   port  1  ==>  ibp26s0        (Down)  # CX-7\n"
        "mlx5_1   port  1  ==>  enp27s0f0np0   (Up)\n"
    )
    assert kinds_of("ports.txt", text.encode()).items == ("rdma-link",)
    found = [(port.name, port.state) for port in parse_rdma_ports(text).ports]
    assert found == [("mlx5_0", None), ("mlx5_1", "ACTIVE")]


def test_a_device_that_ibstat_cannot_read() -> None:
    text = "CA 'mlx5_7'\n\tPort 1:\n\t\tState: Active\n"
    text += (
        "ibpanic: [1323906] main: stat of IB device 'mlx5_8' failed: No such file or directory\n"
    )
    found = [(port.name, port.port, port.state) for port in parse_rdma_ports(text).ports]
    assert found == [("mlx5_7", 1, "ACTIVE"), ("mlx5_8", None, "UNREADABLE")]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("NVRM: Xid (PCI:0000:dc:00): 45, pid=1, Ch 1 caused by previous Xid 149", "xid_nvlink"),
        ("NVRM: Xid (PCI:0000:dc:00): 45, pid=1, Ch 1 caused by previous Xid 74", "xid_nvlink"),
        ("NVRM: Xid (PCI:0000:dc:00): 45, pid=1, Ch 1 caused by previous Xid 31", "xid_program"),
        ("NVRM: Xid (PCI:0000:dc:00): 45, pid=1, Ch 1", "xid_program"),
        ("Xid 79 on GPU 3", "gpu_lost"),
        ("GPU 0000:3b:00.0 reported XID errors: 63", "xid_fault"),
        ("nvidia-modeset: version 550 of the driver, xid table loaded", None),
        ("NVRM: _kgspLogXid119: ********* GSP Timeout *********", None),
        ("NVRM: GPU1 kbifCacheVFInfo_GB100: Unable to read NV_PF0", "driver_call"),
        ("NVRM: RmInitAdapter failed! (0x26:0x56:1463)", "driver"),
        ("NVRM: API mismatch: the client has the version 550.54", "driver"),
        ("NVRM: The NVIDIA probe routine failed for 1 device(s).", "driver"),
    ],
)
def test_an_xid_that_follows_another_is_of_its_kind(line: str, kind: str | None) -> None:
    assert failure_kinds([line]) == [kind]


def test_faults_of_an_iommu() -> None:
    lines = [
        "nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x002a address=0x47ff]",
        "DMAR: [DMA Write NO_PASID] Request device [17:00.0] fault addr 0x2bf [fault reason 0x05]",
        "AMD-Vi: Interrupt remapping enabled",
        "DMAR: Host address width 46",
    ]
    assert failure_kinds(lines) == ["iommu", "iommu", None, None]


def test_the_status_of_nvlinks_names_gpus(tmp_path: Path) -> None:
    facts = pasted_facts(tmp_path, "links.txt", texts.NVLINK)
    assert [(one.index, one.name, one.nvlinks_active) for one in facts.value(GPUS) or []] == [
        (0, "NVIDIA H100 80GB HBM3", 2),
        (1, "NVIDIA H100 80GB HBM3", 1),
    ]


def test_the_tree_of_lspci_says_what_has_more(tmp_path: Path) -> None:
    facts = pasted_facts(tmp_path, "lspci-tv.txt", "-+-[0000:e0]-+-00.0  AMD Root Complex\n")
    assert [one.why for one in facts.unused] == [
        "has neither link speeds nor ACS: give the output of sudo lspci -vvv"
    ]


def test_outputs_in_a_reply(tmp_path: Path) -> None:
    quoted = "".join(f"> {line}\n" for line in P2P_BANDWIDTH.splitlines())
    facts = pasted_facts(tmp_path / "a", "reply.txt", quoted)
    assert len(facts.value(GPU_P2P_TEST) or []) == 2
    for name, text in (
        ("mixed", f"{quoted}Thanks!\n"),
        ("diff", f"+{P2P_BANDWIDTH}".replace("\n", "\n+")),
    ):
        part = pasted_facts(tmp_path / name, "pasted.txt", text)
        assert len(part.value(GPU_P2P_TEST) or []) == 2
    environment = "    NCCL_DEBUG=WARN\n    NCCL_IB_HCA=mlx5_0\n"
    found = pasted_facts(tmp_path / "c", "paste.txt", environment).value(SETTINGS) or []
    assert [(one.name, one.value) for one in found] == [
        ("NCCL_DEBUG", "WARN"),
        ("NCCL_IB_HCA", "mlx5_0"),
    ]
    compose = "services:\n  a:\n    environment:\n      - NCCL_IB_HCAA=mlx5_0\n"
    (misspelt,) = pasted_facts(tmp_path / "d", "paste.txt", compose).value(SETTINGS) or []
    assert misspelt.meant == "NCCL_IB_HCA"


TABLE = """\
| NVIDIA-SMI 550.90.07      Driver Version: 550.90.07      CUDA Version: 12.4 |
|   0  NVIDIA A100-PCIE-40GB          On  | 00000000:01:00.0 Off |            0 |
| N/A   30C    P0          36W / 250W     |      4MiB / 40960MiB |   0%  Default |
|   1  NVIDIA A100-PCIE-40GB          On  | 00000000:02:00.0 Off |            0 |
"""
FAST = "1048576 262144 float sum -1{0} 100.0 10.49 18.35 0{0} 100.0 10.49 18.35 0\n"
SLOW = "2097152 524288 float sum -1{0} 400.0 5.24 9.18 0{0} 400.0 5.24 9.18 0\n"


def test_gpus_below_a_test(tmp_path: Path) -> None:
    test = "# nThread 1 nGpus 2\n# Avg bus bandwidth : 3.9\n"
    put(tmp_path, "n1/run.txt", test + TABLE)
    put(tmp_path, "n2/run.txt", test + TABLE + TABLE)
    one, of_two_nodes = folder_facts(tmp_path)
    assert [gpu.name for gpu in one.value(GPUS) or []] == ["NVIDIA A100-PCIE-40GB"] * 2
    assert of_two_nodes.value(GPUS) is None


@pytest.mark.parametrize("tag", ["", "[0]   ", "[1,0]<stdout>: "])
def test_rows_alone_are_a_test(tag: str, tmp_path: Path) -> None:
    rows = (FAST + SLOW).format(tag if tag.startswith("[0]") else "")
    put(tmp_path, "n1/in.txt", "".join(f"{tag}{row}\n" for row in rows.splitlines()))
    assert kinds_of("in.txt", rows.encode()).items == ("test",)
    (facts,) = folder_facts(tmp_path)
    ((low, high),) = [(t.min_bytes, t.max_bytes) for t in facts.value(TESTS) or []]
    assert (low, high) == (1048576, 2097152)


LINK = '  3  {}[  ] ==( {} 25.78125 Gbps Active/  LinkUp)==>  9  1[  ] "node{} HCA-1" ( {})\n'


def test_links_of_a_fabric(tmp_path: Path) -> None:
    lines = [LINK.format(1, "4X", 1, ""), LINK.format(2, "1X", 2, "Could be 4X")]
    lines.append(LINK.format(3, "4X", 3, "Could be 53.125 Gbps"))
    lines.append('  3  4[  ] ==(                Down/ Polling)==>             [  ] "" ( )\n')
    put(tmp_path, "n1/links.txt", "Switch: 0x0c42 MF0;sw1:\n" + "".join(lines))
    (facts,) = folder_facts(tmp_path)
    links = facts.value(RDMA_FABRIC_LINKS) or []
    assert [link.could_be for link in links] == [None, "4X", "53.125 Gbps"]
    assert links[1].rate == "1X 25.78125 Gbps"


GIDS = """\
DEV     PORT    INDEX   GID                                     IPv4            VER     DEV
---     ----    -----   ---                                     ------------    ---     ---
mlx5_0  1       4       fe80:0000:0000:0000:a288:c2ff:fe5b:03ec                 v1      net1
mlx5_0  1       7       0000:0000:0000:0000:0000:ffff:0b00:0048 11.0.0.72       v2      net1
"""
TOPO = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-31\nGPU1\tNV12\t X \t0-31\n"
LOG = "n1:9:9 [0] NCCL INFO Using network IB\n"


def indented(text: str) -> str:
    return "".join(f"          {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (f"5. The GIDs:\n{indented(GIDS)}", ("show_gids",)),
        (f"{GIDS}\n{LOG}", ("log", "show_gids")),
        (f"{GIDS}but the other:\n{GIDS}\n{LOG}", ("log",)),
        (f"{LOG}$ nvidia-smi topo -m\n{TOPO}{LOG}", ("log", "topo")),
        (f"{LOG}{TOPO}{TOPO}", ("log",)),
        (f"{LOG}CA 'mlx5_0'\n\tPort 1:\n\t\tState: Down\nCA 'mlx5_1'\n", ("log", "ibstat")),
        (f"{LOG}CA 'mlx5_0'\nCA 'mlx5_0'\n", ("log",)),
        (f"{LOG}hca_id: mlx5_4\n\tport: 1\n\t\tstate: PORT_DOWN (1)\n", ("log", "ibv_devinfo")),
    ],
)
def test_tools_in_prose_and_in_logs(text: str, items: tuple[str, ...], tmp_path: Path) -> None:
    put(tmp_path, "n1/paste.txt", text)
    (facts,) = folder_facts(tmp_path)
    known = {"show_gids": "gids", "topo": "gpu.paths", "log": "log.net"}
    known |= dict.fromkeys(("ibstat", "ibv_devinfo"), "hcas")
    assert set(known.values()) & set(facts) == {known[item] for item in items}


@pytest.mark.parametrize(
    ("text", "services"),
    [
        ("● nvidia-fabricmanager.service - NVIDIA fabric manager service\n"
         "     Loaded: loaded (/lib/systemd/system/nvidia-fabricmanager.service; enabled)\n"
         "     Active: failed (Result: exit-code) since Mon 2024-01-01 10:00:00 UTC; 1s ago\n", {
         "nvidia-fabricmanager": "failed"}),
        ("$ systemctl status nvidia-imex\nUnit nvidia-imex.service could not be found.\n", {
         "nvidia-imex": "not-found"}),
        ("* nvidia-imex.service - NVIDIA IMEX service\n   Active: active (running) since x\n"
         "* opensm.service - Starts the OpenSM InfiniBand fabric Subnet Manager\n"
         "   Active: inactive (dead)\n", {"nvidia-imex": "active", "opensm": "inactive"}),
    ],
)  # fmt: skip
def test_services_as_systemctl_shows_them(
    text: str, services: dict[str, str], tmp_path: Path
) -> None:
    assert pasted_facts(tmp_path, "a.txt", text).value(NODE_SERVICES) == services


@pytest.mark.parametrize(
    "text",
    [
        "eth0      Link encap:Ethernet  HWaddr 08:00:38:3A:7F:D4\n"
        "          UP BROADCAST RUNNING MULTICAST  MTU:1500  Metric:1\n",
        "eth0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 1500\n"
        "        inet 192.0.2.1  netmask 255.255.255.0  broadcast 192.0.2.255\n",
    ],
)
def test_interfaces_of_ifconfig(text: str, tmp_path: Path) -> None:
    nics = pasted_facts(tmp_path, "a.txt", f"$ ifconfig\n{text}").value(NICS) or []
    assert [(one.name, one.mtu) for one in nics] == [("eth0", 1500)]


def test_rows_below_a_command_end_with_them(tmp_path: Path) -> None:
    command = "$ nvidia-smi --query-gpu=index,pcie.link.width.current --format=csv,noheader"
    text = f"{command}\n0, 16\n1, 8   # riser\nso, 8 lanes\n2, 4\n"
    gpus = pasted_facts(tmp_path, "a.txt", text).value(GPUS) or []
    assert [(one.index, one.pcie_width) for one in gpus] == [(0, 16), (1, 8)]
    quoted = (
        "check: nvidia-smi --query-gpu=index,pcie.link.width.current --format=csv\nThat shows\n"
    )
    assert kinds_of("x.txt", quoted.encode()).items == ()


def test_mlxlink_in_json() -> None:
    fields = {"Physical state": "LinkUp", "Speed": "IB-EDR", "State": "Active", "Width": "4x"}
    lines = ",\n".join(f'            "{name}" : "{value}"' for name, value in fields.items())
    text = f'{{\n   "result" : {{\n         "Operational Info" : {{\n{lines}\n         }},\n'
    assert kinds_of("x.txt", text.encode()).items == ("rdma-link",)
    (port,) = parse_rdma_ports(f"# mlxlink -d mlx5_0 --json\n{text}").ports
    assert (port.name, port.state, port.rate_gbit_per_s) == ("mlx5_0", "ACTIVE", 100.0)


def test_links_of_mlxlink() -> None:
    active = MLXLINK.replace("Polling", "Active")
    text = f"a# mlxlink -d mlx5_0\n{active}a# sudo mlxlink -d mlx5_1\n{MLXLINK}{active}"
    found = [(one.name, one.state, one.rate_gbit_per_s) for one in parse_rdma_ports(text).ports]
    names = [("mlx5_0", "ACTIVE", 200.0), ("mlx5_1", "DOWN", 200.0)]
    assert found == [*names, ("port of output 3", "ACTIVE", 200.0)]
    assert "Cable is unplugged" in (parse_rdma_ports(text).ports[1].phys_state or "")


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("nvidia_peermem         16384  0", ["nvidia_peermem"]),
        ("$ lsmod | grep -i peer\nuser@a:~$ uname -r", []),
        ("root@a:~# lsmod | grep -E 'nv_peer_mem|nvidia_peermem'\nnv_peer_mem  16384  0", [
         "nv_peer_mem"]),
        ("$ lsmod | grep nv_peer_mem\n$ uname", None),
        ("$ lsmod | grep nvidia\nnvidia_uvm  4943872  0\nnvidia  54566912  3 nvidia_uvm", [
            "nvidia", "nvidia_uvm"]),
        ("$ lsmod | grep ib_core\nib_core  434176  9 rdma_cm,ib_uverbs", None),
        ("ib_core  434176  9 rdma_cm,ib_uverbs", None),
    ],
    ids=["line", "none", "either", "other-name", "driver", "other", "line-of-another"],
)  # fmt: skip
def test_a_part_of_lsmod_says_only_what_it_shows(text, modules, tmp_path: Path) -> None:
    put(tmp_path, "n1/paste.txt", f"{text}\n")
    (facts,) = folder_facts(tmp_path)
    assert facts.value(NODE_MODULES) == modules


@pytest.mark.parametrize(
    ("text", "loaded"),
    [
        ("$ lsmod | grep -i peermem\na:~$ uname -r", False),
        ("$ lsmod | grep peermem\nnvidia_peermem  16384  0\n$ uname", None),
        ("$ lsmod | grep peermem", None),
        ("$ lsmod | grep -v peermem\n$ uname", None),
    ],
    ids=["none", "loaded", "cut-off", "others"],
)
def test_a_filter_for_peermem_that_printed_nothing(text: str, loaded, tmp_path: Path) -> None:
    put(tmp_path, "n1/paste.txt", f"{text}\n")
    (facts,) = folder_facts(tmp_path)
    assert facts.value(NODE_PEERMEM) is loaded


@pytest.mark.parametrize(
    "kernel", ["", "Feb 14 05:03:42 g1 kernel: NVRM: loading NVIDIA UNIX 570\n"]
)
def test_an_error_of_another_service_in_the_journal_is_of_no_job(
    kernel: str, tmp_path: Path
) -> None:
    line = "Feb 14 05:03:44 g1 {}[99]: Connection reset by peer 192.0.2.2\n"
    put(tmp_path, "n1/journal.txt", kernel + line.format("sshd") + line.format("python3"))
    (facts,) = folder_facts(tmp_path)
    assert [one["text"] for one in facts.named(FAILURES.name)] == [line.format("python3").strip()]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "available: 2 nodes (0-1)\nnode 0 cpus: 0-15\nnode distances:\n",
            "read, but not enough alone: NUMA nodes that have CPUs",
        ),
        ("ib_core  434176  9 rdma_cm,ib_uverbs\n", "only a part of lsmod"),
    ],
    ids=["numactl", "lsmod"],
)
def test_what_decides_nothing_alone_is_named(text: str, words: str, tmp_path: Path) -> None:
    put(tmp_path, "n1/paste.txt", text)
    (facts,) = folder_facts(tmp_path)
    assert words in verdict_words(examine({"n1": facts}, rule_base(), "x"))


def test_a_table_of_rocm_smi_is_named_as_not_used(tmp_path: Path) -> None:
    put(tmp_path, "n1/paste.txt", "==== ROCm System Management Interface ====\n0  51.0c  4.0W\n")
    (facts,) = folder_facts(tmp_path)
    assert [one.why.partition(":")[0] for one in facts.unused] == [
        "its table of GPUs decides nothing"
    ]


@pytest.mark.parametrize(
    ("name", "command", "size"),
    [
        ("df4.txt", "", None),
        ("df.txt", "", None),
        ("df4.txt", "$ df -h /\n", None),
        ("df4.txt", "$ df -h /dev/shm\n", 0),
        ("df-shm.txt", "", 0),
    ],
)
def test_df_of_another_folder(name: str, command: str, size: int | None, tmp_path: Path) -> None:
    table = "Filesystem  Size  Used Avail Use% Mounted on\noverlay  98G  40G  53G  43% /\n"
    put(tmp_path, f"n1/{name}", command + table)
    (facts,) = folder_facts(tmp_path)
    assert facts.value(SHM_BYTES) == size


def test_left_over_files_beside_df(tmp_path: Path) -> None:
    """Whole files of NCCL count, not a folder, nor another program's file."""
    table = "Filesystem Size Used Avail Use% Mounted on\ntmpfs 2.0G 2.0G 0 100% /dev/shm\n"
    names = "-rw------- 1 r r 0 Oct 1 08:00 nccl-Ab1\n-rw------- 1 r r 9 Oct 1 08:00 {}\n"
    listing = f"n1$ ls -l /dev/shm\ntotal 9\n{names.format('sem.nccl-x')}"
    put(tmp_path, "n1/a.txt", f"n1$ df -h /dev/shm\n{table}{listing}drwx------ 2 r r 9 nccl-d\n")
    (facts,) = folder_facts(tmp_path)
    assert facts.value(SHM_NCCL_FILES) == 1


def _call(rank: int, op: int, call: str, communicator: str = "a") -> str:
    function, _, count = call.partition(" ")
    return (
        f"w{rank}:1{rank}:20 [{rank}] NCCL INFO {function}: opCount {op:x} sendbuff 0x7f0 recvbuff"
        f" 0x7f0 count {count} datatype 7 op 0 root 0 comm 0x{communicator}{rank} [nranks=2]"
        " stream 0x561\n"
    )


def _calls(first: list[str], second: list[str], communicator: str = "a") -> str:
    return "".join(
        _call(rank, op, call, communicator)
        for rank, calls in enumerate((first, second))
        for op, call in enumerate(calls)
        if call
    )


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        (_calls(["AllReduce 8"] *12, ["AllReduce 8"] *11 + ["AllGather 3"]), [
         "opCount b: w1:11 [1] calls AllGather of 3; w0:10 [0] calls AllReduce of 8"]),
        (_calls(["AllReduce 8"] * 3, ["AllReduce 8"] * 2), []),  # One rank is ahead.
        (_calls(["AllReduce 8", "AllReduce 9"], ["", "AllReduce 9"]), []),
        (_calls(["Send 8"], ["Recv 8"]), []),
        # Which parts belong together is unknown.
        (_calls(["AllReduce 8"], ["AllReduce 9"]) + _calls(["Reduce 1"], ["Reduce 1"], "b"), []),
    ],
)  # fmt: skip
def test_calls_in_which_ranks_differ(text: str, apart: list[str], tmp_path: Path) -> None:
    assert pasted_facts(tmp_path, "run.log", text).value(LOG_CALLS_APART) == apart
