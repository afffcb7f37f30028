# SPDX-License-Identifier: Apache-2.0
"""Every rule on evidence that triggers it, on evidence that does not, and on none at all."""

import pytest

from nccltune.doctor.examine import MISFIT, examine
from nccltune.doctor.facts import Facts
from nccltune.doctor.result import RuleVerdict
from nccltune.doctor.rulebase import Family, RuleBase, rule_base
from tests.unit.doctor.rule_cases import Case, cases

CASES = [
    pytest.param(rule, case, id=f"{rule}-{number}-{case.verdict}")
    for rule, listed in cases().items()
    for number, case in enumerate(listed, 1)
]


def only(rule_id: str) -> RuleBase:
    """Return a rule base of one rule."""
    rule = rule_base().rule(rule_id)
    return RuleBase((Family(rule.family, "", (rule,)),))


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_a_case_gets_its_verdict(rule: str, case: Case) -> None:
    (judged,) = examine(case.collected(), only(rule), "a case").rules
    assert judged.verdict is case.verdict, judged
    assert not any(MISFIT in missing for missing in judged.missing)
    if case.verdict is RuleVerdict.FINDING:
        assert judged.evidence
        assert judged.remedy
        assert judged.check
        assert "{" not in judged.remedy + "".join(judged.commands)
        assert not any(item.text == "unknown" for item in judged.evidence)
    else:
        assert judged.evidence == ()
        assert judged.fix == ()
    if case.says is not None:
        assert any(case.says in item.text for item in judged.evidence), judged.evidence
    if case.named is not None:
        assert sorted({name for item in judged.evidence for name in item.nodes}) == case.named
    if case.missing is not None:
        assert case.missing in judged.missing
    if case.advises is not None:
        assert case.advises in "\n".join((judged.remedy, *judged.commands))
    if case.fix is not None:
        assert case.fix in [line for fix in judged.fix for line in fix.lines]


@pytest.mark.parametrize("rule", [rule.id for rule in rule_base().rules])
def test_a_rule_has_cases_for_and_against_it(rule: str) -> None:
    verdicts = [case.verdict for case in cases()[rule]]
    assert RuleVerdict.FINDING in verdicts, f"{rule}: no case that triggers it"
    assert RuleVerdict.OK in verdicts, f"{rule}: no case that it looks at and finds well"


def test_cases_and_rules_have_the_same_ids() -> None:
    assert set(cases()) == {rule.id for rule in rule_base().rules}


def test_the_66_numbers_are_there() -> None:
    numbers = [rule.text.number for rule in rule_base().rules if rule.text.number is not None]
    assert sorted(numbers) == list(range(1, 67))


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_without_facts_no_rule_is_ok(names: list[str]) -> None:
    found = examine({name: Facts(name) for name in names}, rule_base(), "nothing")
    for judged in found.rules:
        assert judged.verdict in (RuleVerdict.CANNOT_TELL, RuleVerdict.NOT_APPLICABLE), judged.rule
        if judged.verdict is RuleVerdict.CANNOT_TELL:
            assert judged.missing, judged.rule
