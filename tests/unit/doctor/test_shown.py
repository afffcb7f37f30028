# SPDX-License-Identifier: Apache-2.0
"""Output of an examination: terminal, page, script, platform. Evidence is foreign text."""

import json
import re
import shutil
import subprocess
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from nccltune.cli import run
from nccltune.cli.doctor import explain, show
from nccltune.doctor.examine import examine
from nccltune.doctor.platform import fill_platform
from nccltune.doctor.result import Examination, RuleVerdict
from nccltune.doctor.rule import DoctorRule
from nccltune.doctor.rulebase import RuleBase, rule_base
from nccltune.doctor.script import fix_script
from nccltune.doctor.summary import line_words, verdict_words
from nccltune.model.platform import Platform
from nccltune.report.examination import render
from tests.unit.doctor.rule_cases import cases, facts_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "h200x4-as-4-nodes"
HOSTILE = "<script>alert(1)</script>\x1b]0;x\x07[bold]\n$(touch /tmp/x)`id`'\";&"


def examined(*rules: str, nodes: int = 1) -> Examination:
    """Return an examination with findings of some rules on equal nodes."""
    values: dict[str, object] = {"node.collected": True}
    for rule in rules:
        case = next(case for case in cases()[rule] if case.verdict is RuleVerdict.FINDING)
        values |= case.facts or {}
    names = ["node"] if nodes == 1 else [f"n{number:03d}" for number in range(1, nodes + 1)]
    return examine({name: facts_of(name, values) for name in names}, rule_base(), "a test")


def hostile() -> Examination:
    where = f"/etc/{HOSTILE}:3"
    record = {"name": "NCCL_ALGO", "value": HOSTILE, "kind": "system_conf", "where": where}
    return examine(
        {HOSTILE: facts_of(HOSTILE, {"settings": [record | {"in_force": True}]})},
        rule_base(),
        HOSTILE,
    )


def screen(found: Examination, *, everything: bool = False) -> str:
    out = StringIO()
    show(Console(file=out, width=200, highlight=False), found, everything=everything)
    return out.getvalue()


def explained(rule: DoctorRule) -> str:
    out = StringIO()
    explain(Console(file=out, width=200, highlight=False), rule)
    return out.getvalue()


def test_one_line_has_the_gravest_findings() -> None:
    line = line_words(examined("override-environment", "acs", "shm-small", "gpu-copy-slow"))
    well, first, second, third, rest = line.split(" · ")
    assert re.fullmatch(r"ok \d+", well)
    assert re.match(r"findings [4-9]: \w", first)
    assert "ACS sends peer traffic through the CPU (bridge " in line
    assert second != third
    assert re.fullmatch(r"and \d more: nccltune doctor", rest)
    # The setting in the evidence states the cause, so the title is left out.
    assert "overrides NCCL" not in line_words(examined("override-environment"))
    assert line_words(examined("gpu-copy-slow")).endswith("on PCIe generation 5)")


def test_one_line_reports_that_nothing_was_found_or_checked() -> None:
    well = examine({"a": facts_of("a", {"cpu.governors": ["performance"]})}, rule_base(), "")
    assert re.fullmatch(r"ok \d+ · nothing found · cannot tell \d+", line_words(well))
    nothing = examine({"a": facts_of("a", {})}, rule_base(), "")
    assert line_words(nothing) == "nothing could be checked"


def test_names_of_gpus_are_no_log() -> None:
    names = {"log.gpu_names": ["NVIDIA RTX A6000"]}
    words = verdict_words(examine({"a": facts_of("a", names)}, rule_base(), ""))
    assert words.startswith("nothing found in GPUs; nothing known of logs, ")


def test_the_verdict_states_how_few_lines_were_read() -> None:
    found = {"failures": [], "log.text_lines": 2, "log.lines": [{"text": "x", "count": 1}]}
    few = verdict_words(examine({"a": facts_of("a", found)}, rule_base(), ""))
    assert few.startswith("nothing found in logs (only 2 lines); nothing known of ")
    many = verdict_words(
        examine({"a": facts_of("a", found | {"log.text_lines": 900})}, rule_base(), "")
    )
    assert many.startswith("nothing found in logs; nothing known of ")
    failed = [{"kind": "gloo", "text": "Gloo connectFullMesh failed", "count": 1}]
    one = facts_of("a", found | {"failures": failed})
    assert verdict_words(examine({"a": one}, rule_base(), "")) == (
        "1 finding: 1 error, in 2 lines of logs"
    )


def test_the_screen_begins_with_the_verdict_and_gives_each_part() -> None:
    text = screen(examined("override-environment", "acs"))
    lines = text.splitlines()
    assert lines[0].startswith("verdict     2 findings: 1 error, 1 warning · ok ")
    assert lines[1].startswith("looked at   node · 1 x GPU")
    assert lines[3].startswith("error       ACS sends peer traffic through the CPU  (acs, 1)")
    for lead in (
        "  evidence  bridge 0000:03:00.0",
        "  check     sudo lspci",
        "  remedy    Switch ACS",
    ):
        assert any(line.startswith(lead) for line in lines), lead
    assert "            $ sudo setpci -s 0000:03:00.0 ECAP_ACS+0x6.w=0000" in lines
    assert any(line.startswith("  source    NCCL user guide") for line in lines)
    assert "https://" not in text
    assert "numa-balancing" not in text


def test_all_shows_every_rule() -> None:
    text = screen(examined("acs"), everything=True)
    for rule in rule_base().rules:
        assert f"({rule.id}" in text
    assert "\ncannot tell " in text


def test_many_nodes_are_named_beside_their_evidence() -> None:
    text = screen(examined("acs", nodes=12))
    assert "SrcValid+ TransBlk- ReqRedir+ — n[001-012]" in text
    assert "12 nodes: 12 x (1 x GPU)" in text


def test_an_explained_rule_shows_number_versions_check_source_and_facts() -> None:
    text = explained(rule_base().rule("gdr-read"))
    for words in (
        "gdr-read, 18",
        "2.19.1 and newer",
        "nvidia-smi topo",
        "issues/1202",
        "gpu.paths",
    ):
        assert words in text


def test_every_rule_can_be_explained() -> None:
    for rule in rule_base().rules:
        assert rule.text.title in explained(rule), rule.id


def test_foreign_text_is_escaped_on_the_screen_and_in_the_page() -> None:
    found = hostile()
    assert "[bold]" in screen(found, everything=True)
    assert "\x1b" not in screen(found, everything=True)
    page = render(found)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_the_page_holds_every_finding_and_loads_nothing() -> None:
    page = render(examined("acs", "gdr-read", nodes=3))
    assert 'id="rule-acs"' in page
    assert 'id="rule-gdr-read"' in page
    assert "on n[001-003]" in page
    assert 'href="https://github.com/NVIDIA/nccl/issues/1202"' in page
    assert "Content-Security-Policy" in page
    assert " src=" not in page


def test_the_page_of_a_sound_node_reports_nothing_found() -> None:
    values = {"kernel.numa_balancing": 0, "cpu.numa_nodes": 2}
    page = render(examine({"a": facts_of("a", values)}, rule_base(), "a test"))
    assert re.search("<h1>Nothing found in [^<]+; nothing known of [^<]+</h1>", page)
    assert 'id="findings"' not in page


def test_a_study_that_keeps_an_examination_shows_its_findings_in_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study"
    shutil.copytree(EXAMPLE, study)
    assert run(["report", str(study), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checks"] is None
    (study / "doctor.json").write_bytes(msgspec.json.encode(examined("acs", "gdr-read", nodes=3)))
    assert run(["report", str(study), "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert checks["verdict"].startswith("2 findings: 1 error, 1 warning · ok ")
    assert [item["rule"] for item in checks["findings"]] == ["acs", "gdr-read"]
    assert run(["report", str(study)]) == 0
    page = (study / "report.html").read_text(encoding="utf-8")
    assert "<h2>Checks of the platform</h2>" in page
    assert 'id="rule-acs"' in page
    assert "on n[001-003]" in page


def shell_check(script: str) -> None:
    checked = subprocess.run(
        ["sh", "-n"], input=script, text=True, capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_the_script_has_commands_for_automatic_fixes_and_comments_for_manual_ones() -> None:
    script = fix_script(examined("acs", "override-environment", "memlock"))
    shell_check(script)
    commands = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert commands == [
        "set -eu",
        "setpci -s 0000:03:00.0 ECAP_ACS+0x6.w=0000",
        "printf '* soft memlock unlimited\\n* hard memlock unlimited\\n'"
        " > /etc/security/limits.d/90-rdma.conf",
    ]
    assert "# By hand: Take it away and measure again" in script


def test_the_script_for_many_nodes_asks_which_one_it_is_on() -> None:
    script = fix_script(examined("acs", nodes=3))
    shell_check(script)
    assert "# on n[001-003]" in script
    assert "n001|n002|n003)\n  setpci -s" in script


def test_foreign_text_in_the_script_is_quoted_and_ends_no_comment() -> None:
    script = fix_script(hostile())
    shell_check(script)
    ran = subprocess.run(
        ["sh"], input=script.replace("sed -i.bak", "printf '%s|'"), text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    assert ran.stdout == f"3s/^/# /|/etc/{HOSTILE}|"


def test_a_script_without_fixes_reports_nothing_to_change() -> None:
    script = fix_script(examine({"a": facts_of("a", {})}, rule_base(), "a test"))
    shell_check(script)
    assert "nothing to change" in script


@pytest.mark.parametrize("rule", [rule.id for rule in rule_base().rules if rule.text.fix])
def test_every_fix_script_is_valid_shell(rule: str) -> None:
    if rule_base().rule(rule).text.scope != "node":
        case = next(case for case in cases()[rule] if case.verdict is RuleVerdict.FINDING)
        found = examine(case.collected(), rule_base(), "a test")
    else:
        found = examined(rule)
    shell_check(fix_script(found))


def test_missing_fields_of_a_platform_are_filled_from_facts() -> None:
    values = {
        "gpus": [{"name": "NVIDIA H200"}] * 4,
        "gpu.paths": [{"a": 0, "b": 1, "kind": "NVL"}],
        "nccl.version": "2.28.9",
        "log.nvlink_domains": 1,
        "gpu.driver": "570.1",
        "hcas": [{"name": "mlx5_0", "link_layer": "Ethernet"}],
        "settings": [
            {"name": "NCCL_NVLS_ENABLE", "value": "0", "in_force": True},
            {"name": "NCCL_ALGO", "value": "Ring", "in_force": False},
            {"name": "FI_PROVIDER", "value": "efa", "in_force": True},
        ],
    }
    known = Platform(name="mine", nccl_version="2.27.5")
    one = fill_platform(known, {"a": facts_of("a", values)}, "2026-11-21T00:00:00+00:00")
    assert (one.name, one.nccl_version) == ("mine", "2.27.5")
    assert (one.gpu, one.gpus, one.link, one.network) == ("NVIDIA H200", 4, "NVLink", "RoCE")
    assert (one.driver_version, one.nodes, one.nvlink_domains) == ("570.1", None, 1)
    assert one.settings == {"NCCL_NVLS_ENABLE": "0"}
    nodes = {name: facts_of(name, values) for name in "ab"} | {"c": facts_of("c", {})}
    many = fill_platform(Platform(name="mine"), nodes, "2026-11-21T00:00:00+00:00")
    assert (many.nodes, many.nccl_version) == (3, "2.28.9")


def test_an_examination_survives_json() -> None:
    found = examined("acs", "gdr-read", nodes=2)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Examination) == found


def test_a_base_of_no_rules_is_no_error() -> None:
    found = examine({"a": facts_of("a", {})}, RuleBase(()), "a test")
    assert screen(found).startswith("verdict     nothing could be checked")
