# SPDX-License-Identifier: Apache-2.0
"""Calls in which ranks of PyTorch timed out, and completions that libmlx5 prints."""

from pathlib import Path

import pytest

from nccltune.doctor.evidence.elsewhere import read_elsewhere
from nccltune.doctor.evidence.parsers.watchdog import ranks_apart, stalled_ranks, stuck_at_exit
from nccltune.doctor.examine import examine
from nccltune.doctor.rulebase import rule_base
from tests.unit.doctor.evidence.node import folder_facts, put


@pytest.mark.parametrize(
    ("syndrome", "kind", "said"),
    [
        ("8813", "rdma_protection", "syndrome 0x13 (status 10), vendor 88"),
        ("8115", "rdma_no_answer", "syndrome 0x15 (status 12), vendor 81"),
        ("8914", "rdma_failed", "syndrome 0x14, vendor 89"),
    ],
)
def test_completions_of_libmlx5(syndrome: str, kind: str, said: str, tmp_path: Path) -> None:
    none = "(W pid=1) 00000000 00000000 00000000 00000000\n"
    last = f"(W pid=1) 00000000 0000{syndrome} 12000cb4 000056d2\n"
    text = "step 1\n" + 2 * (f"(W pid=1) mlx5: h1: got completion with error:\n{3 * none}{last}")
    (tmp_path / "post.txt").write_text(text)
    found = read_elsewhere([tmp_path / "post.txt"])
    assert found is not None
    ((one,),) = (facts.named("failures") for facts in found.values())
    assert (one["kind"], one["count"], one["where"][-2:]) == (kind, 2, ":2")
    assert one["text"].endswith(said)


def _watchdog(rank: int, call: str, elements: int = 8, prefix: str = "") -> str:
    number, _, name = call.partition(" ")
    return (
        f"{prefix}[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={number}, OpType={name}, NumelIn={elements}, NumelOut=8, "
        "Timeout(ms)=600000) ran for 600008 milliseconds before timing out.\n"
    )


_SPLIT = "SeqNum 7 REDUCE of 8 elements: rank 0; SeqNum 7 _ALLGATHER_BASE of 8 elements: ranks 1, 2"
_SEEN = "SeqNum 4 ALLREDUCE of 8 elements: ranks 0, 2"
_PG = "[PG ID 1 PG GUID {}(x) Rank {}] Timeout at NCCL work: {}, last enqueued NCCL work: 9\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_watchdog(1, "7 _ALLGATHER_BASE") + _watchdog(0, "7 REDUCE") + _watchdog(2,
         "7 _ALLGATHER_BASE"), [_SPLIT]),
        (_watchdog(0, "4 ALLREDUCE") + _watchdog(1, "6 ALLREDUCE"), [
         "SeqNum 4 ALLREDUCE of 8 elements: rank 0; SeqNum 6 ALLREDUCE of 8 elements: rank 1"]),
        (_watchdog(0, "4 ALLREDUCE", 8) + _watchdog(1, "4 ALLREDUCE", 9), [
         "SeqNum 4 ALLREDUCE of 8 elements: rank 0; SeqNum 4 ALLREDUCE of 9 elements: rank 1"]),
        (_watchdog(0, "4 ALLTOALL", 8) + _watchdog(1, "4 ALLTOALL", 9), [
         "SeqNum 4 ALLTOALL: ranks 0, 1"]),
        (_watchdog(0, "4 ALLREDUCE") + _watchdog(1, "4 ALLREDUCE"), [
         "SeqNum 4 ALLREDUCE of 8 elements: ranks 0, 1"]),
        *(
            (seen + _watchdog(0, "4 REDUCE") + _watchdog(1, "4 REDUCE"), [
             f"SeqNum 4 REDUCE of 8 elements: ranks 0, 1{none}"])
            for seen, none in [
                (" NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 ", "; none is missing from 0 to 1"),
                ("world_size=2 ", "; none is missing from 0 to 1"),
                ("world_size=4 ", ""), ("WORLD_SIZE: 1 ", ""),
            ]
        ),
        # A rank with two calls is of two groups that the text does not name.
        (_watchdog(0, "4 ALLREDUCE") + _watchdog(0, "9 REDUCE") + _watchdog(1, "9 REDUCE"), []),
        # Two processes with one rank are of two groups.
        (_watchdog(0, "4 REDUCE", prefix="[rank0]:") + _watchdog(0, "4 REDUCE", prefix="[rank4]:")
         + _watchdog(1, "9 REDUCE", prefix="[rank1]:"), []),
        # Two groups: each rank stopped where its group did.
        (_watchdog(0, "4 ALLREDUCE") + _PG.format(3, 0, 4) + _watchdog(1, "9 RECV") + _PG.format(
         5, 1, 9), ["2 groups hang at once: group 3(x) in SeqNum 4 ALLREDUCE of 8 elements; "
                    "group 5(x) in SeqNum 9 RECV"]),
        # Ranks of a group are named by the numbers of their processes.
        ("".join(_watchdog(of, "9 ALLTOALL", prefix=f"[rank{of + 4}]:") for of in (0, 2)), [
         "SeqNum 9 ALLTOALL: ranks 4, 6; no timeout of rank 1 of the group"]),
        (_watchdog(0, "4 SEND") + _watchdog(1, "5 RECV"), []),
        # The group of the second is not named: it may be another one.
        (_watchdog(0, "4 ALLREDUCE") + _PG.format(3, 0, 4) + 2 *_watchdog(1, "5 ALLREDUCE", 1), [
         "SeqNum 4 ALLREDUCE of 8 elements: rank 0; SeqNum 5 ALLREDUCE of 1 elements: rank 1"]),
        # PyTorch before 2.1 prints no SeqNum.
        ((_watchdog(0, "4 REDUCE") + _watchdog(1, "4 ALLREDUCE")).replace("SeqNum=4, ", ""), [
         "ALLREDUCE of 8 elements: rank 1; REDUCE of 8 elements: rank 0"]),
        (_watchdog(3, "4 ALLREDUCE") + _watchdog(0, "4 ALLREDUCE"), [
         "SeqNum 4 ALLREDUCE of 8 elements: ranks 0, 3; no timeout of ranks 1, 2"]),
        # A terminal broke the first line.
        (_watchdog(3, "4 ALLREDUCE").replace("OpType", "OpTy\npe") + _watchdog(0, "4 ALLREDUCE"), [
         "SeqNum 4 ALLREDUCE of 8 elements: ranks 0, 3; no timeout of ranks 1, 2"]),
        # Numbers that no rank has do not decide the memory.
        (_watchdog(0, "4 REDUCE") + _watchdog(99999999999, "4 REDUCE"), []),
        (_watchdog(0, "4 REDUCE") + _watchdog(1, "9" * 5000 + " REDUCE"), []),
        (_watchdog(0, "4 REDUCE") + _watchdog(999999, "4 REDUCE"), [
         "SeqNum 4 REDUCE of 8 elements: ranks 0, 999999; "
         "no timeout of ranks 1, 2, 3, 4, 5, 6, 7, 8 and 999990 more"]),
        # Ranks that a person names, and lines that were left out, are not missing.
        *(
            (_watchdog(2, "4 ALLREDUCE") + words + _watchdog(0, "4 ALLREDUCE") + after, [_SEEN])
            for words, after in [
                ("", "rank 1 has the same\n"),
                ("  ...\n", ""),
                ("", "[rank1]:[E419 10:42 Proce"),
                ("", "and so on all ranks\n"),
            ]
        ),
        (
            _watchdog(0, "4 ALLTOALL")
            + _PG.format(3, 0, 4)
            + _watchdog(2, "4 ALLTOALL")
            + _PG.format(3, 2, 4),
            ["group 3(x): SeqNum 4 ALLTOALL: ranks 0, 2; no timeout of rank 1"],
        ),
        (_watchdog(3, "4 ALLREDUCE"), []),
    ],
)  # fmt: skip
def test_ranks_that_timed_out_in_different_calls(text: str, said: list[str]) -> None:
    assert [one.text for one in ranks_apart(f"step 1\n{text}")] == said
    assert all(one.line == 2 for one in ranks_apart(f"step 1\n{text}"))


_ENDS = "[rank{}]:[W x.cpp:9] destroy_process_group() was not called before program exit\n"
_STUCK = "[rank{}]:[E x.cpp:9] [PG ID 9 Rank 6] ProcessGroupNCCL's watchdog got stuck for 480 s\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (_ENDS.format(6) + _STUCK.format(6), 1),
        # A rank that did not end, one that ended later, a collective, and an exception.
        (_ENDS.format(1) + _STUCK.format(6), 0),
        (_STUCK.format(6) + _ENDS.format(6), 0),
        (_watchdog(0, "4 REDUCE") + _ENDS.format(6) + _STUCK.format(6), 0),
        ("ValueError: x\n" + _ENDS.format(6) + _STUCK.format(6), 0),
    ],
)
def test_a_watchdog_that_got_stuck_at_the_end(text: str, count: int, tmp_path: Path) -> None:
    assert len(stuck_at_exit(text)) == count
    put(tmp_path, "n1/job.out", text)
    (facts,) = folder_facts(tmp_path)
    judged = {one.rule: one for one in examine({"n1": facts}, rule_base(), "x").rules}
    assert ("destroy_process_group() on" in judged["collective-timeout"].remedy) == bool(count)
    assert ("Find the rank" in judged["collective-timeout"].remedy) != bool(count)


def test_a_group_of_which_no_rank_is_missing_has_no_rank_to_find(tmp_path: Path) -> None:
    put(tmp_path, "n1/job.out", "world_size=2 " + "".join(_watchdog(n, "4 REDUCE") for n in (0, 1)))
    (facts,) = folder_facts(tmp_path)
    judged = {one.rule: one for one in examine({"n1": facts}, rule_base(), "x").rules}
    assert judged["collective-timeout"].remedy.startswith("Each of these ranks waits")
    assert "Find the rank" not in judged["collective-timeout"].remedy


def test_a_group_whose_ranks_are_apart_is_a_failure(tmp_path: Path) -> None:
    put(tmp_path, "n1/job.out", _watchdog(0, "7 REDUCE") + _watchdog(1, "7 BROADCAST"))
    (facts,) = folder_facts(tmp_path)
    assert "ranks_apart" in [one["kind"] for one in facts.named("failures")]


@pytest.mark.parametrize(
    ("calls", "kind"),
    [
        (("7 REDUCE", "7 REDUCE", "7 BROADCAST", "7 BROADCAST"), "ranks_apart"),
        (("7 REDUCE", "8 REDUCE", "8 REDUCE", "8 REDUCE"), "ranks_apart"),
        # Each pair may be a group, which the text does not name.
        (("7 REDUCE", "7 REDUCE", "9 REDUCE", "9 REDUCE"), "watchdog"),
    ],
)
def test_calls_that_may_be_of_two_groups_blame_nobody(calls: tuple[str, ...], kind: str) -> None:
    text = "".join(_watchdog(rank, call) for rank, call in enumerate(calls))
    assert [one.kind for one in ranks_apart(text)] == [kind]
    numbered = "".join(_PG.format(3, rank, call[0]) for rank, call in enumerate(calls))
    assert [one.kind for one in ranks_apart(text + numbered)] == ["ranks_apart"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1,0]<stderr>:W operations.cc:588] b_Momentum_0 [missing ranks: 1]\n"
         "[1,0]<stderr>:Stalled ops:bias_0 [missing ranks: 1]\nkernel_0 [missing ranks: 0, 2]\n", [
         ("b_Momentum_0: missing rank 1", 2), ("kernel_0: missing ranks 0, 2", 1)]),
        ("0: [not, a stall]\nStalled ranks:\n0: [a/grad_1, a/grad_2 ...]\n3: [a/grad_7]\n", [(
         "a/grad_1: missing rank 0", 1), ("a/grad_7: missing rank 3", 1)]),
        ("rank 0: [x] is slow\n", []),
    ],
)  # fmt: skip
def test_ranks_that_horovod_waits_for(text: str, said: list[tuple[str, int]]) -> None:
    assert [(one.text, one.times) for one in stalled_ranks(text)] == said
