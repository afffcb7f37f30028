# SPDX-License-Identifier: Apache-2.0
"""Examine many nodes: verdicts by node, evidence grouped by text, node names folded."""

import pytest

from nccltune.doctor.examine import MISFIT, examine
from nccltune.doctor.result import RuleVerdict, node_names
from nccltune.doctor.rulebase import RuleBase, read_rules, rule_base
from nccltune.doctor.summary import (
    deciding_sources,
    deciding_words,
    judged_areas,
    node_words,
    verdict_words,
)
from tests.unit.doctor.rule_cases import facts_of
from tests.unit.doctor.test_rule_files import GOOD


def own(old: str = "", new: str = "") -> RuleBase:
    return read_rules({"own.toml": GOOD.replace(old, new, 1)})


def test_nodes_with_the_same_finding_share_a_sentence() -> None:
    nodes = {
        "n1": facts_of("n1", {"gpus": [{"index": 0}]}),
        "n2": facts_of("n2", {"gpus": [{"index": 0}]}),
        "n3": facts_of("n3", {"gpus": [{"index": 0}, {"index": 1}]}),
        "n4": facts_of("n4", {"gpus": [{"index": number} for number in range(8)]}),
        "n5": facts_of("n5", {}),
    }
    (judged,) = examine(nodes, own(), "a test").rules
    assert judged.verdict is RuleVerdict.FINDING
    assert {item.text: item.nodes for item in judged.evidence} == {
        "1 GPUs": ("n1", "n2"),
        "2 GPUs": ("n3",),
    }
    assert judged.evidence[0].read == ("the case",)
    assert judged.nodes == {
        RuleVerdict.FINDING: ("n1", "n2", "n3"),
        RuleVerdict.OK: ("n4",),
        RuleVerdict.CANNOT_TELL: ("n5",),
    }


@pytest.mark.parametrize(("kind", "is_nvidia"), [("XGMI", False), ("NVL", True)])
def test_commands_that_do_not_fit_are_left_out(kind: str, is_nvidia: bool) -> None:
    lines = [
        {"kind": one, "text": "a", "count": 1} for one in ("watchdog", "ras_report", "gpu_fault")
    ]
    values = {"failures": lines, "gpu.paths": [{"a": 0, "b": 1, "kind": kind}]}
    examined = examine({"n": facts_of("n", values)}, rule_base(), "x")
    # The warning may be the cause of the timeout.
    fault, cause, late = examined.of(RuleVerdict.FINDING)
    rules = "gpu-fault", "ranks-behind", "collective-timeout"
    assert (fault.rule, cause.rule, late.rule) == rules
    assert "ncclras" not in " ".join((late.check, *late.commands, *cause.commands))
    assert ("nvidia-smi" in fault.check, "amdgpu" in fault.check) == (is_nvidia, True)


@pytest.mark.parametrize(
    ("modules", "disabled"),
    [
        (None, ("lsmod | grep peermem", "sudo modprobe nvidia-peermem")),
        (["nvidia", "nv_peer_mem"], ("lsmod | grep peermem", "sudo modprobe nvidia-peermem")),
        (["nvidia"], ("sudo modprobe nvidia-peermem",)),
        ([], ("sudo modprobe nvidia-peermem",)),
    ],
)
def test_where_gpudirect_is_off_for_the_nic_no_level_is_advised(
    modules: list[str] | None, disabled: tuple[str, ...]
) -> None:
    line = {"text": "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", "count": 1}
    vias = [{"direction": "receive", "via": "NET/IB/0", "gdr": False, "count": 2}]
    values = {"log.gdr_disabled": [line], "log.lines": [], "log.vias": vias}
    values |= {} if modules is None else {"node.modules": modules}

    def commands() -> dict[str, tuple[str, ...]]:
        found = examine({"a": facts_of("a", values)}, rule_base(), "a test").rules
        return {one.rule: one.commands for one in found if one.verdict is RuleVerdict.FINDING}

    found = commands()
    assert (found["gdr-disabled"], "gdr-unused" in found) == (disabled, False)
    values["log.gdr_disabled"] = []
    assert commands()["gdr-unused"] == ("nccltune ab NCCL_NET_GDR_LEVEL=PHB",)


def test_a_cluster_rule_is_not_applicable_to_one_node() -> None:
    found = examine({"a": facts_of("a", {"nccl.version": "2.28.9"})}, rule_base(), "a test")
    verdicts = {judged.rule: judged.verdict for judged in found.rules}
    assert verdicts["nccl-differs"] is RuleVerdict.NOT_APPLICABLE
    assert verdicts["slow-pairs"] is RuleVerdict.NOT_APPLICABLE


def test_a_version_range_needs_the_version() -> None:
    base = own("source", 'nccl = { since = "2.21", before = "2.28" }\nsource')

    def verdict(version: str | None) -> RuleVerdict:
        values = {"gpus": []} | ({"nccl.version": version} if version else {})
        return examine({"a": facts_of("a", values)}, base, "a test").rules[0].verdict

    assert verdict("2.20.5") is RuleVerdict.NOT_APPLICABLE
    assert verdict("2.21.5") is RuleVerdict.FINDING
    assert verdict("2.27.9+cuda12.8") is RuleVerdict.FINDING
    assert verdict("2.28") is RuleVerdict.NOT_APPLICABLE
    assert verdict(None) is RuleVerdict.CANNOT_TELL


def test_a_rule_that_fails_on_the_facts_cannot_tell_and_names_the_error() -> None:
    base = own("len(gpus) < 8", "len(gpus) < 'x'")
    (judged,) = examine({"a": facts_of("a", {"gpus": []})}, base, "").rules
    assert judged.verdict is RuleVerdict.CANNOT_TELL
    assert judged.missing[0].startswith(f"({MISFIT}: '<' not supported")


def test_huge_numbers_do_not_stop_the_examination() -> None:
    huge = 2**63 - 1
    gpu = {"index": huge, "name": "H100", "h2d_gb_per_s": 1e308, "d2h_gb_per_s": 1e308}
    gpu |= {"pcie_gen": huge, "pcie_gen_max": -huge, "nvlinks": huge, "nvlinks_active": 1}
    other = {"index": 0, "name": "H100", "nvlinks": huge, "nvlinks_active": 2}
    values = {
        "gpus": [gpu, other],
        "node.vcpus": huge,
        "shm.bytes": -huge,
        "limits.open_files": huge,
    }
    nodes = {name: facts_of(name, values) for name in "abc"}
    found = examine(nodes, rule_base(), "")
    assert next(j for j in found.rules if j.rule == "nvlink-down").verdict is RuleVerdict.FINDING


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["a"], "a"),
        (["n1", "n2", "n3", "n5"], "n[1-3,5]"),
        (["n10", "n9"], "n[9-10]"),
        (["n001", "n003", "n002"], "n[001-003]"),
        (["gpu-1.site", "gpu-2.site"], "gpu-1.site, gpu-2.site"),
        ([f"{letter}x" for letter in "abcdefgh"], "ax, bx, cx, dx, ex, fx and 2 more"),
    ],
)
def test_names_are_folded(names: list[str], folded: str) -> None:
    assert node_names(names) == folded


def test_summaries_of_nothing_found_and_nothing_known() -> None:
    good = facts_of("a", {"gpus": [{"index": number, "name": "H100"} for number in range(8)]})
    assert verdict_words(examine({"a": good}, own(), "")) == "nothing found"
    assert verdict_words(examine({"a": facts_of("a", {})}, own(), "")) == "nothing could be checked"
    assert node_words(examine({"a": good}, own(), "")) == "a · 8 x H100"
    two = {"a": good, "b": facts_of("b", {})}
    assert (
        node_words(examine(two, own(), ""))
        == "2 nodes: 1 x (8 x H100) · 1 x (GPU and NCCL not known)"
    )


def test_the_areas_that_rules_could_judge() -> None:
    log = facts_of("a", {"failures": [], "log.lines": [], "node.collected": True})
    judged, unknown = judged_areas(examine({"a": log}, rule_base(), ""))
    assert judged == ["logs"]
    assert set(unknown) >= {"GPUs", "NICs", "PCIe", "the kernel's log", "the host"}
    assert judged_areas(examine({"a": facts_of("a", {})}, rule_base(), ""))[0] == []
    here = examine({"a": log}, rule_base(), "this node (a)")
    assert deciding_words(here).startswith("nvidia-smi -q -x would decide most (")
    assert deciding_words(examine({"a": log}, rule_base(), "x")).startswith(deciding_words(here))


def test_missing_sources_are_sorted_by_rules_and_a_log_counts_once() -> None:
    found = examine({"a": facts_of("a", {})}, rule_base(), "")
    sources = deciding_sources(found)
    assert len(sources) == 3
    assert [number for _, number in sources] == sorted((n for _, n in sources), reverse=True)
    reads = [read for read, _ in deciding_sources(found, 40)]
    assert reads.count("NCCL_DEBUG=INFO log") == 1
    assert len(reads) == len(set(reads))
