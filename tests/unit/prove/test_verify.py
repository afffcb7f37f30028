# SPDX-License-Identifier: Apache-2.0
"""Which sizes a proof looks at, when they are good, and what becomes of rules."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from nccltune.measure.bench.conditions import PLAIN, CallKind
from nccltune.measure.bench.conversation import BenchPoint, PointError
from nccltune.model.choice import DEFAULT, TUNED_RUN
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale
from nccltune.prove.judge import (
    FIRST_LOOK,
    MOST_ROUNDS,
    SECOND_LOOK,
    ProofState,
    rule_state,
    size_state,
    strictness,
)
from nccltune.prove.plan import ProofPlan
from nccltune.prove.result import ProofPass
from nccltune.prove.sizes import ProvenCalls, applies, sizes_to_prove, taken
from nccltune.workload.demand import Demand
from tests.unit.prove.proofs import GRID, RULE, SCALE, K, M, Machine, drive, plan_for, proven, rule

ALLREDUCE = Collective.ALLREDUCE


def around(value: float, n: int, spread: float = 0.005) -> list[float]:
    return [value + (spread if index % 2 else -spread) for index in range(n)]


# --- sizes ---


def test_sizes_are_the_measured_ones_the_middles_and_both_sides_of_every_edge() -> None:
    sizes = sizes_to_prove(ALLREDUCE, SCALE, [1 * K, 4 * K, 16 * K], [rule(2000, 8191)])
    assert sizes == [1 * K, 1984, 2000, 2 * K, 4 * K, 8176, 8 * K, 16 * K]


def test_near_neighbours_have_no_middle_and_nothing_lies_beyond_what_was_measured() -> None:
    sizes = sizes_to_prove(ALLREDUCE, SCALE, [10_000, 10_800], [rule(0, 1 << 40)])
    assert sizes == [10_000, 10_800]


def test_all_gather_is_looked_at_in_whole_elements_of_every_rank() -> None:
    sizes = sizes_to_prove(Collective.ALLGATHER, SCALE, [1 * K, 1 * M], [])
    assert all(size % 16 == 0 for size in sizes)
    assert len(sizes) == 3


def test_a_rule_for_an_unmeasured_collective_is_looked_at_by_powers_of_two() -> None:
    sizes = sizes_to_prove(ALLREDUCE, SCALE, [], [rule(4 * K, 16 * K)])
    assert {4 * K, 8 * K, 16 * K} < set(sizes)
    assert (sizes[0], sizes[-1]) == (4 * K, 16 * K)
    assert sizes_to_prove(Collective.REDUCE, SCALE, [], [rule(4 * K, 16 * K)]) == []


def test_the_first_rule_that_matches_is_taken() -> None:
    rules = [rule(1 * K, 4 * K, nodes=2), rule(1 * K, 4 * K), rule(0, 1 * M, "ring/ll")]
    assert taken(rules, ALLREDUCE, 2 * K, SCALE) == 1
    assert taken(rules, ALLREDUCE, 8 * K, SCALE) == 2
    assert taken(rules, ALLREDUCE, 2 * M, SCALE) is None
    assert [applies(item, SCALE) for item in rules] == [False, True, True]
    assert not applies(rule(0, 1, registered=True), SCALE)
    assert not applies(rule(0, 1, pipe_ops=2), SCALE)
    assert applies(rule(0, 1, nodes=None, ranks=None), Scale(2, 8))


# --- judgement ---


def test_a_size_needs_a_second_look_to_be_called_slower() -> None:
    strict = strictness(50, 3).size
    assert size_state(around(-0.2, FIRST_LOOK - 1), 0.01, strict) is ProofState.OPEN
    assert size_state(around(-0.2, FIRST_LOOK), 0.01, strict) is ProofState.OPEN
    assert size_state(around(-0.2, SECOND_LOOK), 0.01, strict) is ProofState.BAD


def test_a_size_is_good_when_it_is_no_slower_than_the_floor() -> None:
    assert size_state(around(0.2, FIRST_LOOK), 0.01, 0.999) is ProofState.GOOD
    assert size_state(around(-0.003, 20, 0.002), 0.01, 0.999) is ProofState.GOOD
    # Slower for certain, by less than the noise floor.
    assert size_state(around(-0.02, MOST_ROUNDS, 0.001), 0.03, 0.999) is ProofState.GOOD


def test_what_cannot_be_told_from_noise_is_not_slower_in_the_end() -> None:
    noisy = around(-0.015, MOST_ROUNDS, 0.2)
    assert size_state(noisy[:-1], 0.01, 0.999) is ProofState.OPEN
    assert size_state(noisy, 0.01, 0.999) is ProofState.GOOD


def test_a_rule_must_be_faster_by_more_than_the_noise() -> None:
    assert rule_state(around(0.2, FIRST_LOOK), 0.01, 0.98) is ProofState.GOOD
    assert rule_state(around(0.005, FIRST_LOOK), 0.01, 0.98) is ProofState.OPEN
    assert rule_state(around(0.005, MOST_ROUNDS, 0.001), 0.01, 0.98) is ProofState.BAD
    assert rule_state(around(-0.1, SECOND_LOOK), 0.01, 0.98) is ProofState.BAD
    assert rule_state([], 0.01, 0.98) is ProofState.OPEN


def test_many_equal_sizes_give_no_false_alarm() -> None:
    """By one interval of 95 % a look at 40 sizes would call one of them slower on every try."""
    random_ = random.Random(3)
    strict = strictness(40, 1).size
    bad = 0
    for _ in range(400):
        gains = [random_.gauss(0, 0.05) for _ in range(MOST_ROUNDS)]
        looks = range(FIRST_LOOK, MOST_ROUNDS, 4)
        bad += any(size_state(gains[:n], 0.01, strict) is ProofState.BAD for n in looks)
    assert bad <= 4


# --- rules ---


def test_a_good_rule_holds_and_the_rest_is_left_alone() -> None:
    plan = proven(1.3)
    assert plan.bad([]) == []
    (verdict,) = plan.verdicts({plan.rules[0]: 1.29})
    assert (verdict.verdict, verdict.expected, verdict.reason) == ("holds", 1.29, None)
    assert verdict.gain == pytest.approx(1.3, abs=0.02)
    assert verdict.gain_low is not None
    assert verdict.gain_low > 1.25
    assert (verdict.sizes, verdict.between) == (9, 4)
    (group,) = plan.groups()
    inside = [size for size in group.sizes if size.choice]
    assert {size.verdict for size in inside} == {"faster"}
    assert {size.verdict for size in group.sizes if not size.choice} == {"left alone"}
    assert {size.rounds for size in group.sizes} == {FIRST_LOOK}
    assert inside[0].ran == "tree/ll/4"


def test_a_rule_that_is_slower_in_the_middle_is_removed() -> None:
    two = RULE, rule(128 * K, 512 * K, "ring/ll")
    plan = proven(lambda size: 0.9 if size == 16 * K else 1.3, *two)
    (dropped,) = plan.bad([])
    assert dropped.rule == plan.rules[0]
    assert dropped.narrowed is None
    assert dropped.reason.startswith("slower: 0.9")
    assert "at 16 KiB" in dropped.reason
    assert [item.verdict for item in plan.verdicts({})][1] == "holds"
    slower = [size.bytes for size in plan.groups()[0].sizes if size.verdict == "slower"]
    assert slower == [16 * K]


def test_a_rule_that_is_slower_at_its_end_is_narrowed_once() -> None:
    plan = proven(lambda size: 0.9 if size > 40 * K else 1.3)
    (dropped,) = plan.bad([])
    assert dropped.narrowed == rule(4 * K, 32 * K)
    (again,) = plan.bad([RULE])
    assert again.narrowed is None


def test_a_fluke_does_not_remove_a_good_rule() -> None:
    plan = proven(1.2, hiccup=lambda size, n: 1.6 if size == 4 * K and n < 3 else 1)
    assert plan.bad([]) == []
    sizes = {size.bytes: size for size in plan.groups()[0].sizes}
    assert sizes[4 * K].rounds >= SECOND_LOOK
    assert sizes[8 * K].rounds == FIRST_LOOK


def fails_at_4_kib(kind: str) -> dict[str, Callable[[int], str | None]]:
    return {"fails": lambda size: kind if size == 4 * K else None}


@pytest.mark.parametrize(
    ("label", "gain", "machine", "words"),
    [
        ("tree/ll", 1.0, {}, "no gain beyond noise: 1.00x"),
        ("tree/ll", 1.3, fails_at_4_kib("wrong"), "wrong results at 4 KiB"),
        ("tree/ll", 1.3, fails_at_4_kib("timeout"), "fails (timeout)"),
        # Channels that the rule sets are part of its choice.
        ("ring/simple/8", 1.0, {}, "no gain beyond noise"),
    ],
)
def test_a_rule_that_does_harm_or_no_good_is_removed(
    label: str, gain: float, machine: dict[str, Any], words: str
) -> None:
    plan = proven(gain, rule(4 * K, 64 * K, label), **machine)
    (dropped,) = plan.bad([])
    assert words in dropped.reason
    assert dropped.narrowed is None
    assert plan.groups()[0].rounds <= MOST_ROUNDS


def test_wrong_results_remove_each_rule_of_the_choice() -> None:
    rules = [
        rule(4 * K, 16 * K),
        rule(32 * K, 64 * K, "tree/ll/4"),
        rule(128 * K, 128 * K, "ring/ll"),
    ]
    dropped = proven(1.3, *rules, **fails_at_4_kib("wrong")).bad([])
    assert [(item.rule, item.reason) for item in dropped] == [
        (rules[0], "wrong results at 4 KiB"),
        (rules[1], "tree/ll gave wrong results at 4 KiB"),
    ]


def test_a_rule_that_changes_nothing_is_removed() -> None:
    (dropped,) = proven(1.3, ran=lambda _, __: "ring/simple").bad([])
    assert dropped.reason == "has no effect: NCCL ran ring/simple"
    plan = proven(1.0, rule(4 * K, 64 * K, "ring/simple"))
    (dropped,) = plan.bad([])
    assert dropped.reason == "equal to the default: NCCL runs ring/simple without the rule, too"
    assert dropped.narrowed is None
    assert plan.groups()[0].rounds == FIRST_LOOK, "more rounds show no more"


def test_what_cannot_be_measured_is_told_and_no_failure() -> None:
    plan = proven(1.3, fails=lambda _: "unsupported")
    assert plan.bad([]) == []
    (verdict,) = plan.verdicts({})
    assert verdict.verdict == "unverified"
    assert verdict.reason == "could not be measured: unsupported here"
    some = proven(1.3, fails=lambda size: "unsupported" if size == 8 * K else None)
    (verdict,) = some.verdicts({})
    assert (verdict.verdict, verdict.reason) == ("holds", "1 size could not be measured")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": 2}, "another scale"),
        ({"registered": True}, "for registered buffers, which cannot be measured here"),
        ({"pipe_ops": 2}, "for numPipeOps 2; the calls measured have 1: give the calls of a group"),
    ],
)
def test_a_rule_for_other_calls_is_kept_and_told(changes: dict[str, object], words: str) -> None:
    plan = proven(0.5, rule(4 * K, 64 * K, **changes))
    assert plan.bad([]) == []
    (verdict,) = plan.verdicts({})
    assert verdict.verdict == "unverified"
    assert words in (verdict.reason or "")


REGISTERED = ProvenCalls(CallKind(registered=True))
GROUPS = ProvenCalls(CallKind(group_calls=60), 3)


@pytest.mark.parametrize(
    ("changes", "calls"),
    [
        ({"registered": True}, REGISTERED),
        ({"pipe_ops": 3}, GROUPS),
        ({"registered": True, "pipe_ops": 3}, ProvenCalls(CallKind(True, 60), 3)),
    ],
)
def test_a_rule_for_other_calls_is_measured_with_these(
    changes: dict[str, object], calls: ProvenCalls
) -> None:
    tested = rule(4 * K, 64 * K, **changes)
    plan = plan_for([tested], 0, calls)
    known = drive(plan, Machine(lambda _: 1.3))
    (verdict,) = plan.verdicts({})
    assert verdict.verdict == "holds"
    assert verdict.gain == pytest.approx(1.3, rel=0.02)
    assert {key.calls for key in known} == {PLAIN, calls.kind}
    # Every call of a group has whole elements.
    assert all(key.bytes % (4 * key.calls.group_calls) == 0 for key in known)
    titles = [group.calls_title for group in plan.groups()]
    assert titles == ["", calls.title]
    (removed,) = proven(0.5, tested, others=[calls]).bad([])
    assert calls.title in removed.reason


def test_a_rule_for_any_calls_must_not_be_slower_with_any_of_them() -> None:
    slower = {"with_calls": lambda kind: 0.6 if kind.registered else 1.0}
    (removed,) = proven(1.3, others=[REGISTERED], **slower).bad([])
    assert removed.reason.startswith("slower: ")
    assert removed.reason.endswith("(registered)")
    # No gain with registered buffers is no harm.
    as_fast = {"with_calls": lambda kind: 1 / 1.3 if kind.registered else 1}
    alike = proven(1.3, others=[REGISTERED], **as_fast)
    assert alike.bad([]) == []
    (verdict,) = alike.verdicts({})
    assert verdict.verdict == "holds"
    assert verdict.gain == pytest.approx(1.3, rel=0.02)


def test_a_rule_for_unregistered_buffers_is_not_measured_with_registered_ones() -> None:
    plan = plan_for([rule(4 * K, 64 * K, registered=False)], 0, REGISTERED)
    known = drive(plan, Machine(lambda _: 1.3))
    assert {key.calls for key in known} == {PLAIN}
    assert plan.verdicts({})[0].verdict == "holds"


def test_a_rule_behind_others_is_told() -> None:
    plan = proven(1.2, rule(1 * K, 1 * M), rule(4 * K, 64 * K, "ring/ll"))
    assert "other rules take all of it first" in (plan.verdicts({})[1].reason or "")


def test_something_else_running_outside_of_rules_is_seen() -> None:
    plan = plan_for([RULE])
    known = drive(plan, Machine(lambda _: 1.2))
    key = next(key for key in known if key.choice == TUNED_RUN and key.bytes == 1 * M)
    other = Machine(lambda _: 1.2, ran=lambda _, __: "tree/simple").answer(key, plan.rules)
    plan.feed(key._replace(round=FIRST_LOOK), other)
    verdicts = {size.bytes: size.verdict for size in plan.groups()[0].sizes}
    assert verdicts[1 * M] == "not alike"


def test_a_later_pass_measures_only_what_changed() -> None:
    before = [rule(1 * K, 2 * K, "ring/ll"), rule(4 * K, 64 * K)]
    first = plan_for(before)
    known: dict[object, BenchPoint] = dict(drive(first, Machine(lambda _: 1.2)))
    after = before[1:]
    passes = [ProofPass(0, before), ProofPass(100, after)]
    second = plan_for(after, 100)
    second.carry(known, passes)  # type: ignore[arg-type]
    machine = Machine(lambda _: 1.2)
    asked = drive(second, machine)
    assert {key.bytes for key in asked} == {
        size for size in first.proofs[ALLREDUCE, PLAIN].sizes if size <= 2 * K
    }
    assert {key.round for key in asked} == set(range(100, 100 + FIRST_LOOK))
    assert second.verdicts({})[0].verdict == "holds"


def test_timings_of_a_pass_are_not_carried_over_one_with_another_rule() -> None:
    rules, other = [RULE], [rule(4 * K, 64 * K, "ring/ll")]
    known: dict[object, BenchPoint] = dict(drive(plan_for(rules), Machine(lambda _: 1.2)))
    third = plan_for(rules, 200)
    third.carry(known, [ProofPass(0, rules), ProofPass(100, other), ProofPass(200, rules)])  # type: ignore[arg-type]
    asked = {key.bytes for key in drive(third, Machine(lambda _: 1.2))}
    assert {4 * K, 16 * K} <= asked
    assert 1 * K not in asked


def test_a_default_that_fails_is_not_the_fault_of_a_rule() -> None:
    plan = plan_for([RULE])
    known = drive(plan, Machine(lambda _: 1.3))
    key = next(key for key in known if key.choice == DEFAULT and key.bytes == 16 * K)
    failed = BenchPoint(bytes=key.bytes, choice=DEFAULT, error=PointError("timeout", "no answer"))
    plan.feed(key._replace(round=FIRST_LOOK), failed)
    assert plan.bad([]) == []
    assert plan.proofs[ALLREDUCE, PLAIN].lost == {16 * K: "no answer"}


def test_a_point_that_got_stuck_before_is_not_tried_again() -> None:
    rules = [RULE]
    stuck = Machine(lambda _: 1.2, fails=lambda size: "timeout" if size == 16 * K else None)
    known = {
        key: point
        for key, point in drive(plan_for(rules), stuck).items()
        if key.round == 0 and point.error is not None
    }
    assert len(known) == 1
    resumed = plan_for(rules)
    resumed.carry(known, [ProofPass(0, rules)])
    asked = drive(resumed, Machine(lambda _: 1.2))
    assert 16 * K not in {key.bytes for key in asked}
    assert "timeout" in resumed.bad([])[0].reason


# --- for a job ---


def _plan_for_job(*rules: Rule, **calls: float) -> ProofPlan:
    """Return the plan for a job; `calls` are its numbers of calls by size, such as `k64=10`."""
    sizes = {int(name[1:]) * K: number for name, number in calls.items()}
    wanted = {ALLREDUCE: Demand(sizes, {})}
    return ProofPlan(rules, SCALE, {ALLREDUCE: GRID}, 0, wanted=wanted)


def test_a_proof_for_a_job_looks_at_its_sizes_and_the_ends_of_their_rules() -> None:
    registered = rule(4 * K, 64 * K, "ring/ll", registered=True)
    plan = _plan_for_job(RULE, rule(128 * K, 1 * M), registered, k16=9, k24=9, k4096=9)
    (proof,) = plan.proofs.values()
    assert proof.sizes == [4 * K, 16 * K, 24 * K, 64 * K]
    drive(plan, Machine(lambda _: 1.2))
    first, *others = plan.verdicts({})
    assert first.verdict == "holds"
    assert [item.verdict for item in others] == ["unverified", "unverified"]
    reasons = [item.reason or "" for item in others]
    assert reasons[0].startswith("the job sends nothing in its range")
    assert "registered buffers" in reasons[1]


@pytest.mark.parametrize(("often", "verdict"), [("k8", "holds"), ("k32", "removed")])
def test_a_rule_holds_where_the_job_spends_its_time(often: str, verdict: str) -> None:
    """A rule that is 1.3x at 8 KiB and costs nothing and gains nothing from 16 KiB on."""
    plan = _plan_for_job(RULE, **{"k8": 1, "k32": 1, often: 1e6})
    drive(plan, Machine(lambda size: 1.3 if size <= 8 * K else 1.0, noise=0.004))
    (found,) = plan.verdicts({})
    removed = plan.bad([])
    assert (found.verdict if not removed else "removed") == verdict
    if verdict == "holds":
        assert found.gain == pytest.approx(1.3, rel=0.02)
