# SPDX-License-Identifier: Apache-2.0
"""Two sides: no difference in noise, real ones found, and words that agree with the numbers."""

import math
import random
import re
from collections.abc import Sequence

import msgspec
import pytest

from nccltune.compare.found import CurveComparison
from nccltune.compare.matching import NothingInCommonError
from nccltune.compare.runs import (
    FactDifference,
    MeasuredRun,
    TimedPoint,
    fact_differences,
    facts_not_shown,
)
from nccltune.compare.sides import compare_sides
from nccltune.formats.reading.platform_facts import PlatformFacts
from nccltune.model.collective import Collective
from tests.unit.compare.simulated import BOTH, run_of, sizes_of, test_of

RANDOM = random.Random(5)
SIZES = sizes_of(12)


def slow_from(low: int, high: int, factor: float) -> MeasuredRun:
    return run_of(RANDOM, 12, 0.002, slowdown=lambda size: factor if low <= size <= high else 1.0)


def compared(
    first: Sequence[MeasuredRun], second: Sequence[MeasuredRun], assumed: float = 0.05
) -> CurveComparison:
    (found,) = compare_sides(first, second, assumed)
    return found


@pytest.mark.parametrize("noise", [0.05, 0.10, 0.15])
@pytest.mark.parametrize("places", [BOTH, (False,)])
@pytest.mark.parametrize("number", [1, 3, 9, 24])
def test_two_runs_of_one_curve_are_seldom_slower(
    noise: float, places: tuple[bool, ...], number: int
) -> None:
    random_ = random.Random(number)
    slower = 0
    for _ in range(200):
        first, second = (run_of(random_, number, noise, places=places) for _ in range(2))
        slower += any(item.slower for item in compare_sides([first], [second], 0.05))
    assert slower <= 10


@pytest.mark.parametrize("runs", [(3, 3), (8, 8), (20, 1)])
@pytest.mark.parametrize(("noise", "offset"), [(0.15, 0.0), (0.02, 0.1)])
def test_runs_that_differ_as_a_whole_are_seldom_slower(
    runs: tuple[int, int], noise: float, offset: float
) -> None:
    random_ = random.Random(7)
    slower = 0
    for _ in range(60):
        sides = [
            [run_of(random_, 12, noise, offset=offset) for _ in range(number)] for number in runs
        ]
        slower += any(item.slower for item in compare_sides(sides[0], sides[1], 0.05))
    assert slower <= 8  # 5 %, three standard errors above


@pytest.mark.parametrize("places", [BOTH, (False,)])
@pytest.mark.parametrize("number", [9, 24])
def test_a_slowdown_over_a_decade_is_found_at_3_percent_noise(
    places: tuple[bool, ...], number: int
) -> None:
    random_ = random.Random(number)
    found = 0
    for _ in range(60):
        at = random_.randrange(number - 3)
        slow = set(sizes_of(number)[at : at + 4])
        first = run_of(random_, number, 0.03, places=places)
        second = run_of(
            random_,
            number,
            0.03,
            places=places,
            slowdown=lambda size, slow=slow: 1.25 if size in slow else 1.0,  # type: ignore[misc]
        )
        found += any(item.slower for item in compare_sides([first], [second], 0.05))
    assert found >= 55


def test_a_range_has_its_sizes_and_its_ratio() -> None:
    found = compared([run_of(RANDOM, 12, 0.002)], [slow_from(1 << 12, 1 << 15, 1.3)])
    (item,) = found.ranges
    assert (item.low_bytes, item.high_bytes, item.sizes, item.beyond) == (1 << 12, 1 << 15, 4, 4)
    assert item.ratio == pytest.approx(1.3, rel=0.01)
    assert [x.bytes for x in found.points if x.beyond] == SIZES[2:6]
    assert found.slower
    assert found.verdict("A", "B").startswith(
        "B is 1.30x slower than A from 4 KiB to 32 KiB (4 of 4 sizes, beyond the scatter); "
        "8 other sizes differ by at most 0."
    )


def test_faster_is_no_finding_and_has_a_ratio_above_one_in_words() -> None:
    found = compared([slow_from(1 << 12, 1 << 15, 1.3)], [run_of(RANDOM, 12, 0.002)])
    assert not found.slower
    assert "B is 1.30x faster than A from 4 KiB to 32 KiB" in found.verdict("A", "B")


def test_no_difference_states_what_would_not_show() -> None:
    found = compared([run_of(RANDOM, 12, 0.002)], [run_of(RANDOM, 12, 0.002)])
    assert found.ranges == []
    words = found.verdict("A", "B")
    assert words.startswith("no difference beyond noise at 12 sizes (largest 0.")
    assert "a difference below 5 % of the whole curve, or 5" in words


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ((1.2, 1.25, 1.3), r"B is 1\.\d\dx to 1\.\d\dx slower than A at 3 sizes, which so few"),
        ((0.8, 0.8), r"B is 1\.\d\dx to 1\.\d\dx faster than A at 2 sizes, which so few"),
        ((1.3, 0.8, 1.0), r"A and B differ by 1\.\d\dx to 1\.\d\dx at 3 sizes, which so few"),
        ((1.25,), r"B is 1\.\d\dx slower than A at 1 size, which so few sizes of 2 runs do not"),
    ],
)
def test_few_sizes_are_no_proof_of_no_difference(factors: tuple[float, ...], words: str) -> None:
    n, places = len(factors), (False,)
    sized = dict(zip(SIZES[:n], factors, strict=True))
    second = run_of(RANDOM, n, 0.002, places=places, slowdown=sized.__getitem__)
    found = compared([run_of(RANDOM, n, 0.002, places=places)], [second])
    assert (found.few, found.ranges) == (True, [])
    assert re.match(words, found.verdict("A", "B"))


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ((0.3, 0.4, 0.6, 1.3, 2.5, 4.0), r"B is faster than A below 8 KiB and slower from there"),
        ((3.0, 0.5, 0.6, 2.2, 0.5, 2.0), r"A and B differ by 1.*because the ratio varies as much"),
        ((1.0, 1.1, 0.9, 1.1, 0.9, 1.0), r"no difference beyond noise at 6 sizes"),
    ],
)
def test_wide_ratios_are_told_though_they_are_not_shown(
    factors: tuple[float, ...], words: str
) -> None:
    n, places = len(factors), (False,)
    sized = dict(zip(SIZES[:n], factors, strict=True))
    second = run_of(RANDOM, n, 0.002, places=places, slowdown=sized.__getitem__)
    found = compared([run_of(RANDOM, n, 0.002, places=places)], [second])
    assert re.match(words, found.verdict("A", "B")), found.verdict("A", "B")


def test_a_difference_of_the_whole_curve_needs_several_runs() -> None:
    pair = [
        [run_of(RANDOM, 12, 0.002, slowdown=lambda _, s=s: s) for _ in range(4)]
        for s in (1.0, 1.03)
    ]  # type: ignore[misc]
    assert not compared(pair[0][:1], pair[1][:1]).slower
    assert compared(pair[0][:1], pair[1][:1], assumed=0.01).slower
    found = compared(*pair)
    assert found.slower
    assert found.noise == "runs"
    for point in found.points:
        assert point.low is not None
        assert point.high is not None
        assert point.low < point.ratio < point.high


def test_one_size_far_off_counts_only_if_both_placements_show_it() -> None:
    def spike(size: int) -> float:
        return 7.0 if size == 1 << 15 else 1.0

    first = run_of(RANDOM, 12, 0.01)
    found = compared([first], [run_of(RANDOM, 12, 0.01, slowdown=spike)])
    assert [(x.low_bytes, x.sizes) for x in found.ranges] == [(1 << 15, 1)]
    alone = compared(
        [run_of(RANDOM, 12, 0.01, places=(False,))],
        [run_of(RANDOM, 12, 0.01, places=(False,), slowdown=spike)],
    )
    assert alone.ranges == []
    assert alone.isolated == [1 << 15]
    words = alone.verdict("A", "B")
    assert words.startswith("no difference beyond noise at 11 sizes (largest ")
    assert re.search(r"; 1 single size differs by up to \d{3} %: run again to judge$", words)


def test_placements_with_different_ratios_are_compared_apart() -> None:
    first, second = run_of(RANDOM, 12, 0.002), run_of(RANDOM, 12, 0.002)
    curve = second.curves[test_of(), "default"]
    for place in curve.times:
        if place.in_place:
            curve.times[place] += math.log(1.4)
    found = compare_sides([first], [second], 0.05)
    assert [(x.placements, x.slower) for x in found] == [
        (["out of place"], False),
        (["in place"], True),
    ]


def test_choices_are_compared_across_if_each_side_has_one() -> None:
    first = run_of(RANDOM, 9, 0.01)
    second = run_of(RANDOM, 9, 0.01, label="ring/simple")
    assert compared([first], [second]).choices == ("default", "ring/simple")
    both = MeasuredRun(name="x", curves={**first.curves, **second.curves})
    assert compared([both], [first]).choices == ("default", "default")


def test_what_ran_is_named_if_it_differs() -> None:
    first, second = run_of(RANDOM, 12, 0.002), slow_from(1 << 12, 1 << 15, 1.3)
    for run, label in ((first, "tree/ll"), (second, "ring/ll")):
        curve = run.curves[test_of(), "default"]
        curve.ran = dict.fromkeys(curve.times, label)
    found = compared([first], [second])
    assert found.ranges[0].ran == ("tree/ll", "ring/ll")
    assert "tree/ll ran, then ring/ll" in found.verdict("A", "B")


def test_a_run_that_ended_early_takes_no_sizes_from_the_others() -> None:
    whole = [run_of(RANDOM, 12, 0.01) for _ in range(3)]
    cut = run_of(RANDOM, 4, 0.01)
    found = compared([*whole, cut], whole)
    assert len(found.points) == 12
    assert found.runs == (3, 3)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"dtype": "half"}, FactDifference("type", "float", "half")),
        ({"redop": "prod"}, FactDifference("operation", "sum", "prod")),
        ({"registered": True, "graph": True}, FactDifference("CUDA graph", "no", "yes")),
        ({"registered": True}, FactDifference("registered", "no", "yes")),
    ],
)
def test_tests_that_differ_in_one_property_are_compared(
    change: dict[str, object], differs: FactDifference
) -> None:
    other = test_of()._replace(**change)  # type: ignore[arg-type]
    second = run_of(RANDOM, 12, 0.002, test=other, slowdown=lambda _: 1.5)
    found = compared([run_of(RANDOM, 12, 0.002)], [second])
    assert found.differs == [differs]
    assert found.title == "all-reduce, 1 node, 8 ranks"
    assert found.slower
    captured = run_of(RANDOM, 12, 0.002, test=test_of()._replace(registered=True, graph=True))
    assert "registered" not in compared([captured], [second]).title
    # An equal test counts alone.
    both = [second, run_of(RANDOM, 12, 0.002)]
    assert compared([run_of(RANDOM, 12, 0.002)], both).differs == []


def test_two_scales_are_compared_by_bus_bandwidth() -> None:
    first = run_of(RANDOM, 12, 0.001)
    second = run_of(RANDOM, 12, 0.001, test=test_of(2, 16), slowdown=lambda _: 3.0)
    found = compared([first], [second])
    assert found.differs == [FactDifference("scale", "1 node, 8 ranks", "2 nodes, 16 ranks")]
    assert found.bus_factors == pytest.approx((1.75, 1.875))
    assert found.points[0].ratio == pytest.approx(3.0 * 1.75 / 1.875, rel=0.02)
    assert found.verdict("A", "B").startswith("at 12 common sizes, bus bandwidth peaks at ")
    assert "; B has 0.36 times that of A" in found.verdict("A", "B")
    assert not found.slower
    assert found.title == "all-reduce, 1 node, 8 ranks and 2 nodes, 16 ranks"


@pytest.mark.parametrize(
    ("scale", "one_scale"), [((None, 8), True), ((None, 16), False), ((2, 8), False)]
)
def test_a_number_of_nodes_that_one_side_shows_is_no_difference(
    scale: tuple[int | None, int], one_scale: bool
) -> None:
    test = test_of()._replace(scale=scale)
    first, second = run_of(RANDOM, 12, 0.002), run_of(RANDOM, 12, 0.002, test=test)
    first, second = (
        msgspec.structs.replace(run, scale=own) for run, own in ((first, (1, 8)), (second, scale))
    )
    found = compared([first], [second])
    assert (found.differs == []) == (found.bus_factors is None) == one_scale
    assert (found.title == "all-reduce, 8 ranks") == one_scale
    assert ("number of nodes" in facts_not_shown([first], [second])) == (scale[0] is None)


def test_placements_are_compared_across_if_the_sides_share_none() -> None:
    first = run_of(RANDOM, 12, 0.002, places=(False,))
    second = run_of(RANDOM, 12, 0.002, places=(True,), slowdown=lambda _: 1.5)
    found = compared([first], [second])
    assert found.differs == [FactDifference("placement", "out of place", "in place")]
    assert found.slower


def test_what_ran_is_a_difference_of_the_sides() -> None:
    runs = [run_of(RANDOM, 12, 0.002) for _ in range(2)]
    for run, label in zip(runs, ("ring/simple", "nvls/simple"), strict=True):
        curve = run.curves[test_of(), "default"]
        curve.ran = dict.fromkeys(curve.times, label)
    assert compared(runs[:1], runs[1:]).differs == [
        FactDifference("ran", "ring/simple", "nvls/simple")
    ]


def test_a_large_difference_hides_no_small_one_beside_it() -> None:
    hump = dict(zip(sizes_of(20)[6:14], (1.3, 1.6, 2.6, 2.2, 1.8, 2.3, 1.5, 1.3), strict=True))
    flat = dict.fromkeys(sizes_of(20)[14:], 1.12)
    second = run_of(RANDOM, 20, 0.003, slowdown=lambda size: {**flat, **hump}.get(size, 1.0))
    found = compared([run_of(RANDOM, 20, 0.003)], [second])
    assert [point.beyond for point in found.points] == [False] * 6 + [True] * 14
    assert all(item.beyond == item.sizes for item in found.ranges)
    assert found.single < 0.15


def test_sides_without_a_common_test_are_refused() -> None:
    other = test_of()._replace(collective=Collective.ALLGATHER)
    with pytest.raises(NothingInCommonError, match="First: all-reduce.*Second: all-gather"):
        compare_sides([run_of(RANDOM, 9, 0.01)], [run_of(RANDOM, 9, 0.01, test=other)], 0.05)
    # Two candidates, each different in one property: which one is meant is unknown.
    several = [
        run_of(RANDOM, 9, 0.01, test=test_of()._replace(dtype=name)) for name in ("half", "double")
    ]
    with pytest.raises(NothingInCommonError, match="no common test"):
        compare_sides([run_of(RANDOM, 9, 0.01)], several, 0.05)


def test_sides_without_a_common_size_are_refused() -> None:
    second = run_of(RANDOM, 9, 0.01)
    curve = second.curves[test_of(), "default"]
    curve.times = {TimedPoint(p.in_place, p.bytes + 4): value for p, value in curve.times.items()}
    with pytest.raises(NothingInCommonError, match=r"no size.*16 B, so unaligned, .*slowly\)$"):
        compare_sides([run_of(RANDOM, 9, 0.01)], [second], 0.05)


def test_differing_facts_are_listed_and_missing_ones_named() -> None:
    first = run_of(RANDOM, 5, 0.01, nccl="2.28.3", hosts=("a", "b"))
    second = run_of(RANDOM, 5, 0.01, nccl="2.29.7", hosts=("a", "c"))
    assert fact_differences([first], [second]) == [
        FactDifference("NCCL", "2.28.3", "2.29.7"),
        FactDifference("hosts", "a, b", "a, c"),
    ]
    assert "NCCL version" not in facts_not_shown([first], [second])
    assert "NCCL settings" in facts_not_shown([first], [second])
    mixed = [first, run_of(RANDOM, 5, 0.01, nccl="2.27.1", hosts=("a", "b"))]
    assert [x.fact for x in fact_differences(mixed, [second])] == ["hosts"]
    assert "NCCL version" in facts_not_shown(mixed, [second])


def test_a_crossover_that_moved_is_found_in_single_runs() -> None:
    """Two ranges of opposite sign make the scatter along the sizes large, but no placement."""
    sizes = sizes_of(24)
    low, high = sizes[14:18], sizes[20:24]

    def moved(size: int) -> float:
        return 1.7 if size in low else 0.6 if size in high else 1.0

    random_ = random.Random(3)
    first = run_of(random_, 24, 0.01)
    second = run_of(random_, 24, 0.01, slowdown=moved)
    found = compared([first], [second])
    assert [(item.low_bytes, item.high_bytes) for item in found.ranges] == [
        (low[0], low[-1]),
        (high[0], high[-1]),
    ]
    assert found.slower


def test_the_largest_ratio_of_an_uneven_range_is_told() -> None:
    values = [1.0] * 8 + [1.5, 2.1, 1.7, 2.4, 1.6, 2.2, 6.0, 1.9]
    ratios = dict(zip(sizes_of(16), values, strict=True))
    random_ = random.Random(2)
    base = run_of(random_, 16, 0.005)
    other = run_of(random_, 16, 0.005, slowdown=lambda size: ratios[size])
    verdict = compared([base], [other]).verdict("a", "b")
    assert re.search(r"b is [12]\.\d+x slower than a from .*, at most [56]\.\d+x at ", verdict)


def test_a_size_that_both_placements_show_alike_is_unclear_and_not_noise() -> None:
    """The scatter along the sizes is large, because other sizes differ, too."""
    values = [1.0] * 8 + [1.3, 0.7] * 4
    ratios = dict(zip(sizes_of(16), values, strict=True))
    random_ = random.Random(4)
    first = run_of(random_, 16, 0.005)
    second = run_of(random_, 16, 0.005, slowdown=lambda size: ratios[size])
    found = compared([first], [second])
    assert found.isolated == sizes_of(16)[8:]
    assert "8 single sizes differ by up to 3" in found.verdict("A", "B")


def test_the_largest_difference_is_not_above_what_would_show_without_a_reason() -> None:
    values = [1.0] * 16 + [1.2, 0.8] * 4
    ratios = dict(zip(sizes_of(24), values, strict=True))
    random_ = random.Random(6)
    first = run_of(random_, 24, 0.01, places=(False,))
    second = run_of(random_, 24, 0.01, places=(False,), slowdown=lambda size: ratios[size])
    words = compared([first], [second]).verdict("A", "B")
    assert re.search(r"\(largest 2\d % beside sizes that scatter as much; a difference", words)


def test_two_sizes_that_one_placement_shows_are_no_range() -> None:
    first, second = run_of(RANDOM, 16, 0.003), run_of(RANDOM, 16, 0.003)
    curve = second.curves[test_of(), "default"]
    for size in sizes_of(16)[:2]:
        curve.times[TimedPoint(False, size)] += math.log(3)
    apart, other = compare_sides([first], [second], 0.05)
    assert not apart.slower
    assert not other.slower
    assert apart.isolated == sizes_of(16)[:2]


@pytest.mark.parametrize(("factor", "slower"), [(1.09, True), (1.03, False)])
def test_three_sizes_are_judged_by_the_agreement_of_the_placements(
    factor: float, slower: bool
) -> None:
    first = run_of(RANDOM, 3, 0.002)
    second = run_of(RANDOM, 3, 0.002, slowdown=lambda _: factor)
    found = compared([first], [second])
    assert found.noise == "placements"
    assert found.slower is slower
    assert [item.sizes for item in found.ranges] == [3] * slower
    if slower:
        assert "(3 of 3 sizes, beyond the difference of both placements)" in found.verdict("A", "B")


def test_a_setting_of_one_command_is_a_difference() -> None:
    def run(*names: str) -> MeasuredRun:
        facts = PlatformFacts(
            settings=dict.fromkeys(names, "1"), settings_by="command", commanded=names
        )
        test = test_of()._replace(scale=(None, 16))
        return msgspec.structs.replace(run_of(RANDOM, 5, 0.01, test=test), facts=facts)

    plain, set_ = run("NCCL_CROSS_NIC"), run("NCCL_CROSS_NIC", "NCCL_IGNORE_CPU_AFFINITY")
    different = [FactDifference("NCCL_IGNORE_CPU_AFFINITY", "not set", "1")]
    assert fact_differences([plain, plain], [set_]) == different
    # What not all runs of a side have is no difference of the sides.
    assert fact_differences([plain, set_], [set_]) == []


def test_a_change_that_both_placements_show_is_found_where_they_differ_themselves() -> None:
    """The placements differ by 10 % at other sizes, so they are compared apart."""
    sizes = sizes_of(24)
    change = dict(zip(sizes[12:20], (1.5, 0.6, 1.5, 1.6, 1.1, 1.1, 0.3, 0.6), strict=True))
    random_ = random.Random(8)
    first = run_of(random_, 24, 0.005)
    second = run_of(random_, 24, 0.005, slowdown=lambda size: change.get(size, 1.0))
    curve = second.curves[test_of(), "default"]
    for place in curve.times:
        curve.times[place] += math.log(1.1) * (place.in_place and place.bytes < 1 << 14)
    apart = compare_sides([first], [second], 0.05)
    assert len(apart) == 2
    for found in apart:
        beyond = {x.bytes for x in found.points if x.beyond}
        assert set(sizes[14:16]) | set(sizes[18:20]) <= beyond
        assert found.slower


def test_runs_of_a_side_that_differ_too_much_are_not_compared() -> None:
    runs = [
        run_of(RANDOM, 12, 0.01, slowdown=lambda _, s=s: s)  # type: ignore[misc]
        for s in (1, 1, 1, 4, 11)
    ]
    found = compared(runs, runs[2:])
    assert found.undecided
    assert found.verdict("A", "B").startswith("the runs of a side differ so much that a difference")


def test_a_verdict_lists_the_ranges_that_matter_most() -> None:
    sizes = sizes_of(40)
    slow = {size: 1.3 for i, size in enumerate(sizes) if i % 5 < 3}
    random_ = random.Random(9)
    first = run_of(random_, 40, 0.002)
    second = run_of(random_, 40, 0.002, slowdown=lambda size: slow.get(size, 1.0))
    found = compared([first], [second])
    assert len(found.ranges) == 8
    words = found.verdict("A", "B")
    assert words.count("is 1.30x slower than") == 5
    assert "; 3 more ranges, less different or shorter; " in words


@pytest.mark.parametrize("slower", [1, 8])
def test_few_of_many_tests_that_differ_a_little_are_drift(slower: int) -> None:
    tests = [test_of()._replace(dtype=f"type{at}") for at in range(8)]
    first = [run_of(RANDOM, 12, 0.002, test=test) for test in tests]
    second = [
        run_of(RANDOM, 12, 0.002, test=test, slowdown=lambda _, at=at: 1.06 if at < slower else 1.0)
        for at, test in enumerate(tests)
    ]
    found = compare_sides(first, second, 0.05)
    assert sum(item.slower for item in found) == (slower if slower == len(tests) else 0)
    assert [item.title[-10:] for item in found] == [f"type{at}, sum" for at in range(8)]
