# SPDX-License-Identifier: Apache-2.0
"""NCCL's lines of graphs and connections, in the forms of 2.18 to 2.32, and the alarms in them."""

import io
from pathlib import Path

import pytest

from nccltune.formats.nccl_log.alarms import AlarmKind, alarms
from nccltune.formats.nccl_log.graph import ChannelCounts, read_channels, read_paths
from nccltune.formats.nccl_log.run import RunLog, read_run_log
from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.nccl_log.transports import (
    Bootstrap,
    Multicast,
    read_bootstrap,
    read_connection,
    read_multicast,
    read_nics,
)
from nccltune.model.errors import InputError

TREE = """\
=== System : maxBw 370.8 totalBw 370.8 ===
CPU/0-0 (1/1/4)
+ PCI[24.0] - PCI/0-1000 (1000c01010000000)
              + PCI[24.0] - GPU/0-2000 (0)
                            + NVL[370.8] - NVS/0-0
              + PCI[24.0] - NIC/0-3000
                            + NET[12.5] - NET/0-0 (0/9d2ab40003f6ceb8/1/12.500000)
+ SYS[10.0] - CPU/0-1
+ PCI[24.0] - GPU/0-4000 (1)
              + NVL[370.8] - NVS/0-0
==========================================
GPU/0-2000 :GPU/0-2000 (0/5000.0/LOC) GPU/0-4000 (2/370.8/NVL) CPU/0-0 (2/24.0/PHB)
Pattern 4, crossNic 0, nChannels 2, bw 12.000000/12.000000, type NVL/PIX, sameChannels 1
 0 : NET/0-0 GPU/0-2000 GPU/0-4000 NET/0-0
 1 : NET/0-0 GPU/0-4000 GPU/0-2000 NET/0-0
comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0
Ring 00 : 1 -> 0 -> 1
Tree 0 : -1 -> 0 -> 1/-1/-1
"""
HEALTHY = "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p"
FALLBACK = """\
Pattern 4, crossNic 0, nChannels 1, bw 0.100000/0.000000, type SYS/DIS, sameChannels 1
 0 : GPU/0-2000 GPU/0-4000
"""


def log_of(*texts: str, writers: int = 1) -> RunLog:
    """Return a log in which several threads write the same lines, interleaved."""
    log = RunLog(NcclLog())
    lines = [
        f"alpha:7:{writer} [{writer}] NCCL INFO {message}\n"
        for text in texts
        for message in text.splitlines()
        for writer in range(writers)
    ]
    log.read(io.BytesIO("".join(lines).encode()))
    assert log.lines == len(lines)
    log.finish()
    return log


def kinds(*texts: str) -> list[AlarmKind]:
    return [alarm.kind for alarm in alarms(log_of(*texts))]


def test_a_tree_is_read_from_interleaved_lines_of_several_ranks() -> None:
    log = log_of(TREE, f"{HEALTHY} channels per peer", writers=3)
    (system,) = log.systems.values()
    assert (system.most_gb_per_s, system.total_gb_per_s) == (370.8, 370.8)
    assert [(link.source, link.target, link.kind, link.gb_per_s) for link in system.links] == [
        ("CPU/0-0", "PCI/0-1000", "PCI", 24.0),
        ("PCI/0-1000", "GPU/0-2000", "PCI", 24.0),
        ("GPU/0-2000", "NVS/0-0", "NVL", 370.8),
        ("PCI/0-1000", "NIC/0-3000", "PCI", 24.0),
        ("NIC/0-3000", "NET/0-0", "NET", 12.5),
        ("CPU/0-0", "CPU/0-1", "SYS", 10.0),
        ("CPU/0-0", "GPU/0-4000", "PCI", 24.0),
        ("GPU/0-4000", "NVS/0-0", "NVL", 370.8),
    ]
    assert [link.about for link in system.links if link.target == "GPU/0-4000"] == ["1"]
    ((graph, seen),) = log.graphs.items()
    assert (graph.name, graph.channels, graph.type_inter, seen) == ("ring", 2, "PIX", 3)
    assert graph.orders[1] == ("NET/0-0", "GPU/0-4000", "GPU/0-2000", "NET/0-0")
    assert not graph.fell_back
    assert log.paths["alpha", "GPU/0-2000", "GPU/0-4000"].kind == "NVL"
    assert list(log.channels.values()) == [3]
    assert log.plain is not None
    assert (log.plain.ranks, log.plain.nodes) == (2, 1)


def test_nodes_are_named_without_their_host_to_2_22() -> None:
    log = log_of(
        "=== System : maxBw 12.0 totalBw 12.0 ===\nCPU/0 (1/1/2)\n+ PCI[12.0] - GPU/41000 (0)\n"
        "==========================================\n"
        "GPU/41000 :GPU/41000 (0/5000.000000/LOC) CPU/0 (1/12.000000/PHB) \n"
        "Pattern 4, crossNic 0, nChannels 1, bw 12.000000/12.000000, type PHB/PHB, sameChannels 1\n"
        " 0 : NET/0 GPU/0 GPU/1 NET/0"
    )
    assert [link.target for link in log.systems["alpha"].links] == ["GPU/41000"]
    assert [graph.orders for graph in log.graphs] == [(("NET/0", "GPU/0", "GPU/1", "NET/0"),)]
    paths = read_paths("GPU/41000 :GPU/41000 (0/5000.000000/LOC) CPU/0 (1/12.000000/PHB) ")
    assert paths is not None
    assert [(path.target, path.hops, path.gb_per_s) for path in paths.paths] == [
        ("GPU/41000", 0, 5000.0),
        ("CPU/0", 1, 12.0),
    ]


@pytest.mark.parametrize(
    ("message", "counts"),
    [
        ("2 coll channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer", (2, 0, None)),
        (f"{HEALTHY} channels per peer", (24, 16, 24)),
    ],
)
def test_channel_counts_with_and_without_collnet(
    message: str, counts: tuple[int, int, int | None]
) -> None:
    found = read_channels(message)
    assert isinstance(found, ChannelCounts)
    assert (found.coll, found.nvls, found.collnet) == counts


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", ("P2P", "CUMEM", None, None)),
        ("Channel 01/1 : 0[1b000] -> 1[2c000] via P2P/IPC/read", ("P2P", "IPC/read", None, None)),
        ("Channel 00/0 : 3[3] -> 0[0] via P2P/direct pointer", ("P2P", "direct", None, None)),
        ("Ring 00 : 3[3] -> 0[0] via direct shared memory", ("SHM", "direct", None, None)),
        ("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", ("SHM", "direct/direct", None, None)),
        ("Channel 02/0 : 7[7] -> 8[0] [send] via NET/IB/3/GDRDMA/Shared", ("NET",
         "IB/3/GDRDMA/Shared", True, None)),
        ("Channel 02/0 : 7[7] -> 8[0] [send] via NET/IB/3(6)/GDRDMA", ("NET", "IB/3(6)/GDRDMA",
         True, 6)),
        ("Channel 00/0 : 7[7] -> 8[0] [receive] via NET/IB/0/GDRDMA(PCI)", ("NET",
         "IB/0/GDRDMA(PCI)", True, None)),
        ("Channel 00/0 : 1[1] -> 2[2] [send] via NET/AWS Libfabric/0", ("NET", "AWS Libfabric/0",
         False, None)),
        ("Channel 00/0 : 1[1] -> 2[2] [send] via NET/Socket/0", ("NET", "Socket/0", False, None)),
        ("Ring 00 : 3[3] -> 1[1] via P2P/IPC", ("P2P", "IPC", None, None)),
        ("Ring 00 : 1 -> 4 [receive] via NET/IB/1/GDRDMA", ("NET", "IB/1/GDRDMA", True, None)),
        ("CollNet 00/0 : 4 [send] via COLLNET/SHARP/1/GDRDMA", ("COLLNET", "SHARP/1/GDRDMA", True,
         None)),
    ],
)  # fmt: skip
def test_connections(message: str, expected: tuple[str, str, bool | None, int | None]) -> None:
    found = read_connection(message)
    assert found is not None
    assert (found.transport, found.how, found.gdr, found.proxy) == expected


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("NET : Using interface virbr0:192.168.122.1<0>", "virbr0"),
        ("NET/IB: [2] mlx5_1:1/IB", "mlx5_1"),
    ],
)
def test_nics_of_versions_with_a_line_for_each(message: str, name: str) -> None:
    found = read_nics(message)
    assert found is not None
    assert found.one_of_several
    assert [nic.name for nic in found.nics] == [name]


def test_what_a_run_used_is_summed_up_once_a_connection() -> None:
    log = log_of(
        "Bootstrap : Using eth0:192.0.2.7<0>\n"
        "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1:0:1/RoCE [RO]; OOB eth0:192.0.2.7<0>\n"
        "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'\n"
        "Using network IB\n"
        "Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0\n"
        "Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
        "NCCL_NET_GDR_READ set by environment to 0.\n"
        "NCCL_HOSTID set by environment to somebody",
        writers=2,
    )
    assert log.transports == {"NET/IB": 1, "P2P/CUMEM": 1}
    assert (log.gdr_send, log.gdr_receive) == (False, True)
    assert [(nic.name, nic.link) for nic in log.nics] == [("mlx5_0", "IB"), ("mlx5_1", "RoCE")]
    assert list(log.networks) == ["IB"]
    assert list(log.named) == ["NCCL_NET_GDR_READ", "NCCL_HOSTID"]
    assert log.plain is not None
    assert log.plain.settings == {"NCCL_NET_GDR_READ": "0"}


def test_lines_that_changed_their_form() -> None:
    assert read_bootstrap("Bootstrap: Using ens5:192.0.2.7<0>") == Bootstrap("ens5")
    sockets = read_nics("NET/Socket : Using [0]eth0:192.0.2.7<0> [1]eth1:192.0.2.8<0>")
    assert sockets is not None
    assert [nic.name for nic in sockets.nics] == ["eth0", "eth1"]
    fast = read_nics("NET/FastSocket : Using [0]ens12:192.0.2.7<0>")
    assert fast is not None
    assert [(nic.network, nic.name, nic.port) for nic in fast.nics] == [
        ("FastSocket", "ens12", None)
    ]
    plain = NcclLog()
    plain.observe("Using network AWS Libfabric")
    assert plain.network == "AWS Libfabric"
    strict = read_nics("NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:192.0.2.7<0>")
    assert strict is not None
    assert strict.relaxed_ordering is False
    assert read_multicast("NVLS multicast support is not available on dev 0") == Multicast(False)
    there = read_multicast("NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)")
    assert there == Multicast(True)


def test_a_healthy_log_has_no_alarm() -> None:
    assert kinds(TREE, f"{HEALTHY} channels per peer") == []


@pytest.mark.parametrize(
    "text",
    [
        FALLBACK,
        "Could not find a path for pattern 4, falling back to simple order",
    ],
)
def test_a_search_that_found_no_path_is_an_alarm(text: str) -> None:
    (alarm,) = alarms(log_of(text))
    assert alarm.kind is AlarmKind.FALLBACK
    assert "no path for its ring" in alarm.sentence


TWO = "2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per "


def test_two_channels_are_alarming_only_with_nvlink_on_one_node() -> None:
    assert kinds(TREE, TWO + "peer") == [AlarmKind.TWO_CHANNELS]
    # Two channels are normal for PCIe cards and sockets.
    assert kinds(TREE.replace("/NVL)", "/PHB)"), TWO + "peer") == []
    assert kinds(TREE.replace("nNodes 1", "nNodes 2"), TWO + "peer") == []
    (asked,) = alarms(log_of("NCCL_MAX_NCHANNELS set by environment to 2.", TREE, TWO + "peer"))
    assert asked.chosen


def test_zero_nvls_channels_are_a_failure_or_a_setting() -> None:
    none = HEALTHY.replace("16 nvls", "0 nvls") + " channels per peer"
    there = "NVLS multicast support is available on dev 0"
    (failed,) = alarms(log_of(TREE, there, none))
    assert (failed.kind, failed.chosen) == (AlarmKind.NO_NVLS, False)
    (asked,) = alarms(log_of(TREE, "NCCL_NVLS_ENABLE set by environment to 0.", none))
    assert (asked.kind, asked.chosen) == (AlarmKind.NO_NVLS, True)
    assert kinds(TREE, there.replace("is ", "is not "), none) == [AlarmKind.NO_NVLS]
    # Without a line on what the driver offers nothing is known.
    assert kinds(TREE, none) == []
    assert kinds(TREE, there, f"{HEALTHY} channels per peer") == []


def test_a_gpu_without_its_nvlinks_is_named() -> None:
    lines = TREE.splitlines()
    lines.remove("              + NVL[370.8] - NVS/0-0")
    (alarm,) = alarms(log_of("\n".join(lines)))
    assert alarm.kind is AlarmKind.MISSING_NVLINK
    assert alarm.sentence == "GPU/0-4000 has no NVLink, others of its node have 370.8 GB/s"
    fewer = TREE.replace("NVL[370.8] - NVS/0-0\n=", "NVL[20.6] - NVS/0-0\n=")
    assert [alarm.sentence.partition(",")[0] for alarm in alarms(log_of(fewer))] == [
        "GPU/0-4000 has 20.6 GB/s of NVLink"
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "P2P is disabled between connected GPUs 1 and 0. You can repress this message",
            AlarmKind.P2P_OFF,
        ),
        ("P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case",
         AlarmKind.P2P_OFF),
        (TREE.replace("PCI[24.0] - PCI", "PCI[0.2] - PCI"), AlarmKind.SLOW_LINK),
        ("PXN Disabled as plugin is v4", AlarmKind.PXN_OFF),
        ("NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:192.0.2.7<0>\n"
         "Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/0", AlarmKind.NO_GDR),
    ],
)  # fmt: skip
def test_alarms_of_single_lines(text: str, kind: AlarmKind) -> None:
    assert kinds(text) == [kind]


def test_log_files_are_read_as_one(tmp_path: Path) -> None:
    for rank in range(2):
        path = tmp_path / f"nccl.{rank}"
        text = "".join(f"alpha:{rank}:1 [0] NCCL INFO {line}\n" for line in TREE.splitlines())
        path.write_text(f"{text}something else\n", encoding="utf-8")
    log = read_run_log(sorted(tmp_path.iterdir()))
    assert log.lines == 2 * len(TREE.splitlines())
    assert list(log.graphs.values()) == [2]
    with pytest.raises(InputError, match="cannot be read"):
        read_run_log([tmp_path])


def test_a_log_cut_anywhere_is_read_as_far_as_it_goes() -> None:
    for end in range(0, len(TREE), 7):
        cut = [line for line in TREE[:end].splitlines() if line]
        log = log_of("\n".join(cut)) if cut else RunLog()
        assert len(log.graphs) <= 1
        assert [alarm.kind for alarm in alarms(log)] in ([], [AlarmKind.MISSING_NVLINK])


def test_hostile_lines_take_bounded_time_and_raise_nothing() -> None:
    digits = "9" * 100_000
    log = RunLog(NcclLog())
    for message in (
        f" 0 :{' NET/0' * 1000}!",
        f"{digits} coll channels, {digits} collnet channels",
        f"comm 0x1 rank 0 nRanks {digits} nNodes 1",
        f"Channel 00/0 : {digits}[0] -> 1[1] via P2P/CUMEM",
        f"Pattern {digits}, crossNic 0, nChannels 1, bw 1.0/1.0, type NVL/PIX, sameChannels 1",
        f"GPU/0-1 :GPU/0-1 ({digits}/5000.0/LOC)",
    ):
        log.read(io.BytesIO(f"alpha:7:7 [0] NCCL INFO {message}\n".encode()))
    assert log.lines == 6
    log.read(io.BytesIO(f"{digits} NCCL INFO\n".encode()))
    assert log.lines == 6
    log.finish()
    assert (log.graphs, log.channels, log.connections, log.paths) == ({}, {}, {}, {})
    assert alarms(log) == []


def test_an_import_flags_problems_in_the_log(tmp_path: Path) -> None:
    from nccltune.formats.importing.importer import import_files
    from nccltune.formats.importing.inputs import find_inputs
    from nccltune.formats.importing.suspect import suspect_sentences
    from nccltune.formats.reading.context import ReadOptions
    from nccltune.study.files import Study
    from tests.unit.formats.maker import Made, Point

    log = "".join(f"alpha:7:7 [0] NCCL INFO {line}\n" for line in FALLBACK.splitlines())
    diagnostic = "alpha:7 NCCL DIAG [INFO] ECC: unavailable via NVML across 8 ranks in comm 0x1a\n"
    path = tmp_path / "run.txt"
    path.write_text(log + diagnostic + Made((Point(1024, 20.0, 21.0),)).text(), encoding="utf-8")
    found = import_files(tmp_path / "study", find_inputs([path]), ReadOptions(study="study"))
    flags = {flag.kind.value: flag for flag in found.files[0].report.flags}
    assert "fell back to one channel" in flags["collapsed"].sentence
    assert (flags["collapsed"].doubtful, flags["diagnosed"].doubtful) == (True, False)
    (sentence,) = suspect_sentences(Study(tmp_path / "study"))
    assert sentence.startswith("run.txt: NCCL found no path for its ring")
