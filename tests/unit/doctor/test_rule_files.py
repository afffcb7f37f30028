# SPDX-License-Identifier: Apache-2.0
"""The shipped files of rules: complete fields, unique names, errors that name the rule."""

import re

import pytest

from nccltune.doctor.code import CODE
from nccltune.doctor.rule import RuleScope, RuleText
from nccltune.doctor.rulebase import read_rules, rule_base
from nccltune.model.errors import InputError

GOOD = """
family = "own"
title = "Own rules"
[tables]
bad = ["x"]
[[rule]]
id = "gpus-few"
title = "Few GPUs"
severity = "note"
finding = "len(gpus) < 8"
evidence = "{len(gpus)} GPUs"
check = "nvidia-smi -L"
source = ["us"]
remedy = "Buy some."
"""


def test_a_good_file_reads() -> None:
    base = read_rules({"own.toml": GOOD})
    assert base.rule("gpus-few").needs == {"gpus"}
    assert base.families[0].title == "Own rules"


def test_a_rule_of_one_kind_of_lines() -> None:
    long = 'finding = "len(gpus) < 8"\nevidence = "{len(gpus)} GPUs"'
    rule = read_rules({"own.toml": GOOD.replace(long, 'failure = "nccl"')}).rule("gpus-few")
    assert rule.needs == {"failures"}
    assert rule.text.finding == "[f for f in failures if f.kind == 'nccl']"
    rule = read_rules({"own.toml": GOOD.replace(long, 'kernel_failure = "nic"')}).rule("gpus-few")
    assert (rule.needs, "it.count" in (rule.text.evidence or "")) == ({"kernel.failures"}, True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('severity = "note"', 'severity = "bad"', "rule gpus-few: Invalid enum value"),
        ('severity = "note"', 'severity = "note"\ncolour = 1', "rule gpus-few: .*`colour`"),
        ("len(gpus) < 8", "len(gpu) < 8", "rule gpus-few: no fact is called 'gpu'"),
        ("len(gpus) < 8", "len(gpus < 8", "rule gpus-few: not an expression"),
        ("{len(gpus)} GPUs", "{it.index}", "rule gpus-few: no fact is called 'it"),
        ("{len(gpus)} GPUs", "{len(gpus)", "rule gpus-few: a brace without"),
        ("Buy some.", "Buy {gpu}.", "rule gpus-few: no fact is called 'gpu'"),
        ("len(gpus) < 8", "cpu.vendor in table.worse", "no table is called 'worse'"),
    ],
)
def test_an_error_names_file_and_rule(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError, match=message) as raised:
        read_rules({"own.toml": GOOD.replace(old, new, 1)})
    assert str(raised.value).startswith("own.toml")


@pytest.mark.parametrize("text", [one.text for one in rule_base().rules], ids=lambda one: one.id)
def test_a_rule_is_complete(text: RuleText) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", text.id)
    assert all((text.title.strip(), text.check.strip(), text.source))
    assert [text.finding, text.compare, text.code].count(None) == 2
    assert text.finding is None or text.evidence
    assert text.compare is None or text.scope is RuleScope.CLUSTER
    assert text.code is None or text.code in CODE
    if text.nccl is not None:
        bounds = [one for one in (text.nccl.since, text.nccl.before) if one is not None]
        assert bounds
        assert all(re.fullmatch(r"2\.\d+(\.\d+)?", bound) for bound in bounds)


def test_names_of_rules_and_families_are_unique() -> None:
    texts = [rule.text for rule in rule_base().rules]
    for names in ([one.id for one in texts], [one.number for one in texts if one.number]):
        assert len(set(names)) == len(names)
    families = [family.name for family in rule_base().families]
    assert len(set(families)) == len(families)


def test_a_rule_is_found_by_its_name_and_its_number() -> None:
    assert rule_base().rule("18") is rule_base().rule("gdr-read")
    with pytest.raises(InputError, match="no rule is called 'gdr-reed'") as raised:
        rule_base().rule("gdr-reed")
    assert "did you mean 'gdr-read'" in (raised.value.hint or "")


def test_a_rule_can_use_a_table() -> None:
    text = GOOD.replace("len(gpus) < 8", "cpu.vendor in table.bad")
    assert read_rules({"own.toml": text}).rules[0].needs == {"cpu.vendor", "gpus"}
