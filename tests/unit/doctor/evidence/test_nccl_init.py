# SPDX-License-Identifier: Apache-2.0
"""Which communicators did not complete their initialisation, and which logs cannot show it."""

from pathlib import Path

import pytest

from nccltune.doctor.evidence.parsers.nccl_init import parse_init, shared_gpus
from nccltune.doctor.evidence.parsers.nccl_lines import parse_nccl_lines
from nccltune.doctor.facts.log import (
    LOG_GDR_DISABLED,
    LOG_NET,
    LOG_NET_DEVICES,
    LOG_RANKS,
    LOG_VIAS,
    LogInit,
    LogInitTimes,
)
from tests.unit.doctor.evidence.node import folder_facts, put
from tests.unit.doctor.evidence.test_files_of_people import TEST


def init(rank: int, what: str, comm: str = "commId 0xabc", ranks: int = 4) -> str:
    host = f"h{rank // 2}"
    return (
        f"{host}:{10 + rank}:{20 + rank} [{rank % 2}] NCCL INFO ncclCommInitRank comm 0x1{rank} "
        f"rank {rank} nranks {ranks} cudaDev 0 nvmlDev 0 busId 1000 {comm} - Init {what}\n"
    )


def info(rank: int, words: str) -> str:
    return f"h{rank // 2}:{10 + rank}:{20 + rank} [{rank % 2}] NCCL INFO {words}\n"


STARTS = "".join(init(rank, "START") for rank in range(4))


def completes(*ranks: int) -> str:
    return "".join(init(rank, "COMPLETE") for rank in ranks)


def unfinished(text: str) -> list[LogInit]:
    found = parse_init(text).unfinished
    assert found is not None
    return found


def test_all_ranks_complete() -> None:
    assert unfinished(STARTS + completes(3, 1, 0, 2)) == []
    assert unfinished(STARTS + completes(3, 1) + completes(2, 0).replace("h1:12:22 [0] ", "")) == []


def test_ranks_that_others_overtook_hang() -> None:
    (one,) = unfinished(STARTS + completes(0, 2, 3))
    assert one == LogInit(
        comm="0xabc",
        ranks=4,
        started=4,
        completed=3,
        unfinished=[1],
        hosts=["h0"],
        whole=True,
        met=False,
    )


@pytest.mark.parametrize(
    ("after", "found"), [("init.cc:1701 -> 1", 0), ("init.cc:1701 -> 0", 1), ("ring 0 -> 1", 1)]
)
def test_a_start_that_returned_an_error_does_not_hang(after: str, found: int) -> None:
    assert len(unfinished(STARTS + completes(0, 2, 3) + info(1, after))) == found


def test_text_after_the_last_complete_shows_that_the_log_is_whole() -> None:
    (one,) = unfinished(STARTS + completes(0, 1, 2) + "[rank0] Watchdog caught a timeout\n")
    assert (one.unfinished, one.whole) == ([3], True)


def test_a_log_of_the_first_lines_is_cut() -> None:
    text = STARTS + completes(0, 1, 2, 3)
    lines = text.splitlines(keepends=True)
    for most in range(1, len(lines)):
        assert not any(one.whole for one in unfinished("".join(lines[:most]))), most
    for most in range(len(STARTS), len(text)):
        assert not any(one.whole for one in unfinished(text[:most])), most


def test_ranks_that_were_about_to_complete_are_cut_off() -> None:
    late = "".join(info(rank, "8 coll channels, 8 collnet channels") for rank in range(4))
    (one,) = unfinished(STARTS + late + completes(2))
    assert not one.whole
    (one,) = unfinished(STARTS + late + completes(2) + "[rank0] Watchdog caught a timeout\n")
    assert one.whole


def test_ranks_that_wait_for_a_connection_hang() -> None:
    connected = "".join(info(rank, "Connected all rings, use ring PXN 0 GDR 1") for rank in (1, 3))
    (one,) = unfinished(STARTS + connected + completes(0, 2))
    assert (one.unfinished, one.whole) == ([1, 3], True)


def test_nobody_completes() -> None:
    (one,) = unfinished(STARTS + info(0, "NET/IB : No device found."))
    assert (one.started, one.completed, one.whole) == (4, 0, False)


def test_logs_with_lines_left_out_are_not_judged() -> None:
    counted = STARTS.replace("START\n", "START [repeated 3x across cluster]\n", 1)
    for text in (counted + completes(0, 2), STARTS + "[...]\n" + completes(0, 2), "...\n" + STARTS):
        assert parse_init(text).unfinished is None


def test_a_log_without_some_lines_in_the_middle() -> None:
    text = (
        STARTS
        + completes(0, 2)
        + "".join(
            info(rank, "comm 0x11 rank 1 nranks 4 cudaDev 1 busId 1 - Destroy COMPLETE")
            for rank in (1, 3)
        )
    )
    assert unfinished(text) == []
    timings = "Init timings - ncclCommInitRank: rank 1 nranks 4 total 0.60 (kernels 0.11)"
    assert unfinished(STARTS + completes(0, 2, 3) + info(1, timings)) == []
    assert parse_init(STARTS + completes(0, 2) + TEST).unfinished is None


ENDED = "slurmstepd: error: *** STEP 9.0 ON h0 CANCELLED AT 12:02 DUE TO TIME LIMIT ***\n"
OLD = [
    info(rank, f"comm 0x1 rank {rank} nranks 4 cudaDev 0 busId 1 - Init COMPLETE")
    for rank in range(4)
]
CONNECTS = info(1, "Channel 00 : 1[2] -> 2[1] [send] via NET/IB/0")


def test_an_old_log_that_a_time_limit_ended() -> None:
    (one,) = unfinished(CONNECTS + OLD[0] + OLD[2] + OLD[3] + ENDED)
    assert (one.unfinished, one.hosts, one.started, one.completed) == ([1], ["h0"], 4, 3)
    assert (one.whole, one.met) == (True, True)


@pytest.mark.parametrize(
    "text",
    [
        CONNECTS + OLD[0] + OLD[2] + OLD[3],
        OLD[0] + OLD[2] + OLD[3] + ENDED,
        CONNECTS + "".join(OLD) + ENDED,
        CONNECTS + OLD[0] + OLD[2] + OLD[3] + OLD[3] + ENDED,
        CONNECTS + OLD[0] + OLD[2] + OLD[3] + info(1, "init.cc:9 -> 1") + ENDED,
        CONNECTS + OLD[0] + OLD[2] + OLD[3].replace("nranks 4", "nranks 2") + ENDED,
        CONNECTS + OLD[0] + "[...]\n" + OLD[2] + OLD[3] + ENDED,
    ],
)
def test_an_old_log_that_does_not_show_who_hangs(text: str) -> None:
    assert parse_init(text).unfinished is None


def test_a_log_of_some_ranks_only() -> None:
    assert unfinished(init(1, "START") + init(1, "COMPLETE")) == []


def test_a_split_has_no_id() -> None:
    split = "parent 0x5 splitCount 1 color 7 key 0"
    starts = init(0, "START", split, 2).replace(" - Init", "- Init") + init(1, "START", split, 2)
    assert unfinished(starts + init(0, "COMPLETE", split, 2) + init(1, "COMPLETE", split, 2)) == []
    (one,) = unfinished(starts + init(1, "COMPLETE", split, 2))
    assert (one.comm, one.unfinished) == ("splitCount 1 color 7 of 2 ranks", [0])


def test_the_slowest_start_and_its_longest_part() -> None:
    words = "Init timings - ncclCommInitRank: rank {} nranks 4 total {} (kernels {}, alloc 0.41, x)"
    text = info(0, words.format(0, "3.10", "1.20")) + info(1, words.format(1, "55.01", "52.45"))
    assert parse_init(text).times == LogInitTimes(
        ranks=4, total_s=55.01, part="kernels", part_s=52.45
    )


def test_a_fabric_across_hosts() -> None:
    words = "MNNVL busId 0x801000 fabric UUID {} cliqueId 0x1 state {} healthMask 0xaa"
    uuid = "4c43b15bc2cd1920.28cc9b5473fb5b11"
    text = info(0, words.format(uuid, 3)) + info(1, words.format(uuid, 3))
    assert parse_init(text).fabric_nodes == 1
    assert parse_init(text + info(2, words.format(uuid, 3))).fabric_nodes == 2
    assert parse_init(text + info(2, words.format(uuid, 1))).fabric_nodes == 1
    none = info(0, words.format("0.0", 3)) + info(2, words.format("0.0", 3))
    assert parse_init(none).fabric_nodes == 0


def test_the_largest_communicator_decides() -> None:
    words = "comm 0x5 rank 0 nRanks {} nNodes {} localRanks 4 localRank 0 MNNVL {}"
    on, pair = words.format(8, 1, 1), words.format(2, 2, 0)
    assert parse_init(info(0, on) + info(2, on) + info(0, pair)).nvlink_domains == 1
    assert parse_init(info(0, words.format(16, 2, 1)) + info(2, on)).nvlink_domains == 2
    assert parse_init(info(0, pair)).nvlink_domains == 0
    assert parse_init(info(0, on) + info(1, on)).nvlink_domains is None
    assert parse_init("no log\n").nvlink_domains is None


def test_hostile_texts_take_bounded_time() -> None:
    words = " Init START MNNVL busId  MNNVL  Init timings - Init "
    for text in ("a" * 3_000_000 + words, ("a" * 250 + ":1:1 ") * 20_000 + words, words * 50_000):
        found = parse_init(text)
        assert (found.unfinished, found.times, found.nvlink_domains) == ([], None, None)


def test_ranks_with_one_gpu_whose_use_was_refused() -> None:
    refused = "NCCL error: 'invalid usage (run with NCCL_DEBUG=WARN for details)'\n"
    found = [one.text.partition(" of ")[0] for one in shared_gpus(STARTS + refused)]
    assert found == ["ranks 0, 1", "ranks 2, 3"]
    apart = STARTS.replace("[1] NCCL INFO ncclCommInitRank", "[1] NCCL INFO gpu").replace(
        "busId 1000 commId 0xabc", "busId 2000 commId 0xabc", 1
    )
    assert len(shared_gpus(apart + refused)) == 1
    assert shared_gpus(STARTS) == ()
    assert shared_gpus(f"{STARTS}{refused}rank 0 and rank 1 both on CUDA device 1000\n") == ()


@pytest.mark.parametrize(
    ("state", "mask", "faults"),
    [
        (3, "0xaa", []),
        (3, "0x0", []),
        (3, "0x1aa", []),
        (3, "0xa9", ["bandwidth degraded"]),
        (3, "0x9a", ["route unhealthy"]),
        (3, "0x6a", ["recovery of access timeouts"]),
        (3, "0x2a6", ["route recovery in progress", "wrong configuration"]),
        (2, "0x0", ["registration not complete"]),
    ],
)
def test_the_health_of_a_fabric(state: int, mask: str, faults: list[str]) -> None:
    line = f"MNNVL busId 0x801000 fabric UUID 3143.28cc cliqueId 0x7ffe state {state} "
    found = parse_init(info(0, line + f"healthMask {mask}") * 2).fabric_faults
    assert found == [f"h0 GPU 0x801000: {fault}" for fault in faults]


def test_a_log_of_nccl_2_3(tmp_path: Path) -> None:
    """One line for each NIC, `Ring` for connections, no line on the number of nodes."""
    start = "ml3:32632:32662 [0] NCCL INFO "
    lines = [
        "NET : Using interface enp0s31f6:192.0.2.96<0>",
        "NET : Using interface virbr0:192.0.2.1<0>",
        "NET/Socket : 2 interfaces found",
        "Using network Socket",
        "rank 0 nranks 4",
        "Ring 00 : 3 -> 0 [receive] via NET/Socket/0",
    ]
    put(tmp_path, "n1/run.log", "".join(f"{start}{line}\n" for line in lines))
    (facts,) = folder_facts(tmp_path)
    assert facts.value(LOG_NET) == "Socket"
    assert facts.value(LOG_NET_DEVICES) == ["enp0s31f6", "virbr0"]
    assert facts.value(LOG_RANKS) == 4
    assert [(via.direction, via.via) for via in facts.value(LOG_VIAS)] == [
        ("receive", "NET/Socket/0")
    ]


def test_nics_for_which_gpudirect_is_disabled(tmp_path: Path) -> None:
    """Sockets and Omni-Path through verbs never have it."""
    words = "GPU Direct RDMA Disabled for HCA 0"
    names = ("NET/IB : {} 'mlx5_0'", "{} 'a'", "NET/IB : {} 'hfi1_0'", "NET/FastSocket : {} 'e'")
    put(tmp_path, "n1/run.log", "".join(info(0, name.format(words)) for name in names))
    (facts,) = folder_facts(tmp_path)
    found = [one.text for one in facts.value(LOG_GDR_DISABLED) or []]
    assert found == [f"NET/IB : {words} 'mlx5_0'", f"{words} 'a'"]


def test_ranks_of_one_gpu_are_not_joined_by_nvlink() -> None:
    line = "h1:1:2 [0] NCCL INFO Channel 00 : 0[{}] -> 1[{}] via SHM/direct/direct\n"
    assert parse_nccl_lines(line.format("1b000", "1b000") + line.format(0, 0)).vias == {}
    assert parse_nccl_lines(line.format("1b000", "1c000")).vias == {
        ("send", "SHM/direct/direct"): 1
    }


def test_the_version_of_an_nccl_log_is_that_of_its_own_lines() -> None:
    told = "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:9, unhandled, NCCL version 21.0.3\n"
    assert parse_nccl_lines(told).version == "2.10.3"
    own = "NCCL version 2.10.4+cuda11.3\n"
    assert parse_nccl_lines(told + own).version == "2.10.4"
    assert parse_nccl_lines(own + told).version == "2.10.4"


@pytest.mark.parametrize(
    ("more", "network"),
    [
        ("", "Socket"),
        (info(1, "NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:192.0.2.2<0>"), None),
        (info(1, "Using network IB"), "IB"),
        (info(1, "Error: network AWS Libfabric not found.").replace("INFO", "WARN"), None),
    ],
)
def test_the_network_of_a_log_without_its_line(
    more: str, network: str | None, tmp_path: Path
) -> None:
    put(tmp_path, "job.log", info(0, "NET/Socket : Using [0]eth0:192.0.2.1<0>") + more)
    (facts,) = folder_facts(tmp_path)
    assert facts.value(LOG_NET) == network
