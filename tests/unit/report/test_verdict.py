# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nccltune.analyze.result import Analysis
from nccltune.model.collective import Collective
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.rule import RuleState
from nccltune.model.scale import Scale
from nccltune.prove.result import Proof, RemovedRule
from nccltune.report.remarks import grouped
from nccltune.report.verdict import group_summary, notes, proven_gains, verdict
from nccltune.tune.result import TunedGroup
from tests.unit.report.fixture import SCALE, SIZES, analysis, proof, tuning

RULED, ALONE = tuning().groups
change: Callable[..., TunedGroup] = replace


def words(*groups: TunedGroup, of: Analysis | None = None) -> str:
    return verdict(of or analysis(), groups)[0]


def doubtful(group: TunedGroup) -> TunedGroup:
    rules = [replace(evidence, state=RuleState.CANDIDATE) for evidence in group.rules]
    return change(group, rules=rules, noise_source="assumed")


def without_default(group: TunedGroup) -> TunedGroup:
    decisions = [replace(row, default_us=None, gain=None) for row in group.decisions]
    rules = [replace(item, state=RuleState.CANDIDATE, gain=None) for item in group.rules]
    return change(group, decisions=decisions, rules=rules, expected_gain=None)


OTHERS_KEEP = "All other sizes keep NCCL's default."


@pytest.mark.parametrize(
    ("groups", "start", "tone"),
    [
        (
            [RULED, ALONE],
            "1 rule is expected to make all-reduce 1.50x faster between 1 and 16 KiB. 1 more "
            "candidate for all-reduce, not proven: the gain is not sure yet. No other size "
            "improved by more than noise; those keep NCCL's default.",
            "gain",
        ),
        (
            [change(RULED, rules=RULED.rules[:1])],
            "1 rule is expected to make all-reduce 1.50x faster between 1 and 16 KiB",
            "gain",
        ),
        (
            [RULED, change(RULED, collective=Collective.ALLGATHER, expected_gain=1.8)],
            "2 rules are expected to make all-gather 1.80x and all-reduce 1.50x faster where they "
            "apply. ",
            "gain",
        ),
        (
            [doubtful(RULED), ALONE],
            "2 candidates for all-reduce, none proven: the gain is not sure yet. " + OTHERS_KEEP,
            "unknown",
        ),
        (
            [without_default(RULED)],
            "2 candidates for all-reduce, none proven: the gain is unknown, because the default "
            "was not measured. " + OTHERS_KEEP,
            "unknown",
        ),
        (
            [ALONE],
            "No rule is needed: NCCL's default is right everywhere, within noise (1.1 %); nothing "
            "is changed.",
            "right",
        ),
        ([], "No rules: nothing was compared", "unknown"),
        (
            [change(ALONE, noise_source="assumed")],
            "No rules: nothing beats NCCL's default by more",
            "unknown",
        ),
        ([without_default(ALONE)], "No rules: there is no default to beat", "unknown"),
        (
            [change(ALONE, left_alone=[replace(x, compared=False) for x in ALONE.left_alone])],
            "No rules: only NCCL's default was measured, so nothing was compared with it.",
            "unknown",
        ),
    ],
)
def test_what_rules_are_expected_to_do(groups: list[TunedGroup], start: str, tone: str) -> None:
    sentence, found = verdict(analysis(), groups)
    assert sentence.startswith(start)
    assert not start.endswith(".") or sentence == start, "a whole sentence is all that is said"
    assert found == tone


@pytest.mark.parametrize(
    ("groups", "proved", "start", "tone"),
    [
        (
            [RULED, ALONE],
            proof(replay="x"),
            "Proven in a replay: 2 rules make all-reduce 1.39x faster",
            "gain",
        ),
        (
            [RULED, ALONE],
            proof(second="open", slower=1),
            "Proven: 1 rule makes all-reduce 1.50x faster between 1 and 58.6 KiB. 1 size is slower "
            "than the default. 1 more is not proven. ",
            "gain",
        ),
        (
            [ALONE],
            replace(proof(), rules=[], dropped=[RemovedRule(RULED.rules[0].rule, "slower")]),
            "No rule held in the proof: 1 rule was removed.",
            "unknown",
        ),
    ],
)
def test_what_a_proof_found(groups: list[TunedGroup], proved: Proof, start: str, tone: str) -> None:
    sentence, found = verdict(analysis(), groups, proved)
    assert sentence.startswith(start)
    assert found == tone


def test_more_than_three_collectives_are_counted() -> None:
    several = [
        change(RULED, collective=collective)
        for collective in (Collective.ALLREDUCE, Collective.ALLGATHER, Collective.REDUCE)
    ]
    assert " and 1 more" not in words(*several)
    last = change(RULED, collective=Collective.BROADCAST, expected_gain=1.1)
    assert " and 1 more faster where they apply. " in words(*several, last)
    assert "broadcast" not in words(*several, last)


def test_scales_and_registration_are_named_where_they_differ() -> None:
    wide = change(RULED, scale=Scale(4, 32), expected_gain=1.2)
    assert "all-reduce (4 nodes, 32 ranks) 1.20x" in words(RULED, wide)
    registered = change(RULED, registered=True)
    plain = change(RULED, registered=False)
    assert "all-reduce (registered) 1.50x" in words(plain, registered)


def test_the_rest_is_called_right_only_where_that_is_known() -> None:
    assert OTHERS_KEEP not in words(RULED, ALONE)
    assert OTHERS_KEEP in words(RULED, change(ALONE, noise_source="assumed"))
    crossed = Finding(
        kind=FindingKind.BAD_CROSSOVER,
        sentence="x",
        collective=Collective.REDUCESCATTER,
        scale=SCALE,
        min_bytes=SIZES[1],
        max_bytes=SIZES[2],
    )
    worse = replace(analysis(), findings=[crossed])
    assert OTHERS_KEEP in words(RULED, ALONE, of=worse)


def test_candidates_at_several_scales_are_named_by_collective() -> None:
    """With three scales the headline would have more than two lines."""
    groups = [
        change(doubtful(RULED), scale=replace(SCALE, ranks=SCALE.nodes * each))
        for each in (1, 2, 4)
    ]
    assert words(*groups).startswith("6 candidates for all-reduce, none proven: ")
    assert "(2 nodes, 4 ranks)" in words(*groups[:2])


def test_an_empty_study_is_no_success() -> None:
    empty = Analysis(analysis().platform, [], [], 0)
    assert verdict(empty, []) == ("Nothing was measured yet.", "unknown")


def test_outcomes_of_groups() -> None:
    assert group_summary(analysis(), RULED) == "1 rule between 1 and 16 KiB, and 1 candidate"
    assert group_summary(analysis(), ALONE) == "NCCL's default is right, within noise"
    guessed = change(ALONE, noise_source="assumed")
    assert group_summary(analysis(), guessed) == "no rule: the default is the fastest measured"


def test_notes_name_what_must_be_known_first_worst_first() -> None:
    found = notes(grouped(analysis().findings))
    assert [(note.text, note.target) for note in found] == [
        ("A run is not what it claims to be", "finding-1"),
        ("Not a tuning problem: reduce-scatter 256 KiB – 4 MiB", "finding-3"),
    ]
    twice = notes(grouped([*analysis().findings, analysis().findings[0]]))
    assert twice[0].text == "A run is not what it claims to be (2 findings)"


def test_a_note_names_two_places_and_counts_the_others() -> None:
    here = analysis().findings[2]
    ranges = [(1 << power, 2 << power) for power in (10, 14, 18)]
    several = [replace(here, min_bytes=low, max_bytes=high) for low, high in ranges]
    assert notes(grouped(several))[0].text == (
        "Not a tuning problem: reduce-scatter 1 KiB – 2 KiB, reduce-scatter 16 KiB – 32 KiB and 1 "
        "more"
    )


def test_a_proof_makes_the_headline_state_what_was_proven() -> None:
    sentence, tone = verdict(analysis(), [RULED, ALONE], proof())
    assert sentence == (
        "Proven: 2 rules make all-reduce 1.39x faster between 1 KiB and 1 MiB. No other size "
        "improved by more than noise; those keep NCCL's default."
    )
    assert tone == "gain"
    assert group_summary(analysis(), RULED, proven_gains(proof(), [RULED])[0]) == (
        "2 rules between 1 KiB and 1 MiB"
    )


def test_a_proof_of_other_rules_proves_nothing_here() -> None:
    moved = replace(RULED.rules[0].rule, max_bytes=50_000)
    rules = [replace(RULED.rules[0], rule=moved), RULED.rules[1]]
    other = change(RULED, rules=rules)
    assert proven_gains(proof(), [other]) == [None]
    assert " is expected to make " in verdict(analysis(), [other], proof())[0]


def test_a_proof_without_a_gain_leaves_the_expectation_and_says_so() -> None:
    sentence, _ = verdict(analysis(), [RULED], proof(first="open", second="open"))
    assert sentence.startswith("1 rule is expected to make")
    assert "The proof has not confirmed a gain." in sentence
