# SPDX-License-Identifier: Apache-2.0
import itertools
import math
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nccltune.analyze import sort_samples
from nccltune.analyze.gains import gain_tables
from nccltune.model.choice import Algorithm, Choice, PartialChoice, Protocol, choice_label
from nccltune.model.collective import Collective
from nccltune.model.rule import RuleState
from nccltune.model.sample import Sample
from nccltune.model.sizes import MAX_BYTES
from nccltune.tune.lint import NumberedRule, lint_rules
from nccltune.tune.result import TunedGroup, TuneOptions
from nccltune.tune.search import search
from nccltune.tune.segment import boundary
from tests.unit.builders import measure, sizes

K, M, G = 1 << 10, 1 << 20, 1 << 30
SIZES = sizes(K, G)


def tuned(samples: list[Sample], **options: object) -> TunedGroup:
    (group,) = search(sort_samples(samples).timings, TuneOptions(**options))  # type: ignore[arg-type]
    return group


def ranges(group: TunedGroup) -> list[tuple[str, int, int]]:
    return [
        (item.rule.choice.label, item.rule.min_bytes, item.rule.max_bytes) for item in group.rules
    ]


def crossing(size: int) -> dict[str, float]:
    """The default is right but between 64 KiB and 4 MiB, where tree/ll128 is 1.5x faster."""
    good = 20 + size / 50e3
    inside = 64 * K <= size <= 4 * M
    return {
        "default": good * (1.5 if inside else 1.0),
        "tree/ll128": good * (1.0 if inside else 1.4),
        "ring/simple": good * 1.6,
    }


def good_at_two(size: int) -> dict[str, float]:
    return {"default": 100.0, "tree/ll": 80.0 if size in (64 * K, 16 * M) else 150.0}


FAST, SLOW = ({"default": 100.0, "tree/ll": time} for time in (60.0, 160.0))


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_a_rule_stands_only_where_the_default_is_wrong(noise: float) -> None:
    group = tuned(measure(SIZES, crossing, noise=noise))
    (rule,) = group.rules
    assert rule.rule.choice.label == "tree/ll128"
    assert rule.sizes == sizes(64 * K, 4 * M)
    assert 32 * K < rule.rule.min_bytes <= 64 * K
    assert 4 * M <= rule.rule.max_bytes < 8 * M
    assert rule.gain == pytest.approx(1.5, rel=0.03)
    assert rule.gain_low is not None
    assert rule.gain_high is not None
    assert rule.gain_low <= rule.gain <= rule.gain_high
    assert rule.state is RuleState.SURE
    assert group.recovered == pytest.approx(1.0, abs=0.06)
    assert [item.choice is not None for item in group.decisions] == [
        64 * K <= size <= 4 * M for size in SIZES
    ]


def test_a_default_that_is_right_gets_no_rule() -> None:
    for seed in range(10):
        alike = measure(
            SIZES,
            lambda s: dict.fromkeys(("default", "ring/ll"), 20 + s / 50e3),
            noise=0.04,
            seed=seed,
        )
        group = tuned(alike)
        assert group.rules == []
        assert group.expected_gain is None
        assert sum(item.sizes for item in group.left_alone) == len(SIZES)


def test_a_gain_below_the_minimum_gets_no_rule() -> None:
    def slight(size: int) -> dict[str, float]:
        return {"default": 100.0 + size / 1e6, "ring/ll": (100.0 + size / 1e6) / 1.02}

    assert tuned(measure(SIZES, slight, noise=0.001)).rules == []
    assert len(tuned(measure(SIZES, slight, noise=0.001), min_gain=0.01).rules) == 1


def test_a_rule_never_covers_a_size_where_it_is_slower_beyond_noise() -> None:
    def trap(size: int) -> dict[str, float]:
        return {"default": 100.0, "tree/ll": 130.0 if size == M else 70.0}

    group = tuned(measure(SIZES, trap, noise=0.01))
    assert len(group.rules) == 2
    assert all(M not in item.sizes for item in group.rules)
    assert not any(item.rule.min_bytes <= M <= item.rule.max_bytes for item in group.rules)


def test_ranges_have_no_hole_no_overlap_and_stay_within_what_was_measured() -> None:
    def three(size: int) -> dict[str, float]:
        return {
            "default": 3 * (30 + size / 20e3),
            "tree/ll": 10 + size / 2e3,
            "tree/ll128": 30 + size / 20e3,
            "ring/simple": 200 + size / 200e3,
        }

    group = tuned(measure(SIZES, three, noise=0.01))
    found = ranges(group)
    assert [label for label, _, _ in found] == ["tree/ll", "tree/ll128", "ring/simple"]
    assert found[0][1] == K
    assert found[-1][2] == G
    assert all(a[2] + 1 == b[1] for a, b in itertools.pairwise(found))
    extended = ranges(tuned(measure(SIZES, three, noise=0.01), extend=True))
    assert (extended[0][1], extended[-1][2]) == (0, MAX_BYTES)


def test_boundaries_lie_where_the_curves_cross() -> None:
    edge = 96 * K

    def crossed(size: int) -> dict[str, float]:
        ratio = (size / edge) ** 0.4
        return {"default": 100.0, "tree/ll": 40.0 * ratio, "tree/simple": 40.0 / ratio}

    found = ranges(tuned(measure(sizes(8 * K, M), crossed)))
    assert [label for label, _, _ in found] == ["tree/ll", "tree/simple"]
    assert found[0][2] == pytest.approx(edge, abs=1)


FOUR = [
    ("tree/ll", 8, 96 * K),
    ("tree/ll128", 96 * K + 1, 12 * M),
    ("ring/ll128", 12 * M + 1, 96 * M),
    ("ring/simple", 96 * M + 1, 4 * G),
]


def four_ranges(size: int) -> dict[str, float]:
    """Six choices of which four win one after the other, crossing at 96 KiB, 12 MiB and 96 MiB."""
    base = 20 + size / 40e3
    lead = [0.0]
    for edge in (96 * K, 12 * M, 96 * M):
        lead.append(lead[-1] + 0.35 * math.log(size / edge))
    winners = ["tree/ll", "tree/ll128", "ring/ll128", "ring/simple"]
    times = {name: base * math.exp(-gain) for name, gain in zip(winners, lead, strict=True)}
    times["ring/ll"] = 1.5 * times["tree/ll"]
    times["tree/simple"] = 1.4 * times["ring/simple"]
    return times


def raw_csv(noise: float, seed: int = 0) -> list[Sample]:
    return measure(
        sizes(8, 4 * G), four_ranges, rounds=1, noise=noise, seed=seed, nodes=4, ranks=32
    )


def test_four_winners_give_exactly_four_rules() -> None:
    assert len(raw_csv(0)) == 180
    found = ranges(tuned(raw_csv(0)))
    assert [item[0] for item in found] == [item[0] for item in FOUR]
    for got, wanted in zip(found, FOUR, strict=True):
        assert got[1:] == (pytest.approx(wanted[1], abs=1), pytest.approx(wanted[2], abs=1))


@pytest.mark.parametrize("seed", range(10))
def test_noise_of_five_percent_keeps_the_four_rules(seed: int) -> None:
    found = ranges(tuned(raw_csv(0.05, seed)))
    assert [item[0] for item in found] == [item[0] for item in FOUR]
    for got, wanted in zip(found[:-1], FOUR[:-1], strict=True):
        assert 0.7 < got[2] / wanted[2] < 1.4


@pytest.mark.parametrize("seed", range(10))
def test_the_choice_is_the_fastest_at_each_of_the_30_sizes(seed: int) -> None:
    samples = raw_csv(0.03, seed)
    times: dict[int, dict[str, float]] = {}
    for sample in samples:
        times.setdefault(sample.bytes, {})[choice_label(sample.choice)] = sample.time_us
    winners = [min(by_choice, key=by_choice.__getitem__) for by_choice in times.values()]
    decisions = tuned(samples).decisions
    assert [choice_label(item.choice or "default") for item in decisions] == winners


def test_without_a_default_nothing_is_claimed_about_gain() -> None:
    group = tuned(raw_csv(0))
    assert group.expected_gain is None
    assert group.recovered is None
    assert {item.gain for item in group.rules} == {None}
    assert {item.state for item in group.rules} == {RuleState.CANDIDATE}
    assert "against the default unknown" in group.rules[0].reason


@pytest.mark.parametrize(
    ("limits", "time_us", "ruled"),
    [
        ("NCCL_ALGO=Ring", 60.0, 0),
        ("NCCL_PROTO=Simple", 60.0, 0),
        ("NCCL_ALGO=Ring", 98.0, 1),
        ("NCCL_ALGO=Ring", 140.0, 1),
    ],
)
@pytest.mark.parametrize("rounds", [1, 8])
def test_without_a_default_no_choice_that_a_limited_run_beats_is_a_candidate(
    limits: PartialChoice, time_us: float, ruled: int, rounds: int
) -> None:
    samples = measure(SIZES, {"tree/ll": 100.0}, rounds=rounds)
    beside = measure(SIZES, {"tree/ll": time_us}, rounds=rounds)
    found = sort_samples([*samples, *(replace(item, choice=limits) for item in beside)])
    (group,) = search([*found.timings, *found.partial])
    assert len(group.rules) == ruled
    reasons = [f"and {limits}, ", "is up to 1.67x as fast as tree/ll"] if not ruled else []
    assert all(word in item.reason for item in group.left_alone for word in reasons)
    # A gain over the default is one, whatever else is faster.
    samples += measure(SIZES, {"default": 200.0}, rounds=rounds)
    found = sort_samples([*samples, *(replace(item, choice=limits) for item in beside)])
    assert search([*found.timings, *found.partial])[0].rules


def test_single_timings_need_a_gain_beyond_the_assumed_noise() -> None:
    slight, clear = {"default": 100.0, "ring/ll": 92.0}, {"default": 100.0, "ring/ll": 60.0}
    assert tuned(measure(SIZES, slight, rounds=1, twice=False)).rules == []
    group = tuned(measure(SIZES, clear, rounds=1, twice=False))
    (rule,) = group.rules
    assert rule.state is RuleState.CANDIDATE
    assert "assumed" in rule.reason
    assert rule.decided_by == "measure at least 4 rounds"
    # It promises nothing.
    assert {item.choice for item in group.decisions} == {rule.rule.choice}
    assert group.expected_gain is None
    assert group.recovered is None


def test_doubts_about_the_platform_leave_no_rule_sure() -> None:
    timings = sort_samples(measure(SIZES, crossing, noise=0.01)).timings
    (group,) = search(timings, doubts=["the NCCL version is known for a.txt only"])
    (rule,) = group.rules
    assert rule.state is RuleState.CANDIDATE
    assert rule.reason == "the NCCL version is known for a.txt only"


def test_the_fewest_channels_that_cost_nothing_are_taken() -> None:
    shares = {"ring/ll/4": 75.0, "ring/ll/8": 50.4, "ring/ll/16": 50.0, "ring/ll": 50.2}
    samples = measure(SIZES, {"default": 100.0, **shares}, noise=0.002)
    (rule,) = tuned(samples, channels="any").rules
    assert rule.rule.choice.channels == 8
    # How many NCCL's default takes is not known here, so that no number may be set unasked.
    (rule,) = tuned(samples).rules
    assert rule.rule.choice.channels is None


def with_channels(samples: list[Sample], channels: dict[str, int]) -> list[Sample]:
    """The samples with what NCCL reports as run."""
    return [
        replace(
            sample,
            ran=Choice(Algorithm.RING, Protocol.LL, channels=channels[choice_label(sample.choice)]),
        )
        for sample in samples
    ]


def test_a_rule_takes_no_more_channels_than_the_default_unless_asked() -> None:
    greedy = {"default": 100.0, "ring/ll/48": 60.0, "ring/ll/16": 80.0, "tree/ll": 70.0}
    ran = {"default": 16, "ring/ll/48": 48, "ring/ll/16": 16, "tree/ll": 24}
    samples = with_channels(measure(SIZES, greedy, noise=0.002), ran)
    (rule,) = tuned(samples).rules
    assert (rule.rule.choice.label, rule.channels, rule.default_channels) == ("ring/ll/16", 16, 16)
    (rule,) = tuned(samples, channels="any").rules
    assert (rule.rule.choice.label, rule.channels, rule.default_channels) == ("ring/ll/48", 48, 16)
    only = with_channels(measure(SIZES, {"default": 100.0, "ring/ll/48": 60.0}, noise=0.002), ran)
    group = tuned(only)
    assert group.rules == []
    assert "48 channels (default 16)" in group.left_alone[0].reason
    assert {item.default_channels for item in group.decisions} == {16}


def test_a_chunk_size_must_beat_the_same_choice_without_one() -> None:
    def chunks(better: float) -> Callable[[int], dict[str, float]]:
        return lambda size: {
            "default": 2 * (10 + size / 1e5),
            "tree/ll": 10 + size / 1e5,
            "tree/ll/-/65536": (10 + size / 1e5) / better,
        }

    # NCCL cut it: the same ran twice, and one of the two is always ahead by a little.
    (rule,) = tuned(measure(SIZES, chunks(1.002), noise=0.002)).rules
    assert rule.rule.choice.label == "tree/ll"
    (rule,) = tuned(measure(SIZES, chunks(1.2), noise=0.002)).rules
    assert rule.rule.choice.label == "tree/ll/-/65536"
    assert rule.gain == pytest.approx(2.4, rel=0.02)


def test_a_chunk_size_that_wins_somewhere_is_a_rule_of_its_own() -> None:
    def chunks(size: int) -> dict[str, float]:
        return {
            "default": 20 + size / 5e4,
            "ring/simple": 10 + size / 1e5,
            "ring/simple/-/131072": 10 + size / (2e5 if size > M else 0.8e5),
        }

    small, large = tuned(measure(SIZES, chunks, noise=0.002)).rules
    assert (small.rule.choice.label, large.rule.choice.label) == (
        "ring/simple",
        "ring/simple/-/131072",
    )
    assert small.rule.max_bytes + 1 == large.rule.min_bytes


def test_weights_decide_what_is_worth_a_rule() -> None:
    timings = sort_samples(measure(SIZES, good_at_two, noise=0.005)).timings
    (both,) = search(timings)
    assert len(both.rules) == 2
    (small,) = search(timings, weights=lambda size: 1.0 if size < M else 0.0)
    assert [item.sizes for item in small.rules] == [[64 * K]]
    for unit in (0.001, 1000.0):
        (scaled,) = search(timings, weights=lambda _, unit=unit: unit)
        assert [item.rule for item in scaled.rules] == [item.rule for item in both.rules]


def test_scales_and_registration_are_not_mixed() -> None:
    samples = [
        *measure(SIZES, FAST, noise=0.01, nodes=2),
        *measure(SIZES, SLOW, noise=0.01, nodes=4),
        *measure(SIZES, SLOW, noise=0.01, nodes=2, registered=True),
    ]
    groups = search(sort_samples(samples).timings)
    found = {(g.scale.nodes, g.registered): len(g.rules) for g in groups}
    assert found == {(2, False): 1, (2, True): 0, (4, None): 0}
    (rule,) = next(g for g in groups if g.rules).rules
    assert (rule.rule.nodes, rule.rule.ranks, rule.rule.registered) == (2, 4, False)


def test_groups_get_rules_of_their_own_only_where_nccl_tells_them_apart() -> None:
    plain = measure(SIZES, FAST, noise=0.01)
    apart = measure(SIZES, SLOW, noise=0.01, group_calls=60, pipe_ops=3)
    groups = search(sort_samples([*plain, *apart]).timings)
    assert {(group.pipe_ops, len(group.rules)) for group in groups} == {(1, 1), (3, 0)}
    (rule,) = next(group for group in groups if group.rules).rules
    assert (rule.rule.pipe_ops, rule.rule.registered) == (1, None)
    # NCCL's tuner gets the same for a group of 4 calls as for one call of its size. So one rule is
    # for both, and must not be slower for either.
    alike = measure(SIZES, SLOW, noise=0.01, group_calls=4, pipe_ops=1)
    (both,) = search(sort_samples([*plain, *alike]).timings)
    assert (both.pipe_ops, both.rules) == (None, [])
    (left,) = both.left_alone
    assert left.reason.startswith("tree/ll is 1.6")
    assert left.reason.endswith(
        "with calls without a group, but a rule would also reach other calls, where it is slower "
        "or was not measured"
    )
    good = measure(SIZES, FAST, noise=0.01, group_calls=4, pipe_ops=1)
    (both,) = search(sort_samples([*plain, *good]).timings)
    assert [(item.rule.pipe_ops, item.state) for item in both.rules] == [(None, RuleState.SURE)]


def test_a_choice_measured_for_groups_alone_is_no_rule_for_all_calls() -> None:
    plain = measure(SIZES, {"default": 100.0}, noise=0.01)
    groups = measure(SIZES, FAST, noise=0.01, group_calls=4)
    (group,) = search(sort_samples([*plain, *groups]).timings)
    assert group.rules == []
    assert "with 4 calls a group" in group.left_alone[0].reason
    # Alone, the groups may be all that the program does.
    (group,) = search(sort_samples(groups).timings)
    assert [item.rule.choice.label for item in group.rules] == ["tree/ll"]


def test_in_place_and_out_of_place_must_both_hold() -> None:
    both = [*measure(SIZES, FAST, noise=0.01), *measure(SIZES, SLOW, noise=0.01, in_place=True)]
    assert tuned(both).rules == []


def test_collectives_a_tuner_is_never_asked_about_get_no_rule() -> None:
    samples = measure(SIZES, {"default": 9.0, "ring/ll": 5.0}, collective=Collective.ALLTOALL)
    assert search(sort_samples(samples).timings) == []


def test_conditions_without_a_common_choice_get_no_rule_and_no_made_up_time() -> None:
    group = tuned(
        [*measure(SIZES, {"default": 100.0}), *measure(SIZES, {"tree/ll": 50.0}, in_place=True)]
    )
    assert group.rules == []
    assert [item.tuned_us for item in group.decisions] == pytest.approx([100.0] * len(SIZES))
    (left,) = group.left_alone
    assert not left.compared
    assert left.reason == "not compared: no whole choice was measured beside the default"


def test_runs_with_rules_alone_leave_nothing_to_search() -> None:
    samples = measure(SIZES, {"tuned": 50.0})
    assert search(sort_samples(samples).timings) == []


def test_a_proven_gain_that_is_not_worth_a_rule_is_not_called_chance() -> None:
    group = tuned(
        measure(SIZES, lambda size: {"default": 100.0, "tree/ll": 96.0 if size == M else 100.0})
    )
    assert group.rules == []
    assert "but at only one size" in group.left_alone[0].reason


def test_curves_that_run_side_by_side_have_their_boundary_at_the_nearer_end() -> None:
    beside = measure(
        [K, 2 * K], lambda size: {"default": 100.0, "tree/ll": 101.0 - 1e-9 * math.log(size)}
    )
    table = gain_tables(sort_samples(beside).timings, 0.05)[0]
    assert boundary(table, K, 2 * K, None, table.choices[0], 0.0) == 2 * K - 1


def test_a_gain_that_the_scatter_hides_has_no_ratio() -> None:
    # tree/ll takes half as long as the default in three rounds, and three times as long in one.
    times = {
        K: {"default": 100.0, "tree/ll": 50.0},
        2 * K: {"default": 200.0, "ring/ll": 192.0},
    }
    even = measure(times, times.__getitem__, rounds=4)
    wild = [replace(x, time_us=300.0) if (x.round, x.time_us) == (0, 50.0) else x for x in even]
    words = "the timings at 1 KiB scatter too much to show a gain of tree/ll (95 % CI 0."
    (alone,) = tuned([x for x in wild if x.bytes == K]).left_alone
    assert alone.reason.startswith(words)
    (both,) = tuned(wild).left_alone
    assert both.reason.startswith("ring/ll looks 1.04x faster at 2 KiB (95 % CI 1.04-")


def sparse(times: dict[str, tuple[float, ...]], collective: Collective) -> list[Sample]:
    """One timing of each choice at 1 KiB, 32 KiB and 1 MiB, of 8 ranks on a node; no default."""
    places = {1 << 10: 0, 1 << 15: 1, 1 << 20: 2}
    return measure(
        places,
        lambda size: {name: row[places[size]] for name, row in times.items()},
        rounds=1,
        collective=collective,
        nodes=1,
        ranks=8,
    )


def test_a_few_sizes_far_apart_are_split_where_the_best_choice_changes() -> None:
    times = {
        "ring/simple/4": (10.8, 18.4, 45.1),
        "ring/ll128/8": (12.1, 16.2, 38.7),
        "nvls/simple/16": (14.0, 19.0, 32.1),
    }
    group = tuned(sparse(times, Collective.ALLREDUCE))
    assert [item.rule.choice.label for item in group.rules] == [
        "ring/simple/4",
        "ring/ll128/8",
        "nvls/simple/16",
    ]
    assert all("x as fast as the next" in item.reason for item in group.rules)
    assert not any(" 0." in item.reason for item in group.rules)


def test_a_rule_names_no_choice_that_nccl_never_runs() -> None:
    times = {"tree/simple/2": (7.0, 10.0, 30.0), "ring/ll128/8": (10.0, 14.0, 40.0)}
    group = tuned(sparse(times, Collective.BROADCAST))
    (rule,) = group.rules
    assert rule.rule.choice.label == "ring/ll128/8"
    assert [x.kind for x in lint_rules([NumberedRule(1, rule.rule)])] == ["scales"]
    beside = tuned(
        measure(
            sizes(1024, 1 << 16),
            {"default": 20.0, "tree/ll": 10.0},
            collective=Collective.BROADCAST,
        )
    )
    assert beside.rules == []


def test_one_choice_for_a_range_states_how_far_it_is_behind() -> None:
    times = {"ring/simple": (10.0, 20.0, 40.0), "ring/ll": (10.5, 19.4, 44.0)}
    (rule,) = tuned(sparse(times, Collective.ALLREDUCE)).rules
    assert rule.reason == (
        "best of 2 at 1 KiB to 1 MiB (3 sizes measured), at most 3.1 % slower than the best of one "
        "size; against the default unknown"
    )


@pytest.mark.parametrize(
    ("low", "high"),
    [
        pytest.param({"ring/ll": 25.0, "tree/ll": 20.0}, {"ring/simple": 90.0}, id="no-common"),
        pytest.param({"tree/ll": 20.0}, {"ring/simple": 90.0, "tree/ll": 200.0}, id="one-common"),
        pytest.param({"default": 100.0}, {"default": 140.0, "ring/simple": 90.0}, id="default"),
    ],
)
def test_a_rule_ends_where_its_choice_or_the_one_beside_it_was_not_measured(
    low: dict[str, float], high: dict[str, float]
) -> None:
    group = tuned(measure([64 * K, 128 * K], {64 * K: low, 128 * K: high}.__getitem__))
    before = [] if "default" in low else [("tree/ll", 64 * K, 64 * K)]
    assert ranges(group) == [*before, ("ring/simple", 128 * K, 128 * K)]


def test_a_rule_is_the_best_of_the_choices_that_were_measured_at_its_sizes() -> None:
    times = {
        K: {"ring/ll": 25.0, "tree/ll": 20.0},
        4 * K: {"ring/ll": 26.0, "tree/ll": 21.0, "ring/simple": 50.0},
        16 * K: {"ring/simple": 90.0, "tree/simple": 60.0},
    }
    low, high = tuned(measure(times, times.__getitem__)).rules
    assert low.reason.startswith("best of 2 to 3, 1.24x to 1.25x as fast as the next")
    assert high.reason.startswith("best of 2, 1.50x as fast as the next")


@pytest.mark.parametrize("far", [[], [8], [512], [8, 64], [4 * G]])
def test_far_sizes_do_not_move_a_boundary_in_a_wide_gap(far: list[int]) -> None:
    shown = {8 * K: (13.1, 23.1), M: (80.2, 48.1), 64 * M: (2100.0, 470.0)}
    times = {size: (12.3, 22.8) if size < K else (9e4, 2e4) for size in far} | shown
    both = measure(
        sorted(times),
        lambda size: dict(zip(("ring/ll", "ring/simple"), times[size], strict=True)),
        rounds=1,
    )
    low, high = tuned(both).rules
    # 8 KiB and 1 MiB, with a straight line between them, cross at 103 KiB.
    assert low.rule.max_bytes == high.rule.min_bytes - 1 == pytest.approx(103 * K, rel=0.01)
    assert f"8 KiB ({len(far) + 1 if far != [4 * G] else 1} size" in low.reason


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((64 * K, 256 * K), [(64 * K, 256 * K)]),
        ((64 * K, 32 * M), [(64 * K, 128 * K), (16 * M, 32 * M)]),
        ((K, 2 * K, 8 * M), [(K, 4 * K), (4 * M, 8 * M)]),
    ],
)
def test_a_rule_does_not_reach_across_a_wide_gap(
    sizes: tuple[int, ...], expected: list[tuple[int, int]]
) -> None:
    samples = measure(sizes, lambda _: {"default": 100.0, "tree/ll128": 50.0}, rounds=8)
    assert [(low, high) for _, low, high in ranges(tuned(samples))] == expected


def test_beyond_a_wide_gap_a_rule_needs_a_gain_of_its_own() -> None:
    def times_at(size: int) -> dict[str, float]:
        return {"default": 100.0, "tree/ll128": 50.0 if size < M else 98.0}

    group = tuned(measure((64 * K, 256 * K, 32 * M), times_at, rounds=8, noise=0.01))
    assert ranges(group) == [("tree/ll128", 64 * K, 512 * K)]
    assert [(item.min_bytes, item.max_bytes) for item in group.left_alone] == [(32 * M, 32 * M)]
