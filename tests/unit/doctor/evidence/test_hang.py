# SPDX-License-Identifier: Apache-2.0
"""Words of a person that a job hangs."""

import pytest

from nccltune.doctor.evidence.parsers.hang import told_hang

P2P = "n1:1:2 [0] NCCL INFO Channel 00 : 1[21000] -> 0[1000] via P2P/IPC\n"
END = "n1:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Init COMPLETE\n"


@pytest.mark.parametrize(
    ("words", "log", "stage"),
    [
        ("The GPUs are stuck when NCCL starts.", P2P, "while GPUs of a node are joined (P2P)"),
        ("Training hangs after some steps", P2P + END, "after its start"),
        ("# 分布式多机多卡训练卡住", P2P, "while GPUs of a node are joined (P2P)"),
        ("多机训练卡住了", "a:1:2 [0] NCCL INFO Bootstrap : Using eth0\n", "before the ranks met"),
        ("Can only run it once and then it stalls", P2P, "while GPUs of a node are joined (P2P)"),
        ("These two do not work together: hangs", P2P, "while GPUs of a node are joined (P2P)"),
        (
            "It connects rings and never completes trees",
            P2P,
            "while GPUs of a node are joined (P2P)",
        ),
        ("The second node does not proceed", P2P, "while GPUs of a node are joined (P2P)"),
        ("Stalls at init", P2P, "while GPUs of a node are joined (P2P)"),
        ("The job makes no progress", P2P, "while GPUs of a node are joined (P2P)"),
        ("With two nodes it just hangs", "a:1:2 [0] NCCL INFO Trees [0] 1\n", "during its start"),
    ],
)
def test_a_hang_that_a_person_tells_of(words: str, log: str, stage: str) -> None:
    (found,) = told_hang(f"{words}\n{log}")
    assert (found.text, found.stage) == (words.lstrip("# "), stage)
    assert found.last == log.rstrip().rpartition("NCCL INFO ")[2]
    assert told_hang(f"{log}{words}\n") == [found]


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
def test_words_that_tell_of_no_hang(text: str) -> None:
    assert told_hang(text) == []
