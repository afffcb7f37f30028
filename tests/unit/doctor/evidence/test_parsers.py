# SPDX-License-Identifier: Apache-2.0
"""Parsers of tool output, in the forms of several versions."""

import pytest

from nccltune.doctor.evidence.kinds import kinds_of
from nccltune.doctor.evidence.parsers.copies import copy_ranges, parse_copies
from nccltune.doctor.evidence.parsers.ethtool import parse_ethtool
from nccltune.doctor.evidence.parsers.gids import parse_devinfo_gids, parse_show_gids
from nccltune.doctor.evidence.parsers.imex import parse_imex
from nccltune.doctor.evidence.parsers.interfaces import parse_interfaces
from nccltune.doctor.evidence.parsers.job_settings import (
    parse_job_settings,
    parse_posted_settings,
)
from nccltune.doctor.evidence.parsers.kernel import (
    parse_cpus,
    parse_df,
    parse_huge_pages,
    parse_modules,
    parse_status,
)
from nccltune.doctor.evidence.parsers.kernel_log import failure_kinds, parse_kernel_log
from nccltune.doctor.evidence.parsers.limits import parse_limits
from nccltune.doctor.evidence.parsers.listed import parse_listed, remove_ipc
from nccltune.doctor.evidence.parsers.lspci import parse_lspci
from nccltune.doctor.evidence.parsers.nccl_lines import parse_nccl_lines
from nccltune.doctor.evidence.parsers.nvlink import GpuLinks, parse_nvlink_status
from nccltune.doctor.evidence.parsers.p2p_matrix import parse_p2p_matrix
from nccltune.doctor.evidence.parsers.pci_config import parse_pci_config, render_pci_config
from nccltune.doctor.evidence.parsers.perftest import parse_perftest
from nccltune.doctor.evidence.parsers.pings import parse_rail_pings
from nccltune.doctor.evidence.parsers.rdma_counters import parse_rdma_counters
from nccltune.doctor.evidence.parsers.rdma_ports import parse_rdma_ports
from nccltune.doctor.evidence.parsers.services import parse_services
from nccltune.doctor.evidence.parsers.symbols import parse_plugins
from nccltune.doctor.evidence.parsers.text import bus_id, decode, real, whole
from nccltune.doctor.evidence.parsers.topo_matrix import parse_topo_matrix
from nccltune.doctor.evidence.parsers.tree import parse_tree
from nccltune.doctor.facts.gpu import GpuCopy
from nccltune.doctor.facts.network import NodeNic
from tests.unit.doctor.evidence import texts


def test_lspci() -> None:
    found = parse_lspci(texts.LSPCI)
    port, switch, nic, gpu = found.records
    assert found.unread == 0
    assert (port.bus_id, port.kind) == ("0000:00:01.0", "bridge")
    assert port.acs is not None
    assert port.acs.startswith("SrcValid+ TransBlk- ReqRedir+")
    assert (port.vendor, port.device, port.max_read_request) == ("8086", "1a00", 512)
    assert (switch.acs, switch.verbose, switch.denied) == (None, True, False)
    assert (nic.kind, nic.speed, nic.speed_max, nic.width, nic.width_max) == ("nic", 16, 32, 8, 16)
    assert (nic.ats, nic.max_read_request) == (False, 4096)
    assert (gpu.kind, gpu.denied, gpu.ats) == ("gpu", True, None)


def test_lspci_without_domain_and_numbers() -> None:
    text = texts.LSPCI.replace("0000:", "").replace(" [0604]", "").replace(" [0302]", "")
    found = parse_lspci(text.replace(" [0207]", "").replace(" [10de:2330]", ""))
    assert [one.kind for one in found.records] == ["bridge", "bridge", "nic", "gpu"]
    assert found.records[3].bus_id == "0000:04:00.0"
    assert found.records[3].vendor is None


def test_pci_config_is_rendered_as_lspci_prints_it() -> None:
    config = bytearray(4096)
    config[6], config[0x34] = 0x10, 0x40
    config[0x40:0x44] = b"\x01\x60\x00\x00"  # power management, next at 0x60
    config[0x60:0x62] = b"\x10\x00"
    config[0x68:0x6A] = (0x5010).to_bytes(2, "little")  # 4096 bytes
    config[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")
    config[0x148:0x14C] = (0x000D | 1 << 16 | 0x200 << 20).to_bytes(4, "little")
    config[0x14E:0x150] = (0x0005).to_bytes(2, "little")
    config[0x200:0x204] = (0x000F | 1 << 16).to_bytes(4, "little")
    config[0x206:0x208] = (0x8000).to_bytes(2, "little")
    found = parse_pci_config(bytes(config))
    assert found.acs == (
        "SrcValid+ TransBlk- ReqRedir+ CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-"
    )
    assert (found.ats, found.max_read_request) == (True, 4096)
    shown = render_pci_config("0000:03:00.0", "0207", "15b3", "1021", found)
    (device,) = parse_lspci(shown).records
    assert (device.acs, device.ats, device.max_read_request) == (found.acs, True, 4096)
    # Without root rights the kernel gives 64 bytes.
    few = parse_pci_config(bytes(config[:64]))
    assert few == (None, None, None, False)
    (device,) = parse_lspci(render_pci_config("0000:03:00.0", "0207", "15b3", "1021", few)).records
    assert device.denied
    # A list of capabilities that points to itself must end.
    config[0x41], config[0x148:0x14C] = 0x40, (0x0002 | 0x148 << 20).to_bytes(4, "little")
    assert parse_pci_config(bytes(config)).acs is None


def test_limits() -> None:
    found = parse_limits(texts.LIMITS)
    assert found == {"stack": (-1, 2), "files": (1024, 3), "memlock": (8192, 4)}
    other = {name: one.value for name, one in parse_limits(texts.ULIMIT).items()}
    assert other == {"memlock": 64, "stack": -1, "files": 32768}
    assert parse_limits("locked memory(kbytes)     8192\n") == {"memlock": (8192, 1)}
    assert parse_limits("$ ulimit -l\n64\n$ echo 7\n7\n") == {"memlock": (64, 2)}


def test_kernel_texts() -> None:
    assert parse_modules(texts.LSMOD) == ["mlx5_core", "nvidia_peermem"]
    assert parse_modules(texts.PROC_MODULES) == ["nvidia"]
    assert parse_cpus(texts.LSCPU)[:6] == ("AuthenticAMD", 25, 2, 8, 192, False)
    assert parse_cpus(texts.CPUINFO)[:6] == ("GenuineIntel", 6, 2, None, None, True)
    assert parse_status(texts.STATUS) == ([0, 1, 2, 3, 8], False, True)
    assert parse_df(texts.DF, "/dev/shm") == (65536 * 1024, 65024 * 1024, 2)
    assert parse_df(texts.DF.replace("1024-blocks", "Size"), "/dev/shm") is None
    human = "Filesystem      Size  Used Avail Use% Mounted on\ntmpfs  2.0G  2.0G  0 100% /dev/shm\n"
    assert parse_df(human, "/dev/shm") == (2 << 30, 0, 2)
    assert parse_df(f"$ df -H /dev/shm\n{human}", "/dev/shm") == (2 * 10**9, 0, 3)
    assert parse_df(texts.DF.replace("65536", "9" * 18), "/dev/shm") is None
    assert parse_huge_pages(texts.MEMINFO) == 512
    assert parse_services(texts.SERVICES) == {
        "nvidia-fabricmanager": "failed",
        "opensm": "not-found",
    }
    assert parse_services("nvidia-imex.service inactive\n") == {"nvidia-imex": "inactive"}
    assert remove_ipc(parse_listed(texts.LISTED)) == (False, "/etc/systemd/logind.conf.d/50.conf:2")
    assert remove_ipc([]) == (True, "systemd-logind's default")


def test_kernel_log() -> None:
    found = parse_kernel_log(texts.DMESG)
    assert [((one.text or "")[:40], one.count) for one in found.lines] == [
        ("mlx5_core 0000:03:00.0: 63.008 Gb/s avai", 1),
        ("NVRM: Xid (PCI:0000:04:00): 74, pid=1, N", 1),
        ("mlx5_core 0000:03:00.0 eth0: Link down", 2),
    ]
    assert parse_kernel_log("dmesg: read kernel buffer failed: Operation not permitted\n").denied
    lost = "[ 8.1] NVRM: The NVIDIA GPU 0000:b3:00.0\n{0}NVRM: (PCI ID: 10de:26b5) installed in "
    lost += "this system has\n{0}NVRM: fallen off the bus and is not responding to commands.\n"
    for stamp in ("               ", "[ 8.1] "):
        (one,) = parse_kernel_log(lost.format(stamp)).lines
        assert "GPU 0000:b3:00.0 (PCI ID: 10de:26b5)" in (one.text or "")
        assert failure_kinds([one.text or ""]) == ["gpu_lost"]
    many = parse_kernel_log("".join(f"[ 1.0] pcie {number}\n" for number in range(2100)))
    assert (len(many.lines), many.left_out) == (2000, 100)


def test_nvlink_and_peers() -> None:
    name = "NVIDIA H100 80GB HBM3"
    links = {0: GpuLinks(2, 2, name), 1: GpuLinks(1, 2, name, (1,))}
    assert parse_nvlink_status(texts.NVLINK).gpus == links
    matrix = parse_p2p_matrix(decode(texts.P2P.encode()))
    assert [(one.a, one.b, one.status) for one in matrix.records] == [(0, 1, "OK"), (1, 0, "CNS")]
    assert matrix.unread == 0
    assert parse_p2p_matrix("GPU0 X OK\n").unread == 1


def test_topo_matrix() -> None:
    new = parse_topo_matrix(decode(texts.TOPO.encode()))
    cells = {(one.a, one.b): (one.kind, one.links) for one in new.cells}
    assert cells["GPU0", "GPU1"] == ("NVL", 18)
    assert cells["GPU1", "mlx5_bond_1"] == ("PXB", 0)
    assert new.cpus == {0: [0, 1, 2, 3]}
    # The matrix of PCIe alone says nothing of NVLink.
    of_pci = parse_topo_matrix("$ nvidia-smi topo -mp\n" + decode(texts.TOPO.encode()))
    assert {one.kind for one in of_pci.cells if one.b == "GPU1"} == {
        cells["mlx5_0", "GPU1"][0],
        cells["mlx5_bond_1", "GPU1"][0],
    }
    both = f"$ nvidia-smi topo -mp\n{texts.TOPO}$ nvidia-smi topo -m\n{texts.TOPO}"
    for text in (both, both.replace("-mp", "-x").replace("-m\n", "-mp\n").replace("-x", "-m")):
        assert parse_topo_matrix(text).cells == new.cells
        assert kinds_of("x.txt", text.encode()).unclear == {}
    old = parse_topo_matrix(texts.TOPO_OLD)
    assert {(one.a, one.b): one.kind for one in old.cells}["GPU0", "GPU1"] == "SYS"
    assert old.cpus[1][0] == 20
    assert (new.unread, old.unread) == (0, 0)


def test_a_damaged_topo_matrix() -> None:
    """A damaged row loses itself, a damaged header the whole table."""
    cut = parse_topo_matrix(decode(texts.TOPO.encode()).replace("NV18\t X \tSYS", "NV18\t X \tSY"))
    assert {one.a for one in cut.cells} == {"GPU0", "mlx5_0", "mlx5_bond_1"}
    assert cut.unread == 1
    rows = decode(texts.TOPO.encode()).partition("\n")[2]
    assert parse_topo_matrix(rows) == ((), {}, 1)
    assert parse_topo_matrix("Failed to initialize NVML: Unknown Error\n") == ((), {}, 0)
    # A container without CPUs of the GPU's node: the number is that of the NUMA node.
    empty = decode(texts.TOPO.encode()).replace("\t0-3\t0\t", "\t\t0\t")
    assert parse_topo_matrix(empty).cpus == {}
    rocm = (
        "==== Hops between two GPUs ====\n       GPU0  GPU1\nGPU0   0     1\nGPU1   1     0\n\n"
        "==== Link Type between two GPUs ====\n       GPU0  GPU1\nGPU0   0   XGMI\nGPU1   XGMI  0\n"
    )
    cells = parse_topo_matrix(rocm).cells
    assert cells == (("GPU0", "GPU1", "XGMI", 0), ("GPU1", "GPU0", "XGMI", 0))
    assert kinds_of("x.txt", rocm.encode()).items == ("topo",)
    one, other = "0000:0a:00.0", "0000:2b:00.0"
    rows = f"  {one} {other}\n{one} SELF XGMI\n{other} XGMI SELF\n\nNUMA BW TABLE:\n{one} N/A\n"
    amd = f"ACCESS TABLE:\n  {one} {other}\n{one} ENABLED ENABLED\n\nLINK TYPE TABLE:\n{rows}"
    assert parse_topo_matrix(amd).cells == cells
    assert "topo" in kinds_of("x.txt", amd.encode()).items


def test_imex() -> None:
    found = parse_imex(texts.IMEX)
    assert [(one.node, one.status, one.version) for one in found.records] == [
        ("192.0.2.4", "READY", "570.1.2"),
        ("192.0.2.5", "UNAVAILABLE", "0.0.0"),
    ]
    assert found.unread == 0
    other = parse_imex(texts.IMEX_JSON)
    assert [one.status for one in other.records] == ["READY"]
    assert other.unread == 1


def test_nvbandwidth() -> None:
    found = parse_copies(texts.NVBANDWIDTH)
    assert found.of_host("h2d") == {0: 55.10, 1: 12.40}
    assert found.of_host("d2h") == {0: 54.0, 1: 20.0}
    assert found.peers == [
        GpuCopy(a=0, b=1, kind="read", gb_per_s=276.0),
        GpuCopy(a=1, b=0, kind="read", gb_per_s=274.5),
        GpuCopy(a=0, b=1, kind="write", gb_per_s=271.0),
    ]


H2D = "> memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n  0   1\n0   {}   {}\n"
PEER = "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n 0 1\n 0 N/A {}\n 1 {} N/A\n"
L40S, H100 = "NVIDIA L40S", "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("text", "model", "what", "like", "normal"),
    [
        (H2D.format("25.5", "24.2"), L40S, "host to GPU", "PCIe 4.0 x16", True),
        (H2D.format("25.5", "12.2"), L40S, "host to GPU", "PCIe 4.0 x16", False),
        (H2D.format("25.5", "24.2"), "", "host to GPU", "PCIe 4.0 x16", None),
        (H2D.format("12.9", "12.2"), "", "host to GPU", "PCIe 3.0 x16", None),
        (H2D.replace("CE", "SM").format("35", "35"), H100, "by SMs", "loads", None),
        (H2D.format("26.1", "26.2"), H100, "host to GPU", "PCIe 4.0 x16", False),
        (PEER.format("26.3", "21.8"), "NVIDIA RTX A6000", "GPU to GPU", "PCIe 4.0 x16", True),
        (PEER.format("52.1", "51.8"), "NVIDIA RTX A6000", "GPU to GPU", "NVLink", True),
        (PEER.format("392", "391"), H100, "GPU to GPU", "NVLink", True),
        (PEER.format("41.2", "40.9"), H100, "GPU to GPU", "PCIe 5.0 x16", False),
        (PEER.format("41.2", "40.9"), "NVIDIA H100 PCIe", "GPU to GPU", "PCIe 5.0 x16", True),
        (PEER.format("1.2", "1.4"), L40S, "GPU to GPU", "less than", False),
        (H2D.format("12.9", "12.9"), "RTX 4070 Laptop GPU", "host to GPU", "PCIe 3.0 x16", None),
        (H2D.format("106", "106"), "NVIDIA B300", "host to GPU", "more than PCIe 5.0", None),
        ("Device=0 CANNOT Access Peer Device=1\n" + PEER.format("11", "11"), L40S,
         "GPU to GPU without P2P", "host memory", None),
    ],
)  # fmt: skip
def test_copies_beside_the_link_of_the_model(
    text: str, model: str, what: str, like: str, normal: bool | None
) -> None:
    (found,) = copy_ranges(parse_copies(text), {0: model, 1: model}, {})
    assert what in (found.what or "")
    assert like in (found.like or "")
    assert found.normal is normal


def test_pairs_without_p2p_are_told_apart_from_the_others() -> None:
    text = "Device=0 CANNOT Access Peer Device=2\n" + matrix(3, {(0, 2): 9.8}, 52.1)
    one, other = copy_ranges(parse_copies(text), dict.fromkeys(range(3), "NVIDIA RTX A6000"), {})
    assert (one.what, one.lowest_gb_per_s, one.like) == ("GPU to GPU", 52.1, "as NVLink gives")
    assert one.model == "NVIDIA RTX A6000: NVLink"
    assert (other.what, other.highest_gb_per_s) == ("GPU to GPU without P2P", 9.8)
    assert other.like == "through host memory"


def test_pairs_slower_with_p2p_than_without_say_nothing_of_a_link() -> None:
    _, *rows = matrix(3, {(0, 2): 26.1}, 9.9).split("\n")
    title = "Unidirectional P2P={} Bandwidth (P2P Writes) Matrix (GB/s)\n"
    text = title.format("Disabled") + matrix(3, {}, 22).split("\n", 1)[1]
    text += title.format("Enabled") + "\n".join(rows)
    names = dict.fromkeys(range(3), "NVIDIA RTX A6000")
    fine, slower = copy_ranges(parse_copies(text), names, {})
    assert (fine.lowest_gb_per_s, fine.highest_gb_per_s, fine.normal) == (26.1, 26.1, True)
    assert (slower.highest_gb_per_s, slower.normal, slower.slow) == (9.9, None, None)
    assert (slower.what, slower.like) == ("GPU to GPU with P2P", "less than without P2P")
    (alike,) = copy_ranges(parse_copies(text.replace("22.", "10.").replace("26.", "9.")), names, {})
    assert (alike.what, alike.normal) == ("GPU to GPU", False)


def matrix(count: int, rates: dict[tuple[int, int], float], other: float) -> str:
    """Return copies between `count` GPUs: `rates` by pair, `other` of all other pairs."""
    rows = [
        " ".join(
            "N/A" if a == b else f"{rates.get((min(a, b), max(a, b)), other):.2f}"
            for b in range(count)
        )
        for a in range(count)
    ]
    lines = [f"{a} {row}" for a, row in enumerate(rows)]
    head = "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)"
    return "\n".join([head, " ".join(map(str, range(count))), *lines, ""])


PAIRS = [(a, b) for b in range(4) for a in range(b)]
BRIDGES = {(0, 1): 290.0, (2, 3): 290.0}
CUBE = dict.fromkeys(((0, 5), (0, 6), (0, 7), (1, 4), (1, 6), (1, 7)), 9.0)


@pytest.mark.parametrize(
    ("text", "links", "slow"),
    [
        (matrix(4, {(0, 3): 24.0}, 390), {}, ["GPUs 0 and 3 at 24 GB/s"]),
        (
            matrix(4, {(0, 3): 20.0, (1, 3): 21.0, (2, 3): 22.0}, 230),
            {},
            ["GPUs 0 and 3 at 20 GB/s", "GPUs 1 and 3 at 21 GB/s", "GPUs 2 and 3 at 22 GB/s"],
        ),
        (
            matrix(4, {(0, 3): 139.0, (1, 3): 139.0, (2, 3): 140.0}, 277),
            {},
            ["GPUs 0 and 3 at 139 GB/s", "GPUs 1 and 3 at 139 GB/s", "GPUs 2 and 3 at 140 GB/s"],
        ),
        # Two links and one, in a ring of GPUs.
        (matrix(4, {(0, 1): 49.0, (0, 2): 49.0, (1, 3): 49.0}, 97), {}, None),
        (matrix(4, {(0, 3): 2.0}, 25), {}, ["GPUs 0 and 3 at 2 GB/s"]),
        (PEER.format("24.1", "24.9"), {(0, 1): 18}, ["GPUs 0 and 1 at 24.1 GB/s (NV18)"]),
        (PEER.format("24.1", "24.9"), {}, None),
        (PEER.format("52", "52"), {(0, 1): 4}, None),
        (matrix(4, BRIDGES, 24), dict.fromkeys(PAIRS, 0) | {(0, 1): 12, (2, 3): 12}, None),
        # Two GPUs of four: their numbers may be others.
        (PEER.format("24", "24"), dict.fromkeys(PAIRS, 0) | {(0, 1): 12, (2, 3): 12}, None),
        (matrix(4, {(0, 1): 24.0, (2, 3): 24.0}, 18), {}, None),
        (matrix(8, CUBE, 24), {}, None),
        ("Device=0 CANNOT Access Peer Device=3\n" + matrix(4, {(0, 3): 9.0}, 300), {}, None),
    ],
)
def test_pairs_far_below_the_others_or_their_nvlinks(
    text: str, links: dict[tuple[int, int], int], slow: list[str] | None
) -> None:
    found, *_ = copy_ranges(parse_copies(text), {}, links)
    assert (found.slow, found.normal) == (slow, None if slow is None else False)


def test_names_of_gpus_beside_copies() -> None:
    lines = "Device 0: NVIDIA L40S (00000000:4b:00)\nDevice: 1, NVIDIA L4, pciBusID: 1, x: 0\n"
    assert parse_copies(lines).names == {0: "NVIDIA L40S", 1: "NVIDIA L4"}


def test_both_directions_at_once_count_by_halves() -> None:
    table = "Bidirectional P2P={} Bandwidth Matrix (GB/s)\n D\\D 0 1\n 0 9.0 {}\n 1 {} 9.0\n"
    copies = parse_copies(table.format("Disabled", 20, 20) + table.format("Enabled", 50, 51))
    assert [(one.kind, one.gb_per_s) for one in copies.peers] == [("p2p", 25.0), ("p2p", 25.5)]
    assert [one.without_gb_per_s for one in copies.tests] == [10.0, 10.0]
    (found,) = copy_ranges(copies, {0: L40S, 1: L40S}, {})
    assert (found.what, found.normal) == ("GPU to GPU, each way of both at once", True)


def test_nvbandwidth_has_a_bound() -> None:
    columns = " ".join(map(str, range(100)))
    rows = "".join(f"{row} {'1.00 ' * 100}\n" for row in range(100))
    text = (
        f"Running device_to_device_memcpy_read_ce.\n {columns}\n{rows}99999999999 {'1.00 ' * 100}"
    )
    assert len(parse_copies(text).peers) == 4096


def test_rdma_ports() -> None:
    first, second = parse_rdma_ports(texts.IBSTAT).ports
    assert (first.state, first.phys_state, first.rate_gbit_per_s) == ("ACTIVE", "LinkUp", 400)
    assert (first.sm_lid, first.firmware) == (1, "28.39.1002")
    assert (second.name, second.state, second.sm_lid) == ("mlx5_1", "INIT", 0)
    flat = "\n".join(line.strip() for line in texts.IBSTAT.split("\n"))
    assert parse_rdma_ports(flat).ports == [first, second]
    (status,) = parse_rdma_ports(texts.IBSTATUS).ports
    assert (status.state, status.rate_gbit_per_s, status.phys_state) == ("ACTIVE", 400, "LinkUp")
    (info,) = parse_rdma_ports(texts.DEVINFO).ports
    assert (info.mtu, info.mtu_max, info.state) == (1024, 4096, "ACTIVE")
    assert (info.phys_state, info.firmware) == ("LinkUp", "28.39.1002")
    (link,) = parse_rdma_ports(texts.RDMA_LINK).ports
    assert (link.name, link.port, link.state) == ("mlx5_2", 1, "DOWN")
    assert (link.phys_state, link.link_layer) == ("Polling", "Ethernet")
    (link,) = parse_rdma_ports("link a/1 subnet_prefix fe80:: lid 3 sm_lid 1 state ACTIVE\n").ports
    assert (link.link_layer, link.lid, link.sm_lid) == ("InfiniBand", 3, 1)


def test_gids() -> None:
    local, mapped = parse_show_gids(texts.GIDS).records
    assert (local.link_local, local.type) == (True, "RoCE v1")
    assert (mapped.link_local, mapped.index) == (False, 3)
    assert parse_show_gids(texts.GIDS).unread == 0
    local, routed, other = parse_devinfo_gids(
        "hca_id: mlx5_0\n\tport:\t1\n\t\tGID[  1]:\t\tfe80::ac0:ebff:fe11:7aa, RoCE v2\n"
        "\t\tGID[  3]:\t\t::ffff:10.99.12.6, RoCE v2\n\t\tGID[  4]:\t\t::, RoCE v1\n"
        "hca_id: mlx5_1\n\tport:\t2\n"
        "\t\tGID[  0]:\t\tfe80:0000:0000:0000:0ac0:ebff:fe11:07aa, RoCE v1\n"
    ).records
    assert (local.hca, local.index, local.link_local) == ("mlx5_0", 1, True)
    assert routed.gid == "0000:0000:0000:0000:0000:ffff:0a63:0c06"
    assert (other.hca, other.port, other.type) == ("mlx5_1", 2, "RoCE v1")
    part = "  GID[  1]:\t\tfe80::1, RoCE v2\n"
    assert parse_devinfo_gids(part).records == []
    part += "  GID[  3]:\t\t::ffff:10.9.2.6, RoCE v2\n"
    assert [one.link_local for one in parse_devinfo_gids(part).records] == [True, False]


def test_a_filtered_ethtool_has_the_interface_of_its_command() -> None:
    found = parse_ethtool("$ ethtool enp1s0f1 | grep Speed\n        Speed: 200000Mb/s\n")
    assert found.interfaces["enp1s0f1"].speed_mbit_per_s == 200000


def test_counters() -> None:
    found = parse_ethtool(texts.ETHTOOL)
    (interface,) = found.interfaces.values()
    assert (interface.driver, interface.bus_id) == ("mlx5_core", "0000:03:00.0")
    # Counters of single queues are left out: their sum is listed, too.
    assert found.readings == [{("eth0", "rx_out_of_buffer"): 7, ("eth0", "rx_prio3_pause"): 42}]
    (statistic,) = parse_rdma_counters(texts.RDMA_STATISTIC).readings
    assert [(name, value) for (_, _, name), value in statistic.items()] == [
        ("out_of_buffer", 2),
        ("packet_seq_err", 9),
        ("np_cnp_sent", 0),
    ]
    assert parse_rdma_counters(texts.PERFQUERY).readings == [
        {("mlx5_0", 1, "symbol_error"): 12, ("mlx5_0", 1, "link_downed"): 1}
    ]


def test_interfaces() -> None:
    text = "2: eth0: <UP> mtu 9000 qdisc mq state UP\n    inet 192.0.2.4/24\n3: br0@if7: <UP>\n"
    assert parse_interfaces(text) == [
        NodeNic(name="eth0", mtu=9000, state="up", networks=["192.0.2.0/24"]),
        NodeNic(name="br0", networks=[]),
    ]
    assert parse_interfaces(texts.ADDRESSES) == []
    brief = "lo     UNKNOWN   127.0.0.1/8\neth1@if9     UP    192.0.2.4/24\n"
    assert parse_interfaces(brief) == [
        NodeNic(name="lo", state="unknown", networks=["127.0.0.0/8"]),
        NodeNic(name="eth1", state="up", networks=[]),
    ]
    assert parse_interfaces(brief.replace("@if9", ""))[1].networks == ["192.0.2.0/24"]
    several = "e2 UP 192.0.2.4/24 192.0.2.5/24 10.1.2.3/16 fe80::1/64\n"
    several += "wg0 UNKNOWN 10.9.0.1 peer 10.9.0.2/32\n"
    shown = [one.networks for one in parse_interfaces(several)]
    assert shown == [["192.0.2.0/24", "10.1.0.0/16"], []]
    old = "eth2   Link encap:Ethernet\n   inet addr:10.1.2.3  Bcast:0  Mask:255.255.0.0\n"
    assert [one.networks for one in parse_interfaces(old)] == [["10.1.0.0/16"]]


def test_nccl_log() -> None:
    found = parse_nccl_lines(texts.LOG)
    assert [(one.text, one.count) for one in found.warnings] == [("NET/IB : made up trouble", 2)]
    assert (found.version, found.net, found.bootstrap) == ("2.27.5", "IB", "docker0")
    assert (found.net_devices, found.relaxed_ordering) == (["mlx5_0:1", "mlx5_1:1"], True)
    assert (found.ranks, found.nodes, found.coll_channels, found.nvls_channels) == (16, 2, 2, 0)
    assert found.vias == {("receive", "NET/IB/0/GDRDMA"): 2, ("send", "P2P/CUMEM"): 1}
    (graph,) = found.graphs
    assert (graph.pattern, graph.channels, graph.gb_per_s_intra) == (4, 2, 12.0)
    assert found.settings == [("NCCL_ALGO", "Ring", 3)]
    assert not any((message.text or "").startswith("Channel") for message in found.messages)


def test_names_in_an_nccl_log() -> None:
    """2.30 writes rail and plane of a NIC; plugins have names with blanks."""
    lead = "h1:100:101 [0] NCCL INFO "
    rails = "NET/IB : Using [0]mlx5_0:1:0:1/IB [1]mlx5_1:1::1/IB ; OOB eth0:192.0.2.4<0>"
    found = parse_nccl_lines(f"{lead}{rails}\n{lead}Using network IB\n")
    assert (found.net_devices, found.relaxed_ordering) == (["mlx5_0:1", "mlx5_1:1"], False)
    efa = "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/AWS Libfabric/0/GDRDMA"
    found = parse_nccl_lines(f"{lead}Using network AWS Libfabric\n{lead}{efa}\n")
    assert found.net == "AWS Libfabric"
    assert found.vias == {("receive", "NET/AWS Libfabric/0/GDRDMA"): 1}
    fast = "NET/FastSocket : Using [0]ens12:192.0.2.4<0> [1]ens13:192.0.2.5<0>"
    found = parse_nccl_lines(f"{lead}{fast}\n{lead}Using network FastSocket\n")
    assert found.net_devices == ["ens12", "ens13"]


def test_job_settings() -> None:
    def kept(name: str) -> bool:
        return name.startswith(("NCCL_", "LD_"))

    assert parse_job_settings(texts.JOB, kept) == [
        ("NCCL_DEBUG", "INFO", 2),
        ("NCCL_PROTO", "Simple", 4),
        ("LD_LIBRARY_PATH", "/opt/x:$LD_LIBRARY_PATH", 4),
        ("NCCL_IB_HCA", "mlx5_0,mlx5_1", 5),
        ("NCCL_NTHREADS", "256", 5),
    ]
    assert parse_job_settings(texts.MANIFEST, kept) == [
        ("NCCL_SOCKET_IFNAME", "eth0", 5),
        ("NCCL_NET", "Socket", 10),
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("export NCCL_IB_HCA=mlx5_0", "NCCL_IB_HCA=mlx5_0"),
        ("u@h1:~$ NCCL_NET=IB NCCL_PXN_DISABLE=1 python a.py", "NCCL_NET=IB NCCL_PXN_DISABLE=1"),
        ("mpirun -np 16 -x NCCL_ALGO=Ring -x PATH ./a", "NCCL_ALGO=Ring"),
        ("docker run -e NCCL_SHM_DISABLE=1 image", "NCCL_SHM_DISABLE=1"),
        ("- NCCL_SOCKET_IFNAME=eth0", "NCCL_SOCKET_IFNAME=eth0"),
        ("Launch: NCCL_NET=IB torchrun a.py", "NCCL_NET=IB"),
        ("os.environ['NCCL_NET'] = 'IB'", "NCCL_NET=IB"),
        ('"NCCL_PROTO": "simple",', "NCCL_PROTO=simple"),
        ("ENV NCCL_IB_DISABLE 1", "NCCL_IB_DISABLE=1"),
        ("srun --export=ALL,NCCL_NET=IB,NCCL_ALGO=Ring ./a", "NCCL_NET=IB NCCL_ALGO=Ring"),
        ("I set NCCL_P2P_DISABLE=1 but it still hangs", ""),
        ("NCCL_P2P_DISABLE=1 works.", ""),
        ("Solution: NCCL_P2P_DISABLE=1", ""),
        ("# export NCCL_P2P_DISABLE=1", ""),
        ("NCCL_ALGO=Ring: 40 GB/s, NCCL_ALGO=Tree: 50 GB/s", ""),
        ("Error: x (run with NCCL_DEBUG=INFO for details)", ""),
        ("h1:1:2 [0] x.cc:1 NCCL WARN Set NCCL_MNNVL_ENABLE=0 to ignore this issue.", ""),
    ],
)
def test_settings_of_commands_in_a_post(line: str, found: str) -> None:
    lines = parse_posted_settings(f"Hi\n{line}\n", lambda name: name.startswith("NCCL_"))
    assert " ".join(f"{one.name}={one.value}" for one in lines) == found
    assert all(one.line == 2 for one in lines)


def test_perftest_and_rail_pings() -> None:
    (run,) = parse_perftest(texts.PERFTEST).records
    head, table = texts.PERFTEST.split(" #bytes", 1)
    with_mtu = parse_perftest(f"{head} Mtu             : 1024[B]\n #bytes{table}").records
    assert [one.mtu for one in (run, *with_mtu)] == [None, 1024]
    assert (run.hca, run.peer, run.gbit_per_s, run.gpu) == ("mlx5_0", "h2", 195.5, False)
    qps = f"{head} Number of qps   : 4\t\tTransport type : IB\n #bytes{table}"
    three = qps + qps.replace("BW Test", "Bidirectional BW Test") + texts.PERFTEST
    assert [one.qps for one in parse_perftest(three).records] == [4, None, None]
    old = texts.PERFTEST.replace("Gb/sec", "MB/sec")
    assert parse_perftest(old).records[0].gbit_per_s == pytest.approx(195.5 * 8 * 1.048576 / 1000)
    pings = parse_rail_pings(texts.PINGS).records
    reached = [(one.from_rail, one.to_rail, one.reached) for one in pings]
    assert reached == [(0, 0, True), (0, 1, False)]


def test_plugins() -> None:
    (plugin,) = parse_plugins(texts.PLUGINS).records
    assert plugin.path == "/opt/made up/libnccl-net-ofi.so"
    # Undefined symbols are not listed.
    assert plugin.tuner_symbols == ["ncclTunerPlugin_v3"]


def test_tree() -> None:
    tree = parse_tree(texts.TREE)
    assert tree.get("/sys/bus/pci/devices/0000:00:01.0/class") == "0x060400"
    assert tree.get("/sys/bus/pci/devices/0000:03:00.0/max_link_speed") == "16.0 GT/s PCIe"
    gid = tree.get("/sys/class/infiniband/mlx5_0/ports/1/gids/3")
    assert gid == "fe80:0000:0000:0000:0000:0000:0000:0001"
    assert tree.get("/sys/class/net/br0/uevent") == "DEVTYPE=bridge\nINTERFACE=br0"
    assert tree.link("/sys/bus/pci/devices/0000:03:00.0") == "0000:03:00.0"
    assert tree.get("/sys/class/net/eth0/device/infiniband/mlx5_0") == ""
    assert tree.unread == 0


@pytest.mark.parametrize(
    ("text", "number"),
    [("16x", 16), ("0x1f", 31), ("-1", -1), ("N/A", None), ("", None), (None, None)],
)
def test_whole_numbers(text: str | None, number: int | None) -> None:
    assert whole(text) == number


def test_numbers_bus_ids_and_encodings() -> None:
    assert real("26.562 GB/s") == 26.562
    assert bus_id("00000000:3B:00.0") == "0000:3b:00.0"
    assert bus_id("10000:3b:00.0") == "10000:3b:00.0"
    assert bus_id("3b:00.0 PCI bridge") == "0000:3b:00.0"
    assert bus_id("eth0") is None
    assert decode("ä\r\nb".encode("utf-16")) == "ä\nb"
    assert decode(b"\xff\x00a\x1b[4mb") == "�ab"
