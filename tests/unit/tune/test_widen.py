# SPDX-License-Identifier: Apache-2.0
from msgspec.structs import replace

from nccltune.analyze import sort_samples
from nccltune.tune.result import TuneOptions
from nccltune.tune.search import search
from nccltune.tune.widen import widen
from tests.unit.builders import Times, measure, sizes

K, M = 1 << 10, 1 << 20
SIZES = sizes(K, 16 * M)


def better_up_to(last: int) -> Times:
    def times(size: int) -> dict[str, float]:
        return {"default": 100.0, "tree/ll": 60.0 if size <= last else 150.0}

    return times


def test_a_rule_is_widened_to_the_range_where_it_holds_at_each_scale() -> None:
    timings = sort_samples(
        [
            *measure(SIZES, better_up_to(M), noise=0.01, nodes=2, ranks=16),
            *measure(SIZES, better_up_to(64 * K), noise=0.01, nodes=4, ranks=32),
        ]
    ).timings
    options = TuneOptions(any_scale=True)
    two, four = widen(search(timings, options), timings, options)
    wide, rest = (item.rule for item in two.rules)
    assert (wide.nodes, wide.ranks, wide.min_bytes) == (None, None, K)
    assert 64 * K <= wide.max_bytes < 128 * K
    assert (rest.nodes, rest.ranks, rest.min_bytes) == (2, 16, wide.max_bytes + 1)
    assert [item.rule for item in four.rules] == [wide]


def test_a_rule_that_one_scale_lacks_is_not_widened() -> None:
    timings = sort_samples(
        [
            *measure(SIZES, better_up_to(M), noise=0.01, nodes=2, ranks=16),
            *measure(SIZES, better_up_to(0), noise=0.01, nodes=4, ranks=32),
        ]
    ).timings
    options = TuneOptions(any_scale=True)
    two, four = widen(search(timings, options), timings, options)
    assert [item.rule.nodes for item in two.rules] == [2]
    assert four.rules == []


def test_one_scale_is_not_any_scale() -> None:
    timings = sort_samples(measure(SIZES, better_up_to(M), noise=0.01)).timings
    options = TuneOptions(any_scale=True)
    (group,) = widen(search(timings, options), timings, options)
    assert [item.rule.nodes for item in group.rules] == [4]


def test_registered_buffers_measured_apart_at_one_scale_keep_rules_from_being_widened() -> None:
    timings = sort_samples(
        [
            *measure(SIZES, better_up_to(M), noise=0.01, nodes=2, ranks=16),
            *measure(SIZES, better_up_to(M), noise=0.01, nodes=4, ranks=32),
            *measure(SIZES, better_up_to(M), noise=0.01, nodes=8, ranks=64),
            *measure(SIZES, better_up_to(0), noise=0.01, nodes=8, ranks=64, registered=True),
        ]
    ).timings
    options = TuneOptions(any_scale=True)
    groups = search(timings, options)
    assert widen(groups, timings, options) == groups


def test_scales_measured_with_registered_buffers_only_are_widened_as_well() -> None:
    timings = sort_samples(
        [
            *measure(SIZES, better_up_to(M), nodes=2, ranks=16, registered=True),
            *measure(SIZES, better_up_to(M), nodes=4, ranks=32, registered=True),
        ]
    ).timings
    options = TuneOptions(any_scale=True)
    for group in widen(search(timings, options), timings, options):
        assert [item.rule.nodes for item in group.rules] == [None]


def better_but_between(low: int, high: int) -> Times:
    def times(size: int) -> dict[str, float]:
        return {"default": 100.0, "tree/ll": 150.0 if low <= size <= high else 60.0}

    return times


def test_two_rules_of_a_scale_are_not_widened_as_one() -> None:
    timings = sort_samples(
        [
            *measure(SIZES, better_up_to(16 * M), noise=0.01, nodes=2, ranks=16),
            *measure(SIZES, better_but_between(16 * K, M), noise=0.01, nodes=4, ranks=32),
        ]
    ).timings
    options = TuneOptions(any_scale=True)
    groups = search(timings, options)
    assert [len(group.rules) for group in groups] == [1, 2]
    assert widen(groups, timings, options) == groups


def test_a_range_is_widened_only_if_the_timings_of_each_scale_prove_it() -> None:
    timings = sort_samples(
        [
            *measure(SIZES, better_up_to(M), noise=0.01, nodes=2, ranks=16),
            *measure(SIZES, better_up_to(0), noise=0.01, nodes=4, ranks=32),
        ]
    ).timings
    options = TuneOptions(any_scale=True)
    two, four = search(timings, options)
    (item,) = two.rules
    claimed = replace(item, rule=replace(item.rule, nodes=4, ranks=32))
    groups = [two, replace(four, rules=[claimed])]
    assert widen(groups, timings, options) == groups
