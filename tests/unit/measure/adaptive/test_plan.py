# SPDX-License-Identifier: Apache-2.0
"""The adaptive plan on platforms whose true times are known."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nccltune.measure.adaptive.collective_plan import MOST_TRIAL_ROUNDS, PlanOptions
from nccltune.measure.adaptive.plan import ExhaustivePlan, Plan
from nccltune.measure.bench.conversation import BenchPoint, ExecutedChoice, PointError, PointKey
from nccltune.model.choice import DEFAULT, Choice
from nccltune.model.rule import Rule
from nccltune.tune.result import TuneOptions
from nccltune.tune.search import search
from tests.unit.builders import choice
from tests.unit.measure.platforms import (
    Curves,
    K,
    M,
    Platform,
    collective_plan,
    drive,
    linear,
    rule_regret,
    steps,
    timings_of,
)

SIZES = [round(K * 2 ** (step / 2)) for step in range(33)]
# No shrinking: each example is a whole sweep, and hypothesis shrinks for up to five minutes.
CAREFUL = settings(
    max_examples=30, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate]
)


@st.composite
def curves(draw: st.DrawFn) -> Curves:
    """Return two to five choices, some of the faster ones with more latency.

    The default runs one choice up to some size and another from there on, which may be right or
    wrong.
    """
    labels = ["tree/ll", "tree/simple", "ring/ll", "ring/ll128", "ring/simple"]
    number = draw(st.integers(2, 5))
    lines = {
        label: linear(draw(st.floats(5, 100)), draw(st.floats(500, 50_000)))
        for label in labels[:number]
    }
    first, second = draw(st.sampled_from(labels[:number])), draw(st.sampled_from(labels[:number]))
    switch = K * 2 ** draw(st.floats(0, 16))
    return Curves(lines, lambda size: first if size < switch else second)


@CAREFUL
@given(curves(), st.sampled_from([0.002, 0.01, 0.03]), st.integers(0, 1000))
def test_what_is_left_to_gain_is_about_the_threshold(
    exact: Curves, noise: float, seed: int
) -> None:
    platform = Platform(exact, noise=noise, seed=seed)
    plan = Plan([collective_plan(list(exact.lines))])
    drive(plan, platform)
    every = ExhaustivePlan([collective_plan(list(exact.lines))], rounds=8)
    drive(every, Platform(exact, noise=noise, seed=seed + 1))
    ours = rule_regret(timings_of(plan), exact, SIZES)
    yardstick = rule_regret(timings_of(every), exact, SIZES)
    assert ours - yardstick <= 0.01 + noise / 2
    assert len(set(platform.points)) == len(platform.points)


@CAREFUL
@given(
    st.floats(K * 2**3.5, K * 2**14.5),
    st.floats(1.5, 6),
    st.sampled_from([0.0, 0.003, 0.01]),
    st.booleans(),
    st.integers(0, 1000),
)
def test_a_crossing_is_found_within_a_tenth(
    crossing: float, factor: float, noise: float, default_has_latency: bool, seed: int
) -> None:
    """tree is better below the crossing, ring above. The default runs one of them at every size."""
    tree = linear(20, crossing / (20 * factor))
    ring = linear(20 * factor, crossing / 20)
    assert tree(round(crossing)) == pytest.approx(ring(round(crossing)), rel=0.001)
    exact = Curves(
        {"tree/ll": tree, "ring/simple": ring},
        lambda _: "ring/simple" if default_has_latency else "tree/ll",
    )
    plan = Plan([collective_plan(list(exact.lines))])
    drive(plan, Platform(exact, noise=noise, seed=seed))
    (group,) = search([timings_of(plan)])
    (rule,) = [item.rule for item in group.rules]
    assert rule.choice == choice("tree/ll" if default_has_latency else "ring/simple")
    edge = rule.max_bytes if default_has_latency else rule.min_bytes
    # The rule search ends a rule where its gain falls below the least gain, which is at least 1 %,
    # or between the two measured sizes around that.
    lead = math.log(ring(edge) / tree(edge)) * (1 if default_has_latency else -1)
    assert lead >= -0.005 - 2 * noise
    sizes = [round(crossing * 1.01**step) for step in range(-60, 61)]
    toll = min(sizes, key=lambda size: abs(abs(math.log(ring(size) / tree(size))) - 0.01))
    near = min(toll, crossing) / 1.1 <= edge <= max(toll, crossing) * 1.1
    assert near or lead <= 0.015 + 4 * noise
    assert near or noise > 0.003 or factor < 2


@CAREFUL
@given(curves(), st.integers(0, 1000))
def test_hiccups_do_not_decide(exact: Curves, seed: int) -> None:
    platform = Platform(exact, noise=0.01, hiccups=0.02, seed=seed)
    plan = Plan([collective_plan(list(exact.lines))])
    drive(plan, platform)
    assert rule_regret(timings_of(plan), exact, SIZES) <= 0.05


@CAREFUL
@given(curves(), st.integers(0, 1000), st.data())
def test_a_plan_fed_again_goes_on_where_it_stood(
    exact: Curves, seed: int, data: st.DataObject
) -> None:
    """A run that stopped at any point is continued with exactly the missing requests, and ends the
    same."""
    whole = Platform(exact, noise=0.02, seed=seed)
    plan = Plan([collective_plan(list(exact.lines))])
    drive(plan, whole)
    cut = data.draw(st.integers(0, len(whole.points)))
    known = set(whole.points[:cut])
    rest = Platform(exact, noise=0.02, seed=seed)
    resumed = Plan([collective_plan(list(exact.lines))])
    silent = Platform(exact, noise=0.02, seed=seed)
    for asks in steps(resumed):
        for ask in asks:
            missing = {key for part in ask.without(known) for key in part.points()}
            for key in ask.points():
                source = rest if key in missing else silent
                resumed.feed(key, source.answer(key, resumed))
    assert sorted(map(str, rest.points)) == sorted(map(str, whole.points[cut:]))
    assert timings_of(resumed).cells == timings_of(plan).cells


@pytest.mark.parametrize("seed", range(24))
def test_a_plan_ends_with_any_answers(seed: int) -> None:
    """Times are random, points fail now and then, and NCCL runs different choices from call to
    call."""
    random_ = random.Random(seed)
    failing, refusing = random_.choice([0.0, 0.02, 0.3]), random_.choice([0.0, 0.02, 0.3])
    noise, telling = random_.choice([0.0, 0.3, 2.0]), random_.choice([0.0, 0.5, 1.0])

    def answer(key: PointKey) -> BenchPoint:
        common = {"bytes": key.bytes, "choice": key.choice, "round": key.round}
        if random_.random() < failing:
            return BenchPoint(**common, error=PointError("unsupported"))
        ran = ExecutedChoice(
            random_.choice(["tree", "ring"]),
            random_.choice(["ll", "simple"]),
            channels=random_.choice([None, 1, 16]),
            chunk_bytes=random_.choice([None, 64 * K]),
        )
        return BenchPoint(
            **common,
            time_us=math.exp(random_.gauss(4, noise)),
            ran=ran if random_.random() < telling else None,
            applied=random_.random() >= refusing,
        )

    legal = ["tree/ll", "tree/simple", "ring/ll", "ring/simple", "nvls/simple", "pat/simple"]
    plan = Plan([collective_plan(legal, options=PlanOptions(chunks=True))])
    points = 0
    for number, asks in enumerate(steps(plan)):
        assert number < 500
        for ask in asks:
            for key in ask.points():
                points += 1
                plan.feed(key, answer(key))
    sizes = len(timings_of(plan).sizes)
    assert points <= (sizes + 20) * MOST_TRIAL_ROUNDS * (len(legal) + 2)


def test_the_size_before_a_switch_of_nccl_is_measured() -> None:
    """At this size the default may have kept a choice for too long."""
    ring, tree = choice("ring/ll"), choice("tree/ll")
    predicted = {K << step: tree if step in (5, 6) else ring for step in range(17)}
    one = collective_plan(["ring/ll", "tree/ll"], predicted=predicted)
    assert [size // K for size in one.unexplored] == [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536]
    predicted[64 * K] = ring
    one = collective_plan(["ring/ll", "tree/ll"], predicted=predicted)
    assert [size // K for size in one.unexplored if size < 512 * K] == [1, 4, 16, 32, 64, 256]


def test_a_default_that_is_right_costs_few_points() -> None:
    lines = {
        "tree/ll": linear(10, 1_000),
        "ring/simple": linear(40, 40_000),
        "tree/simple": linear(60, 20_000),
    }
    exact = Curves(lines, lambda size: min(lines, key=lambda label: lines[label](size)))
    platform = Platform(exact, noise=0.003)
    plan = Plan([collective_plan(list(lines))])
    drive(plan, platform)
    assert not [item for group in search([timings_of(plan)]) for item in group.rules]
    assert len(platform.points) <= 9 * 5 * 2


def test_predictions_that_are_right_spare_points_at_the_boundary() -> None:
    """The default always runs ring/ll, so its loss begins where the curves cross, near 4 KiB."""
    lines = {"tree/ll": linear(10, 1_000), "ring/ll": linear(13.0, 3_000)}
    exact = Curves(lines, lambda _: "ring/ll")
    points = []
    for predicted in ({K << power: choice("ring/ll") for power in range(17)}, None):
        platform = Platform(exact, noise=0.003)
        plan = Plan([collective_plan(list(lines), predicted=predicted)])
        drive(plan, platform)
        assert rule_regret(timings_of(plan), exact, SIZES) < 0.005
        points.append(len(platform.points))
    assert points[0] < points[1]


def test_a_dominated_choice_is_not_tried_at_large_sizes() -> None:
    lines = {"tree/ll": linear(5, 200), "ring/simple": linear(20, 20_000)}
    exact = Curves(lines, lambda _: "ring/simple")
    platform = Platform(exact, noise=0.01)
    drive(Plan([collective_plan(list(lines))]), platform)
    tried = {key.bytes for key in platform.points if key.choice == choice("tree/ll")}
    assert max(tried) < 16 * M
    assert min(tried) == K


def test_what_the_default_runs_already_is_not_repeated() -> None:
    def ran(size: int, chosen: object) -> ExecutedChoice | None:
        label = "ring/ll" if chosen == DEFAULT else chosen.label  # type: ignore[attr-defined]
        algorithm, protocol = label.split("/")
        return ExecutedChoice(algorithm, protocol, channels=1)

    lines = {"ring/ll": linear(20, 5_000), "tree/ll": linear(30, 4_000)}
    platform = Platform(Curves(lines, lambda _: "ring/ll"), noise=0.05, ran=ran)
    drive(Plan([collective_plan(list(lines))]), platform)
    assert {key.round for key in platform.points if key.choice == choice("ring/ll")} == {0}


def test_a_choice_that_nccl_does_not_run_is_asked_for_once_a_size() -> None:
    lines = {"ring/ll": linear(20, 5_000), "ring/ll128": linear(1, 90_000)}
    exact = Curves(lines, lambda _: "ring/ll")
    platform = Platform(exact, noise=0.02, not_run={choice("ring/ll128")})
    plan = Plan([collective_plan(list(lines))])
    drive(plan, platform)
    asked = [key for key in platform.points if key.choice == choice("ring/ll128")]
    assert len(asked) == len({key.bytes for key in asked})
    assert choice("ring/ll128") not in timings_of(plan).choices


@pytest.mark.parametrize("bad_point", [{"wrong": 3}, {"error": PointError("wrong")}])
def test_a_choice_with_wrong_results_is_asked_for_no_more_and_no_rule(
    bad_point: dict[str, Any],
) -> None:
    """A run that is continued has the error, see `PointRecord.known`."""
    lines = {"ring/ll": linear(40, 5_000), "ring/ll128": linear(5, 90_000)}
    platform = Platform(Curves(lines, lambda _: "ring/ll"), noise=0.01)
    plan = Plan([collective_plan(list(lines))])
    bad, after = choice("ring/ll128"), 0
    for asks in steps(plan):
        is_known = any(key.choice == bad and key.bytes >= M for key in platform.points)
        for key in (key for ask in asks for key in ask.points()):
            after += is_known and key.choice == bad
            point = platform.answer(key, plan)
            is_bad = key.choice == bad and key.bytes >= M
            plan.feed(key, replace(point, **bad_point) if is_bad else point)
    assert any(key.choice == bad and key.bytes < M for key in platform.points)
    assert after == 0
    assert bad not in timings_of(plan).choices


def test_sizes_that_cannot_be_measured_are_left_out() -> None:
    def exact(size: int, chosen: object) -> float | None:
        return None if size > 4 * M else 20 + size / 1e3

    platform = Platform(exact, noise=0.01)
    plan = Plan([collective_plan(["ring/ll", "tree/ll"])])
    drive(plan, platform)
    assert max(timings_of(plan).sizes) == 4 * M


def test_no_default_anywhere_ends_at_once() -> None:
    platform = Platform(lambda *_: None)
    plan = Plan([collective_plan(["ring/ll"])])
    drive(plan, platform, most_points=100)
    assert timings_of(plan).sizes == []


def against_tree(factor: Callable[[Choice], float], ran: ExecutedChoice | None = None) -> Platform:
    """Return a platform whose default takes twice as long as a choice of factor 1.

    A choice runs as `ran`, or as ring/simple on 16 channels if it names no others.
    """

    def exact(size: int, chosen: object) -> float | None:
        share = factor(chosen) if isinstance(chosen, Choice) else 2.0
        return share * (50 + size / 10e3)

    def runs(size: int, chosen: object) -> ExecutedChoice | None:
        if isinstance(chosen, Choice):
            return ran or ExecutedChoice("ring", "simple", channels=chosen.channels or 16)
        return None if ran else ExecutedChoice("tree", "simple", channels=16)

    return Platform(exact, noise=0.005, ran=runs)


def one_rule(plan: Plan, *, eager: bool = False, **options: Any) -> Rule:
    (group,) = search([timings_of(plan)], TuneOptions(**options), eager=eager)
    (item,) = group.rules
    return item.rule


@pytest.mark.parametrize("least", [4, 16])
def test_the_least_channels_are_found(least: int) -> None:
    platform = against_tree(lambda chosen: 1.3 if (chosen.channels or 16) < least else 1.0)
    plan = Plan([collective_plan(["ring/simple"])])
    drive(plan, platform)
    assert one_rule(plan).choice.channels == (None if least == 16 else least)
    tried = {key.choice.channels for key in platform.points if isinstance(key.choice, Choice)}
    assert min(count for count in tried if count) == least // 2


def test_more_channels_are_kept_where_they_are_faster() -> None:
    plan = Plan([collective_plan(["ring/simple"])])
    drive(plan, against_tree(lambda chosen: 1 / math.sqrt((chosen.channels or 16) / 16)))
    assert one_rule(plan, channels="any", eager=True).choice.channels == 32
    # Without such a trial a rule uses at most the default's 16.
    assert one_rule(plan).choice.channels is None


@pytest.mark.parametrize(
    ("chunks", "label", "ran_kib", "tried_kib"),
    [
        (False, "ring/simple", 128, set()),
        (True, "ring/simple", 128, {64, 256}),
        # NCCL limits chunks of LL to 32 KiB, so the same chunk would run.
        (True, "ring/ll", 32, {16}),
    ],
)
def test_a_chunk_size_is_tried_where_it_may_change_something(
    *, chunks: bool, label: str, ran_kib: int, tried_kib: set[int]
) -> None:
    platform = against_tree(
        lambda chosen: 0.9 if chosen.chunk_bytes == 2 * ran_kib * K else 1.0,
        ExecutedChoice(*label.split("/"), channels=1, chunk_bytes=ran_kib * K),
    )
    plan = Plan([collective_plan([label], options=PlanOptions(chunks=chunks))])
    drive(plan, platform)
    tried = {key.choice.chunk_bytes for key in platform.points if isinstance(key.choice, Choice)}
    assert tried == {None, *(chunk * K for chunk in tried_kib)}


def test_the_full_grid_is_the_full_grid() -> None:
    lines = {"ring/ll": linear(20, 5_000), "tree/ll": linear(30, 4_000)}
    platform = Platform(Curves(lines, lambda _: "ring/ll"))
    drive(ExhaustivePlan([collective_plan(list(lines), K, M)], rounds=3), platform)
    assert len(platform.points) == 11 * 4 * 3


def test_a_plan_estimates_its_time() -> None:
    lines = {"ring/ll": linear(20, 5_000), "tree/ll": linear(30, 4_000)}
    platform = Platform(Curves(lines, lambda _: "ring/ll"), noise=0.01)
    plan = Plan([collective_plan(list(lines))])
    assert plan.seconds_left() > 0
    for asks in steps(plan):
        for ask in asks:
            expected = plan.seconds(ask)
            before = platform.seconds
            for key in ask.points():
                plan.feed(key, platform.answer(key, plan))
            if ask.round:
                assert platform.seconds - before == pytest.approx(expected, rel=0.3)
    assert plan.seconds_left() == 0
