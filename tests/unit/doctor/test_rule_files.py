# SPDX-License-Identifier: Apache-2.0
"""Files of rules: an error names the file, the rule and the field."""

import pytest

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
by_hand = "it is hardware"
remedy = { text = "Buy some." }
"""


def read(old: str = "", new: str = "") -> None:
    assert old in GOOD
    read_rules({"own.toml": GOOD.replace(old, new, 1)})


def test_a_good_file_reads() -> None:
    base = read_rules({"own.toml": GOOD})
    assert base.rule("gpus-few").needs == {"gpus"}
    assert base.families[0].title == "Own rules"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('family = "own"', 'family = "other"', "own.toml: family: 'other' is not the file's name"),
        ("[[rule]]", "[[rules]]", "own.toml: is no file of rules"),
        ("title =", "titel =", "own.toml: is no file of rules"),
        ('severity = "note"', 'severity = "bad"', "rule gpus-few: severity: invalid enum value"),
        ('severity = "note"\n', "", "rule gpus-few: .*missing required field `severity`"),
        ('severity = "note"', 'severity = "note"\ncolour = 1', "rule gpus-few: .*`colour`"),
        ('id = "gpus-few"', 'id = "GPUs few"', "rule GPUs few: id: "),
        ('id = "gpus-few"\n', "", "rule number 1 of the file: .*`id`"),
        ('title = "Few GPUs"', 'title = " "', "rule gpus-few: title: is empty"),
        ('check = "nvidia-smi -L"', 'check = ""', "rule gpus-few: check: is empty"),
        ('source = ["us"]', "source = []", "rule gpus-few: source: is empty"),
        ('finding = "len(gpus) < 8"\n', "", "finding, compare or code: exactly one"),
        ("len(gpus) < 8", "len(gpu) < 8", "rule gpus-few: finding: no fact is called 'gpu'"),
        ("len(gpus) < 8", "len(gpus < 8", "rule gpus-few: finding: not an expression"),
        ("{len(gpus)} GPUs", "{it.index}", "rule gpus-few: evidence: no fact is called 'it"),
        ("{len(gpus)} GPUs", "{len(gpus)", "rule gpus-few: evidence: a brace without"),
        ('evidence = "{len(gpus)} GPUs"\n', "", "rule gpus-few: evidence: is empty"),
        ('by_hand = "it is hardware"\n', "", "rule gpus-few: fix or by_hand: exactly one"),
        ("Buy some.", "Buy {gpu}.", "rule gpus-few: remedy.text: no fact is called 'gpu'"),
        ('text = "Buy some."', "text = 3", "rule gpus-few: remedy.text: expected `str`"),
        ("by_hand", 'nccl = { since = "new" }\nby_hand', "rule gpus-few: nccl: since or before"),
        ("by_hand", "nccl = { }\nby_hand", "rule gpus-few: nccl: since or before"),
        ('finding = "len(gpus) < 8"', 'code = "none"', "code: no function is called 'none'"),
        (
            'finding = "len(gpus) < 8"',
            'compare = { value = "len(gpus)", what = "GPUs" }',
            "compare: is for scope = 'cluster'",
        ),
        (
            'finding = "len(gpus) < 8"',
            'scope = "cluster"\ncompare = { value = "len(gp)", what = "GPUs" }',
            "compare.value: no fact is called 'gp'",
        ),
        ("len(gpus) < 8", "cpu.vendor in table.worse", "no table is called 'worse'"),
        (
            '[[rule]]\nid = "gpus-few"',
            '[[rule]]\nnumber = "1"\nid = "gpus-few"',
            "number: expected",
        ),
    ],
)
def test_an_error_names_file_rule_and_field(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        read(old, new)
    assert str(raised.value).startswith("own.toml")


def test_a_rule_id_is_unique() -> None:
    rule = GOOD.partition("[[rule]]")[2]
    with pytest.raises(InputError, match="is that of a rule in own.toml"):
        read_rules({"own.toml": f"{GOOD}[[rule]]{rule}"})


def test_a_rule_is_found_by_its_name_and_its_number() -> None:
    assert rule_base().rule("18") is rule_base().rule("gdr-read")
    with pytest.raises(InputError, match="no rule is called 'gdr-reed'") as raised:
        rule_base().rule("gdr-reed")
    assert "did you mean 'gdr-read'" in (raised.value.hint or "")


def test_a_rule_can_use_a_table() -> None:
    text = GOOD.replace("len(gpus) < 8", "cpu.vendor in table.bad")
    assert read_rules({"own.toml": text}).rules[0].needs == {"cpu.vendor", "gpus"}
