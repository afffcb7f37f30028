# SPDX-License-Identifier: Apache-2.0
"""A text with the outputs of several tools is read as each output alone would be."""

import re
from itertools import permutations
from pathlib import Path

import pytest

from nccltune.doctor.evidence.kinds import MOST_PARTED, kinds_of
from nccltune.doctor.examine import examine
from nccltune.doctor.facts import Facts
from nccltune.doctor.result import RuleVerdict
from nccltune.doctor.rulebase import rule_base
from tests.unit.doctor.evidence import test_dcgm, texts
from tests.unit.doctor.evidence.node import folder_facts, put
from tests.unit.doctor.evidence.test_files_of_people import TEST

NHC = "nhc: Health check failed:  check_hw_ib:  No IB port mlx5_2:1 is ACTIVE (LinkUp 400).\n"
STATUS = """\
$ systemctl status nvidia-fabricmanager
● nvidia-fabricmanager.service - NVIDIA fabric manager service
     Active: failed (Result: exit-code) since Mon 2026-11-23 09:00:00 UTC; 2h ago
"""
PORT = "CA 'mlx5_9'\n\tPort 1:\n\t\tState: Down\n\t\tLink layer: InfiniBand\n"
OUTPUTS = {
    **{
        name: getattr(texts, name)
        for name in (
            *("LSPCI", "LIMITS", "ULIMIT", "DF", "LSMOD", "LSCPU", "CPUINFO", "SMI_CSV"),
            *("SMI_FABRIC", "SMI_TEXT", "NVLINK", "TOPO", "P2P", "IMEX", "NVBANDWIDTH", "IBSTAT"),
            *("IBSTATUS", "DEVINFO", "RDMA_LINK", "GIDS", "ETHTOOL", "RDMA_STATISTIC"),
            *("PERFQUERY", "DMESG", "SERVICES", "ADDRESSES", "LOG", "PERFTEST"),
        )
    },
    "TEST": TEST,
    "PEERS": texts.P2P_BANDWIDTH,
    "DCGM": test_dcgm.DCGM,
    "DIAG": test_dcgm.DIAG,
    "NHC": NHC,
    "STATUS": STATUS,
    "PORT": PORT,
}
FAULTS = {
    "DIAG": "health-check-failed",
    "DCGM": "nvlink-down",
    "STATUS": "service-failed",
    "PORT": "port-down",
    "LOG": "nccl-warnings",
    "DMESG": "xid-nvlink",
    "TOPO": None,
}


JOINED = {"log.text_lines", "gpus", "gpu.copy_ranges", "pci.links", "tests"}
"""Facts that several tools tell of."""


def read(folder: Path, *names: str, file: str = "paste.txt") -> Facts:
    put(folder, f"n1/{file}", "\n".join(OUTPUTS[name] for name in names))
    (facts,) = folder_facts(folder)
    (folder / "n1" / file).unlink()
    return facts


def shown(facts: Facts, name: str) -> str:
    """Return a fact without the places of its lines."""
    return re.sub(r"[\w-]+\.txt(?::\d+)?|'\w*line': \d+", "", repr(facts.named(name)))


def test_each_pair_has_the_facts_of_both(tmp_path: Path) -> None:
    alone = {name: read(tmp_path, name) for name in OUTPUTS}
    lost: dict[tuple[str, str], set[str]] = {}
    for pair in permutations(OUTPUTS, 2):
        both = read(tmp_path, *pair)
        for name, other in (pair, pair[::-1]):
            own = set(alone[name]) - set(alone[other]) - JOINED
            changed = {one for one in own if shown(both, one) != shown(alone[name], one)}
            if changed | (set(alone[name]) - set(both)):
                lost[pair] = changed
    assert lost == {}


@pytest.mark.parametrize("first", FAULTS)
def test_each_three_have_the_findings_of_each(first: str, tmp_path: Path) -> None:
    for others in permutations(FAULTS.keys() - {first}, 2):
        names = (first, *others)
        facts = read(tmp_path, *names)
        found = {
            one.rule for one in examine({"n1": facts}, rule_base(), "x").of(RuleVerdict.FINDING)
        }
        assert {FAULTS[name] for name in names} - {None} <= found, names
        assert facts.unused == []


NAMED = {
    "LSPCI": "lspci",
    "SMI_TEXT": "nvidia-smi-q",
    "NVLINK": "nvlink",
    "TOPO": "topo",
    "IBSTAT": "ibstat",
    "GIDS": "show_gids",
    "DMESG": "dmesg",
    "SERVICES": "services",
    "LOG": "nccl",
    "P2P": "topo-p2p-r",
    "DEVINFO": "ibv_devinfo",
    "ULIMIT": "ulimit-a",
}


@pytest.mark.parametrize("name", NAMED)
def test_a_file_that_is_named_after_a_tool_has_the_facts_of_all(name: str, tmp_path: Path) -> None:
    for other in OUTPUTS.keys() - {name}:
        for pair in ((name, other), (other, name)):
            named, plain = read(tmp_path, *pair, file=f"{NAMED[name]}.txt"), read(tmp_path, *pair)
            assert {one: shown(named, one) for one in named} == {
                one: shown(plain, one) for one in plain
            }, pair


def test_an_output_goes_on_after_another(tmp_path: Path) -> None:
    OUTPUTS["HALVES"] = f"{PORT}{texts.TOPO}{PORT.replace('mlx5_9', 'mlx5_8')}"
    facts = read(tmp_path, "HALVES")
    assert [one["name"] for one in facts.named("hcas")] == ["mlx5_9", "mlx5_8"]


def test_two_matrices_are_not_used_and_named(tmp_path: Path) -> None:
    put(tmp_path, "n1/paste.txt", f"good:\n{texts.TOPO}\nbad:\n{texts.TOPO}")
    (facts,) = folder_facts(tmp_path)
    assert "gpu.paths" not in facts
    assert [one.why.partition(":")[0] for one in facts.unused] == ["has two outputs of topo"]
    put(tmp_path, "n1/paste.txt", f"{PORT}{texts.TOPO}{texts.TOPO}")
    (facts,) = folder_facts(tmp_path)
    assert "hcas" in facts
    assert len(facts.unused) == 1


@pytest.mark.parametrize("text", [" " * 999 + "\n", "\n", "a" * 4999 + " ", "GPU0 \n", "GPU 1: \n"])
def test_no_text_takes_forever(text: str) -> None:
    """A pattern that backtracks over white space would take hours."""
    assert kinds_of("x.txt", (text * (MOST_PARTED // len(text))).encode()).items == ()
