# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import msgspec
import pytest

from nccltune.analyze.result import Analysis
from nccltune.model.collective import Collective
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.scale import Scale
from nccltune.report.verdict import notes, outcome, verdict
from nccltune.tune.result import TunedGroup
from tests.unit.report.fixture import SCALE, SIZES, analysis, tuning

RULED, ALONE = tuning().groups
change: Callable[..., TunedGroup] = msgspec.structs.replace


def words(*groups: TunedGroup, of: Analysis | None = None) -> str:
    return verdict(of or analysis(), groups)[0]


def doubtful(group: TunedGroup) -> TunedGroup:
    rules = [msgspec.structs.replace(evidence, sure=False) for evidence in group.rules]
    return change(group, rules=rules, noise_source="assumed")


def without_default(group: TunedGroup) -> TunedGroup:
    decisions = [
        msgspec.structs.replace(row, default_us=None, gain=None) for row in group.decisions
    ]
    return change(group, decisions=decisions, expected_gain=None)


def test_a_gain_is_named_with_its_range() -> None:
    sentence, tone = verdict(analysis(), [RULED, ALONE])
    assert sentence == (
        "2 rules make all-reduce 1.5x faster between 1 and 256 KiB; the rest is right within noise "
        "and left as NCCL has it."
    )
    assert tone == "gain"


def test_one_rule_takes_the_singular() -> None:
    one = change(RULED, rules=RULED.rules[:1])
    assert words(one).startswith("1 rule makes all-reduce 1.5x faster between 1 and 16 KiB")


def test_several_gains_come_largest_first() -> None:
    other = change(RULED, collective=Collective.ALLGATHER, expected_gain=1.8)
    assert words(RULED, other).startswith(
        "4 rules make all-gather 1.8x faster between 1 and 256 KiB and all-reduce 1.5x between 1 "
        "and 256 KiB; "
    )


def test_more_than_three_collectives_are_counted() -> None:
    several = [
        change(RULED, collective=collective)
        for collective in (Collective.ALLREDUCE, Collective.ALLGATHER, Collective.REDUCE)
    ]
    assert " more" not in words(*several)
    last = change(RULED, collective=Collective.BROADCAST, expected_gain=1.1)
    assert " and 1 more; " in words(*several, last)
    assert "broadcast" not in words(*several, last)


def test_scales_and_registration_are_named_where_they_differ() -> None:
    wide = change(RULED, scale=Scale(4, 32), expected_gain=1.2)
    assert "all-reduce (4 nodes, 32 ranks) 1.2x" in words(RULED, wide)
    registered = change(RULED, registered=True)
    plain = change(RULED, registered=False)
    assert "all-reduce (registered) 1.5x" in words(plain, registered)


def test_the_rest_is_called_right_only_where_that_is_known() -> None:
    left = "everything else is left as NCCL has it"
    assert left not in words(RULED, ALONE)
    assert left in words(RULED, change(ALONE, noise_source="assumed"))
    crossed = Finding(
        kind=FindingKind.BAD_CROSSOVER,
        sentence="x",
        collective=Collective.REDUCESCATTER,
        scale=SCALE,
        min_bytes=SIZES[1],
        max_bytes=SIZES[2],
    )
    worse = msgspec.structs.replace(analysis(), findings=[crossed])
    assert left in words(RULED, ALONE, of=worse)


def test_assumed_noise_makes_a_gain_a_hope() -> None:
    assert words(doubtful(RULED), ALONE) == (
        "2 rules should make all-reduce 1.5x faster between 1 and 256 KiB; everything else is left "
        "as NCCL has it; noise is only assumed."
    )


def test_without_a_default_the_gain_is_unknown() -> None:
    sentence, tone = verdict(analysis(), [without_default(RULED)])
    assert sentence == (
        "2 rules name the fastest choice measured for all-reduce; the gain is unknown, because the "
        "default was not measured."
    )
    assert tone == "unknown"


def test_nothing_to_do_is_said_plainly() -> None:
    sentence, tone = verdict(analysis(), [ALONE])
    assert sentence == (
        "No rule is needed: NCCL's default is right everywhere, within noise (1.1 %); nothing is "
        "changed."
    )
    assert tone == "right"


@pytest.mark.parametrize(
    ("groups", "start"),
    [
        ([], "No rules: NCCL asks no tuner"),
        ([change(ALONE, noise_source="assumed")], "No rules: nothing beats NCCL's default by more"),
        ([without_default(ALONE)], "No rules: there is no default to beat"),
    ],
)
def test_no_rules_says_why(groups: list[TunedGroup], start: str) -> None:
    sentence, tone = verdict(analysis(), groups)
    assert sentence.startswith(start)
    assert tone == "unknown"


def test_an_empty_study_is_no_success() -> None:
    empty = Analysis(analysis().platform, [], [], 0)
    assert verdict(empty, []) == ("Nothing was measured yet.", "unknown")


def test_outcomes_of_groups() -> None:
    assert outcome(analysis(), RULED) == "2 rules at 3 of 5 sizes"
    assert outcome(analysis(), ALONE) == "NCCL's default is right, within noise"
    guessed = change(ALONE, noise_source="assumed")
    assert outcome(analysis(), guessed) == "no rule: the default is the fastest measured"


def test_notes_name_what_must_be_known_first_worst_first() -> None:
    found = notes(analysis().findings)
    assert [(note.text, note.target) for note in found] == [
        ("A run is not what it claims to be", "finding-1"),
        ("Not a tuning problem: check the base performance", "finding-3"),
    ]
    twice = notes([*analysis().findings, analysis().findings[0]])
    assert twice[0].text == "A run is not what it claims to be (2 findings)"
