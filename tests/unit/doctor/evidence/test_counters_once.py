# SPDX-License-Identifier: Apache-2.0
"""Counters that were read once or twice, as tools and terminals show them."""

from pathlib import Path

import pytest

from nccltune.doctor.evidence.parsers.rdma_counters import parse_rdma_counters
from nccltune.doctor.examine import examine
from nccltune.doctor.facts import Facts
from nccltune.doctor.facts.network import (
    COUNTERS_ONCE,
    GPU_LINK_ERRORS,
    HCA_COUNTERS,
    HCA_ERRORS,
    NIC_COUNTERS,
    LinkErrors,
    NicCounter,
)
from nccltune.doctor.result import RuleVerdict
from nccltune.doctor.rulebase import rule_base
from tests.unit.doctor.evidence.node import folder_facts, pasted_facts, put

CLEAN = """## Summary: 40 nodes checked, 0 bad nodes found
##          300 ports checked, 0 ports have errors beyond threshold
"""
STATISTICS = "NIC statistics:\n     rx_packets: 210\n     rx_out_of_buffer: {}\n"
ERRORS = """\
GPU 3: NVIDIA H200 (UUID: GPU-1)
\t Link 0: Replay Errors: 0
\t Link 0: Recovery Errors: 0
\t Link 0: CRC Errors: {}
"""
PERFQUERY = """\
# Port counters: Lid 987 port 1 (CapMask: 0x5A00)
PortSelect:......................1
SymbolErrorCounter:..............{}
PortRcvErrors:...................0
"""


def once(facts: Facts) -> list[tuple[str | None, str | None, int | None]]:
    return [(one.device, one.counter, one.value) for one in facts.value(COUNTERS_ONCE) or []]


def test_counters_of_one_reading(tmp_path: Path) -> None:
    one = pasted_facts(tmp_path / "a", "ethtool-eth0.txt", STATISTICS.format(51))
    assert once(one) == [("an interface", "rx_out_of_buffer", 51)]
    lost = "\n".join(line.lstrip() for line in STATISTICS.format(51).splitlines())
    bare = pasted_facts(tmp_path / "f", "x.txt", f"$ ethtool -S eth2\n{lost}\n")
    assert once(bare) == [("eth2", "rx_out_of_buffer", 51)]
    # Two outputs without names may be of two interfaces.
    two = pasted_facts(tmp_path / "b", "nic.txt", STATISTICS.format(51) + STATISTICS.format(77))
    assert once(two) == [("an interface", "rx_out_of_buffer", 51)]
    grep = pasted_facts(tmp_path / "c", "x.txt", "     rx_discards_phy: 9\n     tx_pause: 0\n")
    assert once(grep) == [("an interface", "rx_discards_phy", 9)]
    links = pasted_facts(tmp_path / "d", "nvlink.txt", ERRORS.format(7))
    assert once(links) == [("GPU 3", "link 0: CRC Errors", 7)]
    tree = "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/local_ack_timeout_err:2705\n"
    assert once(pasted_facts(tmp_path / "e", "hw.txt", tree)) == [
        ("mlx5_0 port 1", "local_ack_timeout_err", 2705)
    ]


@pytest.mark.parametrize(("others", "kept"), [("     rx_prio1_bytes: 0\n", True), ("", False)])
def test_bytes_of_the_first_priority_count_beside_the_others(
    others: str, kept: bool, tmp_path: Path
) -> None:
    text = f"NIC statistics:\n     rx_prio0_bytes: 900\n{others}     rx_prio3_pause: 3\n"
    facts = pasted_facts(tmp_path, "ethtool-eth0.txt", text)
    counters = [one.counter for one in facts.value(NIC_COUNTERS) or []]
    assert counters == [*(["rx_prio0_bytes"] if kept else []), "rx_prio3_pause"]
    assert once(facts) == [("an interface", "rx_prio3_pause", 3)]


AT = "/sys/class/infiniband/mlx5_0/ports/1/hw_counters"
SHOWN = [
    f"{AT}/local_ack_timeout_err:2705\n{AT}/out_of_sequence:8\n",
    f"$ cat {AT}/local_ack_timeout_err\n2705\n$ cat {AT}/out_of_sequence\n8\n",
    f"n1:~# cat {AT}/local_ack_timeout_err {AT}/out_of_sequence\n2705\n8\n",
    f"==> {AT}/local_ack_timeout_err <==\n2705\n\n==> {AT}/out_of_sequence <==\n8\n",
    f"$ cd {AT}; grep . *\nlocal_ack_timeout_err:2705\nout_of_sequence:8\n",
    f'# for f in {AT}/*; do echo "$(basename $f) $(cat $f)"; done\n'
    "local_ack_timeout_err 2705\nout_of_sequence 8\n",
    f"$ cat {AT}/local_ack_timeout_err\n2705\n$ nproc\n96\n$ cat {AT}/out_of_sequence\n8\n",
]


@pytest.mark.parametrize("text", SHOWN)
@pytest.mark.parametrize("before", ["", "$ ethtool -S eth2\n     rx_discards_phy: 3\n"])
def test_counters_as_a_terminal_shows_them(text: str, before: str, tmp_path: Path) -> None:
    found = pasted_facts(tmp_path, "pasted.txt", before + text)
    nic = [("eth2", "rx_discards_phy", 3)] if before else []
    rdma = [("local_ack_timeout_err", 2705), ("out_of_sequence", 8)]
    assert once(found) == [*(("mlx5_0 port 1", *one) for one in rdma), *nic]


def test_one_name_in_both_folders_is_one_reading(tmp_path: Path) -> None:
    other = AT.replace("hw_counters", "counters")
    found = pasted_facts(tmp_path, "x.txt", f"{other}/x_err:1\n{AT}/x_err:9\n")
    assert [one.earlier for one in found.value(HCA_COUNTERS) or []] == [None]
    twice = pasted_facts(tmp_path, "x.txt", f"{AT}/x_err:1\n" * 2 + f"{AT}/y_err:9\n")
    assert [one.earlier for one in twice.value(HCA_COUNTERS) or []] == [1, None]


def test_counters_of_two_readings_in_one_file(tmp_path: Path) -> None:
    prompt = "root@n1:~# ethtool -S eth2\n"
    text = prompt + STATISTICS.format(51) + "$ sleep 9\n" + prompt + STATISTICS.format(77)
    nic = pasted_facts(tmp_path / "a", "terminal.txt", text)
    assert nic.value(NIC_COUNTERS) == [
        NicCounter(nic="eth2", counter="rx_out_of_buffer", value=77, earlier=51)
    ]
    assert once(nic) == []
    links = pasted_facts(tmp_path / "b", "x.txt", ERRORS.format(7) + ERRORS.format(9))
    assert links.value(GPU_LINK_ERRORS) == [
        LinkErrors(gpu="GPU 3", counter="link 0: CRC Errors", value=9, earlier=7)
    ]
    query = PERFQUERY.format(3) + PERFQUERY.format(5)
    (symbol,) = pasted_facts(tmp_path / "c", "perfquery.txt", query).value(HCA_COUNTERS) or []
    assert (symbol.hca, symbol.port, symbol.earlier, symbol.value) == ("LID 987", 1, 3, 5)


def test_ibqueryerrors_names_the_other_end_of_a_port(tmp_path: Path) -> None:
    text = """Errors for "gn7 mlx5_3"
   GUID 0x946dae0300d0a1c2 port 1: [LinkDownedCounter == 98]
         Link info:  12  1[ ] ==( 4X 53.125 Gbps Active/ LinkUp)==>  0x0a 31 1[ ] "gn9 m2" ( )
   GUID 0x946dae0300d0a1c2 port 2: [LinkDownedCounter == 99]
"""
    counted = pasted_facts(tmp_path, "paste.txt", text).named("hca_errors")
    assert [(one["port"], one.get("peer")) for one in counted] == [(1, "gn9 m2"), (2, None)]


def test_ibqueryerrors_without_errors_decides_its_own_rule_alone(tmp_path: Path) -> None:
    put(tmp_path, "n1/paste.txt", CLEAN)
    (facts,) = folder_facts(tmp_path)
    assert (facts.value(HCA_ERRORS), facts.value(HCA_COUNTERS)) == ([], None)
    judged = examine({"n1": facts}, rule_base(), "x")
    assert [one.rule for one in judged.of(RuleVerdict.OK)] == ["port-errors-since-boot"]
    unclean = CLEAN.replace("0 ports h", "1 ports h"), f"{CLEAN}##    3 PMA query failures\n"
    assert not any(parse_rdma_counters(words).readings for words in unclean)
