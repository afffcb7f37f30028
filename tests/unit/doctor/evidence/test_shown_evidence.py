# SPDX-License-Identifier: Apache-2.0
"""The evidence and the commands of a finding: of what was read, and of nothing else."""

from pathlib import Path

import pytest

from nccltune.doctor.examine import examine
from nccltune.doctor.result import RuleVerdict
from nccltune.doctor.rulebase import rule_base
from nccltune.doctor.summary import deciding_words
from tests.unit.doctor.evidence.node import folder_facts, put

CSV = "index, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, "
PORTS = """\
CA 'mlx5_0'
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 100
\t\tSM lid: 1
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tPort 1:
\t\tState: Initializing
\t\tPhysical state: LinkUp
\t\tRate: 200
\t\tLink layer: InfiniBand
"""
SLICES = "GPU 0: NVIDIA A100 (UUID: GPU-a)\n  MIG 3g.40gb     Device  0: (UUID: MIG-b)\n"


@pytest.mark.parametrize(
    ("text", "rule", "evidence"),
    [
        (f"{CSV}pcie.link.width.max\n0, 5, 5, 8, 16\n", "gpu-link-degraded",
         "GPU 0: x8 generation 5 of x16 generation 5"),
        ("index, clocks.sm, clocks_throttle_reasons.active\n1, 800 MHz, 0x0000000000000040\n",
         "gpu-slowed", "GPU 1: hw_thermal_slowdown (temperature unknown, 800 MHz)"),
        (PORTS, "no-subnet-manager", "mlx5_1 port 1: INIT, LinkUp"),
        (PORTS, "port-down", "mlx5_0 port 1: ACTIVE, LinkUp, 100 Gb/s"),
        (SLICES, "gpu-mig", "GPU 0: MIG is on"),
    ],
)  # fmt: skip
def test_evidence_says_what_was_read(text: str, rule: str, evidence: str, tmp_path: Path) -> None:
    put(tmp_path, "n1/paste.txt", text)
    (facts,) = folder_facts(tmp_path)
    found = {one.rule: one for one in examine({"n1": facts}, rule_base(), "x").rules}[rule]
    assert [one.text for one in found.evidence] == [evidence]


def test_evidence_of_a_failure_has_the_file_of_its_line(tmp_path: Path) -> None:
    put(tmp_path, "n1/a.log", "ibv_create_cq(cqe=64) failed: Cannot allocate memory\n")
    put(tmp_path, "n1/b.log", "Error: rank 27 and rank 19 both on CUDA device 53000\n")
    engine = (
        "  0%\r 50%\r100%\r\nERROR [core.py:9] EngineCore failed to start.\nERROR [core.py:9] {}\n"
    )
    error = (
        "Traceback (most recent call last):\nERROR [core.py:9] ValueError: no space for the cache"
    )
    put(tmp_path, "n1/c.log", engine.format(error))
    (facts,) = folder_facts(tmp_path)
    found = {one.rule: one for one in examine({"n1": facts}, rule_base(), "x").rules}
    raised, _ = found["process-died"].evidence
    assert "raised: ValueError: no space for the cache (" in raised.text
    assert "c.log:4)" in raised.text
    for rule, file in (("rdma-memory", "a.log:1"), ("gpu-ordinal", "b.log:1")):
        (evidence,) = found[rule].evidence
        assert f"{file})" in evidence.text
        assert evidence.read == ()


BOOTSTRAP = "n:1:2 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>"
SOCKETS = "n:1:2 [0] NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0>"
UNREGISTERED = "n:1:2 [0] x.cc:9 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address"
NO_ANSWER = (
    "n:1:2 [3] x.cc:9 NCCL WARN NET/IB : Got completion from peer 192.0.2.1<9> with status=12"
)
COMMANDS = [
    (f"{BOOTSTRAP}\n{SOCKETS} [1]bond0:10.1.0.1<0>\nn:1:2 [0] NCCL INFO Using network Socket", 31,
     "export NCCL_SOCKET_IFNAME=bond0"),
    (f"{BOOTSTRAP}\n{SOCKETS}", 31, "export NCCL_SOCKET_IFNAME=<INTERFACE>"),
    # Before 2.10, with several interfaces.
    (f"{BOOTSTRAP.replace('g d', 'g [0]d')} [1]eth1:10.0.0.1<0>\n{SOCKETS}", 31,
     "export NCCL_SOCKET_IFNAME=<INTERFACE>"),
    (f"{NO_ANSWER} opcode=0 len=0 vendor err 129 (Recv) hca mlx5_3", 35,
     "ib_write_bw -d mlx5_3 <PEER>"),
    *((f"roce{a} port 1 ==> e0 (Up)\nroce{b} port 1 ==> e1 (Up)\n{value}n:1:2 [0] NCCL INFO "
       f"NET/IB : Using [0]roce{a}:1/RoCE [RO]; OOB e0:10.0.0.1<0>\n"
       "n:1:2 [0] NCCL INFO Using network IB", 34, commands)
      for a, b, value, commands in (
          ("p1s0f1", "P2p1s0f1", "n:1:2 [0] NCCL INFO NCCL_IB_HCA set to rocep1s0f1\n",
           "nccltune ab NCCL_IB_HCA=rocep1s0f1,roceP2p1s0f1"),
          ("a", "b", "n:1:2 [0] NCCL INFO NCCL_IB_HCA set to ^roceb\n",
           "nccltune ab --unset NCCL_IB_HCA"),
          ("a", "b", "", ""))),
    (f"{NO_ANSWER} opcode=0 len=0 vendor err 129", 35, "ib_write_bw -d <NIC> <PEER>"),
    (UNREGISTERED, "rdma-gpu-memory", "NCCL_NET_GDR_LEVEL=LOC ...; sudo modprobe nvidia-peermem"),
    (f"n:1:2 [0] NCCL INFO RCCL version : 2.20.5\n{UNREGISTERED}", "rdma-gpu-memory",
     "NCCL_NET_GDR_LEVEL=LOC ..."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "rule", "commands"), COMMANDS)
def test_commands_name_what_the_log_shows(text, rule, commands, tmp_path: Path) -> None:
    put(tmp_path, "n1/run.log", f"{text}\n")
    (facts,) = folder_facts(tmp_path)
    judged = examine({"n1": facts}, rule_base(), "x")
    (found,) = [one for one in judged.of(RuleVerdict.FINDING) if rule in (one.rule, one.number)]
    assert "; ".join(found.commands) == commands
    assert ("RCCL 2.20.5" in judged.nodes[0].title) is ("RCCL" in text)
    assert ("nvidia" in deciding_words(judged)) is not ("RCCL" in text)
