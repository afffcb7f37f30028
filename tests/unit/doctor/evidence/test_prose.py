# SPDX-License-Identifier: Apache-2.0
"""Words of a person that a job hangs, where its ranks are, or with which setting it works."""

from pathlib import Path

import pytest

from nccltune.doctor.evidence.elsewhere import read_elsewhere
from nccltune.doctor.evidence.parsers.prose import (
    containers_of_a_node,
    described_hang,
    workarounds,
)
from nccltune.doctor.facts.log import LOG_WORKAROUNDS

P2P = "n1:1:2 [0] NCCL INFO Channel 00 : 1[21000] -> 0[1000] via P2P/IPC\n"
END = "n1:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Init COMPLETE\n"
JOINING = "while GPUs of a node are joined (P2P)"


@pytest.mark.parametrize(
    ("words", "log", "stage"),
    [
        ("The GPUs are stuck when NCCL starts.", P2P, JOINING),
        ("Training hangs after some steps", P2P + END, "after its start"),
        ("# 分布式多机多卡训练卡住", P2P, JOINING),
        ("多机训练卡住了", "a:1:2 [0] NCCL INFO Bootstrap : Using eth0\n", "before the ranks met"),
        ("Can only run it once and then it stalls", P2P, JOINING),
        ("These two do not work together: hangs", P2P, JOINING),
        ("It connects rings and never completes trees", P2P, JOINING),
        ("The second node does not proceed", P2P, JOINING),
        ("Stalls at init", P2P, JOINING),
        ("It used to work but now hangs", P2P, JOINING),
        ("It hung, now it works only on one node", P2P, JOINING),
        ("It hung, now it works on one node and hangs on two", P2P, JOINING),
        ("I would say it hangs", P2P, JOINING),
        ("The job hung last night", P2P, JOINING),
        ("The job makes no progress", P2P, JOINING),
        ("With two nodes it just hangs", "a:1:2 [0] NCCL INFO Trees [0] 1\n", "during its start"),
    ],
)
def test_a_hang_that_a_person_describes(words: str, log: str, stage: str) -> None:
    (found,) = described_hang(f"{words}\n{log}")
    assert (found.text, found.stage) == (words.lstrip("# "), stage)
    assert found.last == log.rstrip().rpartition("NCCL INFO ")[2]
    assert described_hang(f"{log}{words}\n") == [found]


@pytest.mark.parametrize(
    "text",
    [
        "It hangs.\n",
        f"Since then nothing hangs any more\n{P2P}".replace("nothing", "it no longer"),
        f"It does not hang\n{P2P}",
        f"It doesn't hang any more with 570\n{P2P}",
        f"It isn’t stuck any more\n{P2P}",
        f"The hang is gone with 570\n{P2P}",
        f"n1:1:2 [0] init.cc:9 NCCL WARN Missing iommu=pt which can lead to system hang!\n{P2P}",
        f"[10:00:01] watchdog: got stuck\n{P2P}",
        f'  File "<frozen runpy>", line 88\n{P2P}',
        f"We train with a frozen encoder\n{P2P}",
        f"This can hang\n{P2P}",
        f"The job used to hang last year; now it works.\n{P2P}",
        f"The previous version hung, the new one is OK.\n{P2P}",
        f"It was stuck, and now everything is fine\n{P2P}",
        f"How do I make sure it would hang rather than crash?\n{P2P}",
        f"What happens when a rank hangs?\n{P2P}",
        f"It fails instead of hanging\n{P2P}",
        f"[rank0] stalls\n{P2P}",
        f"Bandwidth is low.\n{P2P}",
        f"Data loader stalls cost 5 % of the time.\n{P2P}",
        f"I did not continue with the old image.\n{P2P}",
        f"I ran the job, but I didn't finish the table yet\n{P2P}",
        f"there is no progress bar\n{P2P}",
        f"The server runs forever\n{P2P}",
        f"It is a deadlock-free algorithm\n{P2P}",
        f"A stalled PR\n{P2P}",
        f"We pass --stall-check-warning-time-seconds 60\n{P2P}",
        f"The card does not go on sale\n{P2P}",
    ],
)
def test_words_that_describe_no_hang(text: str) -> None:
    assert described_hang(text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I start two docker containers on the same host", True),
        ("Within a single node, each pod has one GPU: several pods", True),
        ("On one physical machine we compare two pods", True),
        ("Each container is on a node of its own", False),
        ("The same host runs one container with 8 GPUs", False),
        ("a:1:2 [0] NCCL INFO two containers on the same host", False),
        ("Both pods are on different nodes", False),
        ("NCCL can't use P2P between two containers on the same host", True),
        ("Two containers of the same host do not see each other", True),
        ("It does not work: two pods on one node, and NCCL takes them for two nodes", True),
        ("We do not run two containers on the same host.", False),
        ("Avoid putting two pods on the same node.", False),
        ("never two pods on one node", False),
        ("Two pods must not be on the same host", False),
        ("We don't have more than two containers on a single machine", False),
        ("I see it with two containers on the same host and on different hosts", False),
        ("Should I start two containers on the same host?", False),
    ],
)
def test_containers_of_one_node(text: str, found: bool) -> None:
    assert containers_of_a_node(f"Hi,\n{text}\n{P2P}") == (text if found else None)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("With NCCL_P2P_DISABLE=1 it runs at 12 GB/s", "NCCL_P2P_DISABLE=1"),
        ("It works with `NCCL_P2P_DISABLE=1` but is very slow", "NCCL_P2P_DISABLE=1"),
        ("It only works if I set NCCL_IB_DISABLE to 1", "NCCL_IB_DISABLE=1"),
        ("The workaround is NCCL_NVLS_ENABLE=0.", "NCCL_NVLS_ENABLE=0"),
        ("I had to manually set the GID: `NCCL_IB_GID_INDEX=1`", "NCCL_IB_GID_INDEX"),
        ("> Solved by setting NCCL_SOCKET_IFNAME=eth0", "NCCL_SOCKET_IFNAME"),
        ("After we removed NCCL_SOCKET_IFNAME=bond0 it works", "-NCCL_SOCKET_IFNAME"),
        ("All tests pass with NCCL_P2P_DISABLE=1", "NCCL_P2P_DISABLE=1"),
        ("With NCCL_P2P_DISABLE=1 it no longer hangs", "NCCL_P2P_DISABLE=1"),
        ("The crash is gone with NCCL_NVLS_ENABLE=0", "NCCL_NVLS_ENABLE=0"),
        ("It works after removing NCCL_IB_HCA", "-NCCL_IB_HCA"),
        ("It can be bypassed using `export NCCL_RAS_ENABLE=0`.", "NCCL_RAS_ENABLE=0"),
        ("The hang is avoided with NCCL_P2P_DISABLE=1", "NCCL_P2P_DISABLE=1"),
        ("It can be fixed with NCCL_P2P_DISABLE=1, they say", ""),
        ("With NCCL_IB_DISABLE=1 it works, as there is no InfiniBand", ""),
        ("With NCCL_P2P_DISABLE=1 it works, and the node has no RDMA", "NCCL_P2P_DISABLE=1"),
        ("With NCCL_IB_DISABLE=1 it works, and there is no IB error", "NCCL_IB_DISABLE=1"),
        ("It works with NCCL_IB_DISABLE=1, but without RDMA it is slow", "NCCL_IB_DISABLE=1"),
        ("NCCL_SHM_DISABLE=1 is bypassed by the container runtime", ""),
        ("It is bypassed by the runtime, NCCL_SHM_DISABLE=1", ""),
        ("This can be avoided only if NCCL_P2P_DISABLE=1 works for you", ""),
        ("Use it only if NCCL_P2P_DISABLE=1 works for you", ""),
        ("The IB plugin is avoided with NCCL_IB_DISABLE=1", ""),
        ("This way the copies are avoided with NCCL_IB_DISABLE=1", ""),
        ("I set NCCL_P2P_DISABLE=1 but it still hangs", ""),
        ("NCCL_IB_DISABLE=1 fails too, only gloo works", ""),
        ("I tried NCCL_P2P_DISABLE=1 and it hangs all the same, MPI works", ""),
        ("Everything worked until the admin removed NCCL_IB_HCA=mlx5_0", ""),
        ("Everything worked, and then they removed NCCL_IB_HCA=mlx5_0", ""),
        ("Before we removed NCCL_IB_HCA everything worked", ""),
        ("No job works after we removed NCCL_IB_HCA", ""),
        ("The launcher passes NCCL_SOCKET_IFNAME=eth0 to all pods", ""),
        ("I ran both and NCCL_IB_DISABLE=1 passes 3 tests fewer", ""),
        ("Changelog: resolves NCCL_P2P_DISABLE=1 handling", ""),
        ("Setting NCCL_P2P_DISABLE=1 did not fix the hang", ""),
        ("Would NCCL_P2P_DISABLE=1 work?", ""),
        ("Try NCCL_P2P_DISABLE=1 and see if it works", ""),
        ("It works on one node. On two with NCCL_IB_DISABLE=1 it hangs", ""),
        ("It works with NCCL_P2P_DISABLE=1 and NCCL_IB_DISABLE=1", ""),
        ("works fine without setting NCCL_P2P_DISABLE=1", ""),
        ("NCCL_IB_HCA works by prefix", ""),
        ("export NCCL_P2P_DISABLE=1 # works", ""),
        ("a:1:2 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1, works", ""),
        ("RuntimeError: it works with NCCL_P2P_DISABLE=1", ""),
    ],
)
def test_settings_with_which_it_works(text: str, key: str) -> None:
    found = workarounds(f"Hi,\n{text}\nThanks")
    assert "".join("-" * bool(one.removed) + (one.key or "") for one in found) == key


def test_a_post_that_only_names_one(tmp_path: Path) -> None:
    (tmp_path / "post.txt").write_text("It hangs. Setting NCCL_P2P_DISABLE=1 fixes it.\n")
    found = read_elsewhere([tmp_path / "post.txt"])
    assert found is not None
    (facts,) = found.values()
    (one,) = facts.value(LOG_WORKAROUNDS) or []
    assert (one.key, one.text) == ("NCCL_P2P_DISABLE=1", "Setting NCCL_P2P_DISABLE=1 fixes it")
