# SPDX-License-Identifier: Apache-2.0
import pytest

from nccltune.formats.tuner_config.csv_rules import parse_rules, rows_text, write_rules
from nccltune.formats.tuner_config.joined import NamedRules, joined_rules
from nccltune.model.choice import parse_choice
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.rule import Rule

HEADER = {"schema": "1", "nccl": "2.28.9", "gpu": "NVIDIA H200"}


def rule(low: int, high: int, nodes: int | None, choice: str = "tree/ll", **more: int) -> Rule:
    ranks = None if nodes is None else 8 * nodes
    return Rule(Collective.ALLREDUCE, low, high, parse_choice(choice), nodes, ranks, **more)  # type: ignore[arg-type]


def part(name: str, *rules: Rule, **header: str) -> NamedRules:
    marks = dict.fromkeys(rules, f"# sure: of {name}")
    return NamedRules(name, write_rules(rules, HEADER | {"study": name} | header, marks))


def test_the_rules_of_all_scales_are_in_one_whole_file() -> None:
    first, second = rule(1, 9, 2), rule(1, 99, 4, "ring/simple")
    text = joined_rules([part("a", first, created="1", rows="9"), part("b", second, created="2")])
    found = parse_rules(text, strict=True)
    assert [item.rule for item in found.rules] == [first, second]
    assert [item.state for item in found.rules] == ["sure", "sure"]
    joint = {"study": "a + b", "rows": rows_text([first, second]), "end": "below"}
    assert found.header == HEADER | joint
    assert text.splitlines()[-1] == "# nccltune: end=here"
    assert "# sure: of b" in text


def test_a_file_by_hand_needs_no_header_and_no_last_line_end() -> None:
    rows = "allreduce,1,9,tree,ll,-1,{0},{0}\n"
    text = joined_rules(
        [NamedRules("a", rows.format(2)), NamedRules("b", "\ufeff" + rows.format(4))]
    )
    assert len(parse_rules(text, strict=True).rules) == 2


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (part("b", rule(1, 9, 4), nccl="2.30.7"), "nccl is 2.28.9 in a, 2.30.7 in b"),
        (part("b", rule(1, 9, 4), gpu="NVIDIA B200"), "gpu is NVIDIA H200 in a, NVIDIA B200 in b"),
        (NamedRules("b", "allreduce,1,9,tree,ll,-1,4,32\n"), "nccl is 2.28.9 in a, unknown in b"),
        (part("b", rule(5, 50, 2, "ring/ll")), "a:4 and b:4 are different rules"),
        (part("b", rule(5, 50, None, "ring/ll")), "a:4 and b:4 are different rules"),
        (NamedRules("b", "allreduce,1K,9,tree,ll,-1,4,32\n"), "b:1: column 2"),
    ],
)
def test_what_does_not_fit_into_one_file_is_refused(other: NamedRules, message: str) -> None:
    with pytest.raises(InputError) as caught:
        joined_rules([part("a", rule(1, 9, 2)), other])
    assert message in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "other",
    [rule(10, 50, 2, "ring/ll"), rule(1, 9, 4, "ring/ll"), rule(1, 9, 2, "tree/ll")],
    ids=["other sizes", "another scale", "the same choice"],
)
def test_rules_that_do_not_contradict_fit(other: Rule) -> None:
    joined_rules([part("a", rule(1, 9, 2)), part("b", other)])
