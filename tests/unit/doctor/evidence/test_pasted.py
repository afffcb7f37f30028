# SPDX-License-Identifier: Apache-2.0
"""Outputs that people paste in place of a tool's whole output."""

from nccltune.doctor.evidence.kinds import kinds_of
from nccltune.doctor.evidence.parsers.kernel_log import failure_kinds
from nccltune.doctor.evidence.parsers.pasted import parse_acs_lines, parse_peer_test
from nccltune.doctor.evidence.parsers.rdma_ports import parse_rdma_ports
from nccltune.doctor.facts.gpu import PeerTest

ACS = "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir{0} CmpltRedir{0} UpstreamFwd{0}\n"
P2P = """\
[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
P2P Connectivity Matrix
     D\\D     0     1
     0\t     1     1
     1\t     1     1
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 800.51  21.48
     1  21.59 802.05
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 800.51   2.11
     1  26.10 802.05
Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 800.51   9.99
     1   9.99 802.05
"""


def test_acs_lines_without_their_devices() -> None:
    off = ACS.replace("SrcValid+", "SrcValid-").format("-")
    found = parse_acs_lines(ACS.format("+") * 2 + off)
    assert [(one.count, one.redirects) for one in found.lines] == [(2, True), (1, False)]
    assert not found.devices
    assert parse_acs_lines("c0:01.1 PCI bridge: x\n" + ACS.format("+")).devices
    assert kinds_of("x.txt", ACS.format("+").encode()).items == ("acs",)


def test_bandwidth_without_and_with_p2p() -> None:
    assert parse_peer_test(P2P) == [
        PeerTest(a=0, b=1, without_gb_per_s=21.48, with_gb_per_s=2.11),
        PeerTest(a=1, b=0, without_gb_per_s=21.59, with_gb_per_s=26.1),
    ]
    assert parse_peer_test(P2P.partition("Unidirectional P2P=Enabled")[0]) == []
    assert kinds_of("x.txt", P2P.encode()).items == ("p2p-test",)


def test_ports_of_ibdev2netdev() -> None:
    text = "mlx5_0 port 1 ==> ens1np0 (Up)\n0000:03:00.1 mlx5_1 port 1 ==> ens2np0 (Down)\n"
    found = parse_rdma_ports(text)
    assert [(one.name, one.state) for one in found.ports] == [
        ("mlx5_0", "ACTIVE"),
        ("mlx5_1", "DOWN"),
    ]
    assert found.unread == 0
    assert kinds_of("x.txt", text.encode()).items == ("rdma-link",)


def test_faults_of_an_iommu() -> None:
    lines = [
        "nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x002a address=0x47ff]",
        "DMAR: [DMA Write NO_PASID] Request device [17:00.0] fault addr 0x2bf [fault reason 0x05]",
        "AMD-Vi: Interrupt remapping enabled",
        "DMAR: Host address width 46",
    ]
    assert failure_kinds(lines) == ["iommu", "iommu", None, None]
