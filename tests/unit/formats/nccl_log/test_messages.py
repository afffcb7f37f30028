# SPDX-License-Identifier: Apache-2.0
"""Single messages of NCCL's log."""

from typing import get_args

import pytest

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
        "Could not find: ofi libnccl-net-ofi.so. Using internal network plugin.",
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
