# SPDX-License-Identifier: Apache-2.0
"""Messages of NCCL's log, settings that ranks do not share, and RAS diagnostics."""

from typing import get_args

import pytest

from nccltune.formats.nccl_log.diagnostics import Diagnostics, read_diagnostics, remarks
from nccltune.formats.nccl_log.graph import (
    ChannelCounts,
    GraphFallback,
    GraphOrder,
    LoggedGraph,
    LoggedPath,
    NodePaths,
    TreeLine,
)
from nccltune.formats.nccl_log.lines import find_log_line
from nccltune.formats.nccl_log.messages import (
    CommSetting,
    Communicator,
    Driver,
    LoadedRules,
    Message,
    Network,
    RanCall,
    Setting,
    TunerPlugin,
    Version,
    read_message,
    without_count,
)
from nccltune.formats.nccl_log.shared_settings import shared_settings
from nccltune.formats.nccl_log.transports import (
    Bootstrap,
    Connection,
    Multicast,
    Nic,
    Nics,
    P2pOff,
    PxnOff,
)
from nccltune.model.choice import Algorithm, Choice, Protocol
from tests.unit.doctor.evidence.test_nccl_init import info, init

TREE_LL = Choice(Algorithm.TREE, Protocol.LL)
CASES = (
    ("NCCL version 2.28.9+cuda13.0", Version("2.28.9")),
    ("NCCL version 21.0.3", Version("2.10.3")),
    ("cudaDriverVersion 13000", Driver("13000")),
    ("Using network AWS Libfabric", Network("AWS Libfabric")),
    ("TUNER/Plugin: Using tuner plugin nccltune", TunerPlugin("nccltune")),
    ("NCCL_ALGO set by environment to ring.", Setting("NCCL_ALGO", "ring", "environment")),
    (
        "NCCL_NET set by environment to IB\x1b[32m [repeated 6x across cluster]\x1b[0m",
        Setting("NCCL_NET", "IB", "environment"),
    ),
    ("NCCL_ALGO set by env plugin to ring.", Setting("NCCL_ALGO", "ring", "env plugin")),
    ("Comm config CTA policy flags set to 2", CommSetting("CTA policy flags", "2")),
    (
        "TUNER/nccltune: /etc/a b.conf (content 0b51d5cd9d5cfe7c): 1 of 1 rule applies to 1 node, "
        "8 ranks; interface v5, NCCL 2.28.9",
        LoadedRules("/etc/a b.conf", "0b51d5cd9d5cfe7c", 1, 1, 1, 8),
    ),
    (
        "comm 0x5 rank 3 nRanks 16 nNodes 2 localRanks 8 localRank 3 MNNVL 0",
        Communicator(16, 2, False, 3),
    ),
    (
        "comm 0x5 rank 3 nranks 16 cudaDev 3 busId 1b000 - Destroy COMPLETE",
        Communicator(16, None, True, 3),
    ),
    (
        "AllReduce: 4096 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}",
        RanCall("allreduce", 4096, True, Choice(Algorithm.TREE, Protocol.LL, 2)),
    ),
    (
        "AllReduce: 4096 Bytes -> Algo 0 proto 0 time 12.5",
        RanCall("allreduce", 4096, False, TREE_LL),
    ),
    ("4096 Bytes -> Algo 0 proto 0 time 12.5", RanCall(None, 4096, False, TREE_LL)),
    (
        "AllGather [Symmetric]: 4096 Bytes -> Kernel AllGather_LL",
        RanCall("allgather", 4096, True, "symmetric kernel"),
    ),
    ("Bootstrap: Using eth0:192.0.2.2<0>", Bootstrap("eth0")),
    (
        "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, "
        "32 p2p channels per peer",
        ChannelCounts(24, 16, 32, 32, 24),
    ),
    ("2 coll channels, 2 p2p channels, 1 p2p channels per peer", ChannelCounts(2, None, 2, 1)),
    (
        "Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/2(1)/GDRDMA",
        Connection(
            channel=1,
            source=0,
            target=8,
            transport="NET",
            how="IB/2(1)/GDRDMA",
            way="send",
            network="IB",
            device=2,
            gdr=True,
            proxy=1,
        ),
    ),
    ("Could not find a path for pattern 4, falling back to simple order", GraphFallback(4)),
    (
        "Pattern 4, crossNic 0, nChannels 2, bw 12.000000/24.000000, type NVL/PIX, sameChannels 1",
        LoggedGraph(
            pattern=4,
            cross_nic=0,
            channels=2,
            gb_per_s_intra=12.0,
            gb_per_s_inter=24.0,
            type_intra="NVL",
            type_inter="PIX",
            same_channels=True,
        ),
    ),
    (" 0 : NET/0-0 GPU/0-60 NET/0-0", GraphOrder(("NET/0-0", "GPU/0-60", "NET/0-0"))),
    (
        "GPU/41000 :GPU/41000 (0/5000.000000/LOC) ",
        NodePaths(
            (
                LoggedPath(
                    source="GPU/41000", target="GPU/41000", hops=0, gb_per_s=5000.0, kind="LOC"
                ),
            )
        ),
    ),
    (
        "=== System : maxBw 24.0 totalBw 48.0 ===",
        TreeLine(part="start", gb_per_s=24.0, total_gb_per_s=48.0),
    ),
    ("CPU/0-0 (1/1/2)", TreeLine(part="root", node="CPU/0-0")),
    (
        "  + PCI[24.0] - GPU/0-60 (0)",
        TreeLine(part="link", node="GPU/0-60", indent=2, kind="PCI", gb_per_s=24.0, about="0"),
    ),
    ("==========================================", TreeLine(part="end")),
    (
        "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:192.0.2.7<0>",
        Nics(
            network="IB",
            nics=(Nic(network="IB", name="mlx5_0", port=1, link="IB"),),
            relaxed_ordering=True,
        ),
    ),
    ("NVLS multicast support is not available on dev 0", Multicast(False)),
    ("P2P is disabled between NVLINK connected GPUs 1 and 0", P2pOff(1, 0, True)),
    ("PXN Disabled as plugin is v4", PxnOff()),
)


@pytest.mark.parametrize(("message", "stated"), CASES, ids=[message[:30] for message, _ in CASES])
def test_messages_are_parsed(message: str, stated: Message) -> None:
    assert read_message(message) == stated


def test_every_kind_of_message_has_a_case() -> None:
    assert {type(stated) for _, stated in CASES} == set(get_args(Message))


@pytest.mark.parametrize(
    "message",
    [
        "",
        "Connected all rings",
        "AllReduce: opCount 1 sendbuff 0x7 recvbuff 0x8 count 1024",
        "AllReduce: 4096 Bytes -> Algo 99 proto 0 time 1.0",
        "Ring 00 : 3 -> 0 -> 1",
        "Channel 00/02 : 0 1 2 3",
        "Trees [0] 1/-1/-1->0->-1",
        "NET/IB : No device found.",
        "The application was compiled with NCCL version 2.28.9, but is running with 2.29.2",
        "GPU Direct RDMA Disabled for GPU 1b000 / HCA 1 (distance 8 > 5)",
        f"Could not find a path for pattern {'9' * 5000}, falling back to simple order",
        "NCCL_ALGO set by " + "a " * 2000,
    ],
)
def test_what_nobody_reads_states_nothing(message: str) -> None:
    assert read_message(message) is None


def test_the_blanks_of_a_long_message_are_searched_once() -> None:
    # Quadratic time would run into the timeout of the suite.
    message = " " * 500_000 + "[repeated x"
    assert without_count(message) == message


@pytest.mark.parametrize(
    ("before", "host"),
    [
        ("2026-08-31 12:27:50 ", "n1"),
        ("12:27:50.123 ", "n1"),
        ("[2025-10-23 11:02:07] ", "n1"),
        ("[1,0]<stdout>:", "n1"),
        ("", "n1"),
    ],
)
def test_a_time_before_a_line_is_no_host(before: str, host: str) -> None:
    found = find_log_line(f"{before}n1:956:1021 [0] NCCL INFO Connected all rings")
    assert found is not None
    assert (found["host"], found["pid"]) == (host, "956")


START, NETWORK = "Bootstrap : Using eth0:10.0.0.1<0>", "Using network IB"


def _rank(number: int, *settings: str, comm: str = "commId 0xabc", ranks: int = 4) -> str:
    named = [f"{one.replace('=', ' set by environment to ')}." for one in settings]
    words = "".join(info(number, word) for word in (START, *named, NETWORK))
    return words + init(number, "COMPLETE", comm, ranks)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            _rank(0, "NCCL_ALGO=Ring") + _rank(1, "NCCL_ALGO=Ring") + _rank(2) + _rank(3),
            ["NCCL_ALGO Ring: ranks 0, 1 (h0); not set: ranks 2, 3 (h1)"],
        ),
        (
            _rank(0, "NCCL_NET=IB", "NCCL_SHM_DISABLE=1") + _rank(1, "NCCL_NET=Socket"),
            ["NCCL_NET IB: rank 0 (h0); Socket: rank 1 (h0)"],
        ),
        (
            info(0, "NCCL version 2.27.6+cuda12.9")
            + info(1, "NCCL version 2.28.3+cuda12.9")
            + _rank(0)
            + _rank(1),
            ["NCCL version 2.27.6: rank 0 (h0); 2.28.3: rank 1 (h0)"],
        ),
        # NCCL does not compare the version of CUDA.
        (
            info(0, "NCCL version 2.27.6+cuda12.2")
            + info(1, "NCCL version 2.27.6+cuda12.9")
            + _rank(0)
            + _rank(1),
            [],
        ),
        (
            _rank(0).replace(NETWORK, "Using network IB")
            + _rank(2).replace(NETWORK, "Using network AWS Libfabric"),
            ["Using network IB: rank 0 (h0); AWS Libfabric: rank 2 (h1)"],
        ),
        # An interface may differ, and a setting that is logged where it is needed be missing.
        (_rank(0, "NCCL_SOCKET_IFNAME=a", "NCCL_SHM_DISABLE=1") + _rank(2), []),
        # Ray leaves out equal lines.
        (
            _rank(0, "NCCL_ALGO=Ring").replace("Ring.", "Ring [repeated 2x across cluster]")
            + _rank(1),
            [],
        ),
        (_rank(0, "NCCL_ALGO=Ring") + ".\n.\n" + _rank(1), []),
        (_rank(0, "NCCL_ALGO=Ring") + "。。。\n" + _rank(1), []),
        # Another communicator is another run.
        (_rank(0, "NCCL_ALGO=Ring") + _rank(1, "NCCL_ALGO=Tree", comm="commId 0xd"), None),
        (_rank(0, "NCCL_ALGO=Ring"), None),
        # Lines of a rank were left out.
        (_rank(0, "NCCL_ALGO=Ring") + init(1, "COMPLETE"), []),
        (_rank(0, "NCCL_ALGO=Ring") + info(1, NETWORK) + init(1, "COMPLETE"), []),
        # NCCL before 2.19 logs no commId.
        (
            _rank(0, "NCCL_ALGO=Ring", comm="", ranks=2) + _rank(1, comm="", ranks=2),
            ["NCCL_ALGO Ring: rank 0 (h0); not set: rank 1 (h0)"],
        ),
        (_rank(0, "NCCL_ALGO=Ring", comm="") + _rank(1, comm=""), None),
        # Two communicators that the log does not tell apart.
        (
            _rank(0, "NCCL_ALGO=Ring")
            + _rank(1, "NCCL_ALGO=Tree")
            + _rank(1, "NCCL_ALGO=Tree").replace("h0:", "h9:"),
            None,
        ),
    ],
)
def test_settings_that_ranks_do_not_share(text: str, said: list[str] | None) -> None:
    found = shared_settings(text).apart()
    assert (found and [f"{one.name} {one.said}" for one in found]) == said


def _printed(rank: int, version: str, before: int | None = None) -> str:
    """Lines of a rank with a version that names no process between them."""
    return (
        info(rank if before is None else before, START)
        + f"NCCL version {version}\n"
        + info(rank, NETWORK)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_printed(0, "2.20.5+cuda12.4") + _printed(2, "2.19.3+cuda12.3"),
         ["2.20.5: h0", "2.19.3: h1"]),
        (_printed(0, "2.20.5+cuda12.4") + _printed(2, "2.20.5+cuda12.2"), []),
        (_printed(0, "2.20.5+cuda12.4"), None),
        # One host with two versions was used twice.
        (_printed(0, "2.20.5") + _printed(1, "2.19.3") + _printed(2, "2.19.3"), None),
        # Lines of two processes: the version is of either.
        (_printed(0, "2.20.5") + _printed(2, "2.19.3", before=0), None),
        # Communicators say who belongs together.
        (_printed(0, "2.20.5") + _printed(2, "2.19.3") + _rank(0, ranks=1), None),
    ],
)  # fmt: skip
def test_versions_of_hosts(text: str, said: list[str] | None) -> None:
    assert shared_settings(text).host_versions() == said


def test_nodes_of_a_whole_communicator() -> None:
    whole = "".join(_rank(number, ranks=4) for number in range(4))
    assert shared_settings(whole).nodes() == 2
    assert shared_settings(_rank(0, ranks=4) + _rank(2, ranks=4)).nodes() == 0


RAS = """\
alpha:12 NCCL DIAG === RAS Diagnostics ===
alpha:12 NCCL DIAG [OK]   GPU inventory: 4x H200 per node consistent across 8 ranks in comm 0x1a
alpha:12 NCCL DIAG [OK]   CUDA driver version: 13000 consistent across 8 ranks in comm 0x1a
alpha:12 NCCL DIAG [INFO] NVLink: inactive link(s) on rank(s) {3} across 8 ranks in comm 0x1a
alpha:12 NCCL DIAG [INFO] NCCL environment: mismatch across 8 ranks in comm 0x1a for NCCL_ALGO
alpha:12 NCCL DIAG [INFO] NCCL environment: NCCL_ALGO=(unset) on rank(s) {0,1,2,3}
alpha:12 NCCL DIAG [INFO] NCCL environment: NCCL_ALGO=Ring on rank(s) {4,5,6,7}
alpha:12 NCCL DIAG [INFO] NCCL environment: NCCL_COMM_ID=somebody:77 on rank(s) {0,1,2,...} (N=8)
alpha:12 NCCL DIAG RAS diagnostics completed in 12.3 ms across 8 ranks
"""


def read(text: str) -> list[Diagnostics]:
    return read_diagnostics(text.splitlines())


def test_a_ras_report_by_check() -> None:
    (report,) = read(RAS)
    first, *_ = report.results
    assert (first.check, first.ok) == ("GPU inventory", True)
    assert [item.check for item in report.remarks] == ["NVLink"] + 4 * ["NCCL environment"]
    assert "NCCL_ALGO=Ring on rank(s) {4,5,6,7}" in report.remarks[3].text
    assert "somebody" not in report.remarks[4].text
    # A link that is down is a hardware problem; a difference is not.
    assert list(remarks([report]).values()) == [True] + 4 * [False]


def test_prefixes_and_lines_of_a_launcher_are_ignored() -> None:
    tagged = "".join(f"[1,0]<stdout>:{line}\nsomething\n" for line in RAS.splitlines())
    assert [item.text for item in read(tagged)[0].results] == [
        item.text for item in read(RAS)[0].results
    ]


def test_peer_accesses_of_2_31_and_2_32() -> None:
    for text in (
        "p2p: 52/56 directed GPU P2P edges verified",
        "p2p: only 52/56 GPU-to-GPU peer accesses passed verification",
    ):
        reports = read(f"NCCL DIAG === NCCL Diagnostics ===\nNCCL DIAG [INFO] {text}")
        assert remarks(reports) == {text: True}


def test_a_failed_pair_names_gpus_path_and_advice() -> None:
    (report,) = read(
        "alpha:12 NCCL DIAG === NCCL Diagnostics ===\n"
        "alpha:12 NCCL DIAG [INFO] p2p: write mismatch srcRank=1 srcCudaDev=1 srcNvmlDev=5 "
        "dstRank=2 dstCudaDev=2 dstNvmlDev=6 path=PIX handle=LEGACY_CUDA_IPC expected=0x01 "
        "got=0x02 verify=0x02; check the affected pair with 'nvidia-smi topo -p2p p'\n"
        "alpha:12 NCCL DIAG [INFO] p2p: only 55/56 GPU-to-GPU peer accesses passed verification\n"
        "alpha:12 NCCL DIAG NCCL diagnostics completed in 245.3 ms across 8 ranks"
    )
    (failure,) = report.p2p_failures
    assert (failure.what, failure.path, failure.handle) == (
        "write mismatch", "PIX", "LEGACY_CUDA_IPC",
    )  # fmt: skip
    assert (failure.source_device, failure.target_device) == (5, 6)
    assert list(remarks([report]).values()) == [True, True]
    first, second = remarks([report])
    assert first.startswith("GPU 5 and GPU 6 (PIX, LEGACY_CUDA_IPC): write mismatch: check the")
    assert second == "p2p: only 55/56 GPU-to-GPU peer accesses passed verification"


def test_reports_that_did_not_run_or_begin_anew_stay_apart() -> None:
    reports = read(
        "BUSY: diagnostics already in progress\n"
        "alpha:12 NCCL DIAG INFO RAS diagnostics skipped: NCCL_RAS_ENABLE=0\n"
        + RAS
        + RAS.replace("0x1a", "0x2b")
    )
    assert [len(report.results) for report in reports] == [7, 7]
    assert "in comm 0x2b" in reports[1].results[0].text


def test_a_check_of_a_later_version_is_kept_as_text() -> None:
    (report,) = read("alpha:1 NCCL DIAG [INFO] Xid/SXid: Xid 79 detected on host beta. Reset it")
    (item,) = report.remarks
    assert (item.check, item.ok) == ("Xid/SXid", False)
    assert item.text.startswith("Xid 79 detected")


def test_other_lines_are_ignored() -> None:
    assert read("alpha:12:12 [0] NCCL INFO NCCL DIAG is no prefix\nNCCL DIAG\n") == []


def test_impossible_numbers_are_ignored() -> None:
    digits = "9" * 100_000
    (report,) = read(
        "NCCL DIAG === NCCL Diagnostics ===\n"
        f"NCCL DIAG [INFO] p2p: write mismatch srcRank=1 srcCudaDev=1 srcNvmlDev={digits} "
        "dstRank=2 dstCudaDev=2 dstNvmlDev=6 path=PIX handle=LEGACY_CUDA_IPC"
    )
    assert report.p2p_failures == []
