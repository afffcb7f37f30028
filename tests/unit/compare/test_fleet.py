# SPDX-License-Identifier: Apache-2.0
"""Fleets: the slow node, pair, run or period is named, and none in noise."""

import itertools
import random
from collections.abc import Callable

import pytest

from nccltune.compare.fleet import FleetTest, judge_fleet, run_peaks
from nccltune.compare.runs import MeasuredRun, labelled_by_ran
from nccltune.compare.series import scaling
from tests.unit.compare.simulated import run_of, test_of

Slowness = Callable[[tuple[str, ...]], float]


def pairs(
    number: int, noise: float, slow: Slowness = lambda _: 1.0, seed: int = 1, offset: float = 0.0
) -> list[MeasuredRun]:
    random_ = random.Random(seed)
    hosts = [f"node-{i:02d}" for i in range(number)]
    return [
        run_of(
            random_,
            8,
            noise,
            slowdown=lambda _, pair=pair: slow(pair),  # type: ignore[misc]
            offset=offset,
            hosts=pair,
            test=test_of(2, 2),
            name="_".join(pair),
        )
        for pair in itertools.combinations(hosts, 2)
    ]


def checks(
    hosts: list[str],
    noise: float,
    slow: Callable[[int], float] = lambda _: 1.0,
    seed: int = 1,
    offset: float = 0.0,
    nccl: Callable[[int], str] = lambda _: "2.28.3",
) -> list[MeasuredRun]:
    random_ = random.Random(seed)
    return [
        run_of(
            random_,
            8,
            noise,
            slowdown=lambda _, i=i: slow(i),  # type: ignore[misc]
            offset=offset,
            hosts=(host,),
            name=f"day-{i:02d}",
            nccl=nccl(i),
            at=float(i),
        )
        for i, host in enumerate(hosts)
    ]


def judged(runs: list[MeasuredRun]) -> FleetTest:
    (found,) = judge_fleet(runs)
    return found


NODES = [f"node-{i:02d}" for i in range(24)]


@pytest.mark.parametrize(("noise", "offset"), [(0.03, 0.0), (0.15, 0.0), (0.01, 0.1)])
@pytest.mark.parametrize("shape", ["pairs", "nodes", "nodes three times", "one node"])
def test_noise_names_nothing(shape: str, noise: float, offset: float) -> None:
    makers: dict[str, Callable[[int], list[MeasuredRun]]] = {
        "pairs": lambda seed: pairs(8, noise, seed=seed, offset=offset),
        "nodes": lambda seed: checks(NODES, noise, seed=seed, offset=offset),
        "nodes three times": lambda seed: checks(NODES[:8] * 3, noise, seed=seed, offset=offset),
        "one node": lambda seed: checks(NODES[:1] * 24, noise, seed=seed, offset=offset),
    }
    found = sum(bool(judged(makers[shape](seed)).slow) for seed in range(60))
    assert found <= 8  # 5 %, three standard errors above


def test_a_weak_node_is_named_with_its_numbers_and_its_pairs() -> None:
    weak = "node-04"
    found = judged(pairs(17, 0.02, lambda pair: 1.135 if weak in pair else 1.0, offset=0.01))
    (slow,) = found.slow
    assert (slow.kind, slow.names, slow.low, slow.runs) == ("node", [weak], 16, 16)
    assert slow.ratio == pytest.approx(1.135, rel=0.02)
    assert slow.value == pytest.approx(slow.usual / slow.ratio, rel=0.03)
    assert slow.value == found.nodes[0].median_gb_per_s
    assert slow.sentence.startswith("node-04: ")
    assert slow.sentence.endswith(" GB/s at 128 KiB in 16 of 16 pairs")
    assert found.runs == 136
    assert found.hosts == 17
    assert found.nodes[0].name == weak
    assert found.nodes[0].low == 16
    assert found.nodes[0].mean_gb_per_s < 0.93 * found.usual_gb_per_s


def test_two_weak_nodes_are_both_named() -> None:
    weak = {"node-02", "node-07"}
    found = judged(pairs(12, 0.02, lambda pair: 1.2 if weak & set(pair) else 1.0))
    assert {tuple(item.names) for item in found.slow} == {("node-02",), ("node-07",)}


def test_an_isolated_pair_is_no_fault_of_its_nodes() -> None:
    bad = ("node-02", "node-05")
    found = judged(pairs(9, 0.02, lambda pair: 2.0 if pair == bad else 1.0))
    (slow,) = found.slow
    assert (slow.kind, slow.names, slow.hosts) == ("run", ["node-02 - node-05"], list(bad))
    assert [item.low for item in found.nodes[:3]] == [1, 1, 0]


def test_groups_with_a_slow_path_between_them_have_no_slow_nodes() -> None:
    small = ({"node-01", "node-02"}, {"node-07"})

    def slow(pair: tuple[str, ...]) -> float:
        return 1.09 if any(len(group & set(pair)) == 1 for group in small) else 1.0

    found = judged(pairs(10, 0.004, slow))
    (path,) = found.slow
    assert (path.kind, path.names) == ("path", ["node-01, node-02", "node-07"])
    assert (path.low, path.runs) == (23, 23)
    assert path.ratio == pytest.approx(1.09, rel=0.01)
    assert "between {node-01, node-02}, {node-07} and the others: " in path.sentence
    assert {node.name: node.low for node in found.nodes[:3]} == {
        "node-07": 9, "node-01": 8, "node-02": 8
    }  # fmt: skip
    assert found.spread < 0.01


def test_a_slow_node_inside_a_group_is_named_beside_the_path() -> None:
    left = {f"node-{i:02d}" for i in range(5)}

    def slow(pair: tuple[str, ...]) -> float:
        return 1.2 if len(left & set(pair)) == 1 else 1.06 if "node-02" in pair else 1.0

    kinds = {item.kind: item.names for item in judged(pairs(10, 0.004, slow)).slow}
    assert kinds["path"] == ["node-05, node-06, node-07, node-08, node-09"]
    assert kinds["node"] == ["node-02"]


def test_a_slow_node_among_single_checks_is_named_with_its_facts() -> None:
    found = judged(
        checks(
            NODES,
            0.02,
            lambda i: 1.2 if i == 7 else 1.0,
            nccl=lambda i: "2.26.2" if i == 7 else "2.28.3",
        )
    )
    (slow,) = found.slow
    assert (slow.kind, slow.names, slow.low, slow.runs) == ("node", ["node-07"], 1, 1)
    assert slow.sentence.endswith("; its NCCL: 2.26.2; the others': 2.28.3")


def test_a_node_that_became_slower_is_a_period() -> None:
    found = judged(checks(["node-1"] * 24, 0.02, lambda i: 1.12 if i >= 17 else 1.0))
    (slow,) = found.slow
    assert slow.kind == "period"
    assert slow.names == [f"day-{i}" for i in range(17, 24)]
    assert slow.sentence.startswith("7 runs from day-17 to day-23: ")
    assert found.nodes == []


def test_a_node_that_is_slower_since_an_early_run_is_a_period_too() -> None:
    found = judged(checks(["node-1"] * 24, 0.01, lambda i: 1.12 if i >= 6 else 1.0))
    (slow,) = found.slow
    assert (slow.kind, slow.names[0], slow.names[-1]) == ("period", "day-06", "day-23")
    assert slow.ratio == pytest.approx(1.12, rel=0.03)


def test_a_period_of_one_node_among_several_is_found() -> None:
    hosts = [f"node-{i % 6}" for i in range(48)]
    found = judged(checks(hosts, 0.01, lambda i: 1.3 if i % 6 == 2 and i >= 24 else 1.0))
    (slow,) = found.slow
    assert (slow.kind, slow.names) == ("period", ["day-26", "day-32", "day-38", "day-44"])


def test_one_slow_day_is_a_run() -> None:
    found = judged(checks(["node-1"] * 24, 0.02, lambda i: 1.3 if i == 9 else 1.0))
    (slow,) = found.slow
    assert (slow.kind, slow.names) == ("run", ["day-09"])


def test_runs_of_unknown_order_and_hosts_have_no_periods() -> None:
    runs = checks([""] * 12, 0.02, lambda i: 1.5 if i in (3, 4) else 1.0)
    for run in runs:
        run.hosts, run.at = (), None
    assert {item.kind for item in judged(runs).slow} == {"run"}


def test_nodes_that_ran_only_together_are_named_together() -> None:
    random_ = random.Random(3)
    groups = [tuple(f"n{group}{i}" for i in range(2)) for group in range(6)]
    runs = [
        run_of(
            random_,
            8,
            0.01,
            slowdown=lambda _, hosts=hosts: 1.3 if hosts == groups[2] else 1.0,  # type: ignore[misc]
            hosts=hosts,
            test=test_of(2, 2),
        )
        for hosts in groups * 2
    ]
    (slow,) = judged(runs).slow
    assert slow.names == ["n20", "n21"]
    assert "these nodes ran only together" in slow.sentence


def test_latency_alone_is_reported_in_us() -> None:
    random_ = random.Random(4)
    runs = [
        run_of(
            random_,
            14,
            0.01,
            slowdown=lambda size, i=i: 1.5 if i == 3 and size < 1 << 16 else 1.0,  # type: ignore[misc]
            hosts=(f"n{i}",),
        )
        for i in range(10)
    ]
    (slow,) = judged(runs).slow
    assert slow.unit == "us"
    assert " us, usual 2" in slow.sentence


def test_a_run_with_few_sizes_is_named_and_not_judged() -> None:
    runs = checks(NODES[:8], 0.01)
    for curve in runs[3].curves.values():
        curve.times = dict(list(curve.times.items())[:3])
    found = judged(runs)
    assert found.cut == ["day-03"]
    assert found.runs == 7
    assert "node-03" not in [item.name for item in found.nodes]


def test_too_few_runs_are_not_judged() -> None:
    assert judge_fleet(checks(NODES[:3], 0.01)) == []


@pytest.mark.parametrize(
    ("between", "rates", "names"),
    [
        ("ab ac bd", (1.6, 1.0, 1.01), ["a - b"]),
        ("ab ac bc", (1.6, 1.0, 1.6), ["b"]),
        ("ab ac bc", (1.6, 1.28, 1.0), []),
        ("ab ac bc", (1.2, 1.0, 1.0), []),
        ("ab ab ac", (1.6, 1.0, 1.0), []),
    ],
)
def test_of_three_pairs_one_is_named_if_it_is_clearly_slow(
    between: str, rates: tuple[float, ...], names: list[str]
) -> None:
    random_ = random.Random(5)
    runs = [
        run_of(
            random_,
            8,
            0.01,
            slowdown=lambda _, f=rate: f,  # type: ignore[misc]
            hosts=tuple(pair),
            test=test_of(2, 2),
            name=f"{pair}{rate}",
        )
        for pair, rate in zip(between.split(), rates, strict=True)
    ]
    found = judge_fleet(runs)
    assert [name for test in found for item in test.slow for name in item.names] == names
    assert len(found) == bool(names)


def test_slow_runs_of_the_same_nodes_are_named_by_their_files() -> None:
    random_ = random.Random(3)
    factors = (4.0, 11.0, 1.0, 1.0, 1.0)
    runs = [
        run_of(
            random_, 20, 0.003, name=f"dat.{n}", hosts=("a", "b"), slowdown=lambda _, f=factor: f
        )
        for n, factor in enumerate(factors, 1)
    ]  # type: ignore[misc]
    found = judged(runs)
    assert [item.names for item in found.slow] == [["dat.2"], ["dat.1"]]
    assert all(item.hosts == [] for item in found.slow)
    assert found.spread < 0.02
    peaks = run_peaks(runs)
    assert [item.run for item in peaks[-2:]] == ["dat.1", "dat.2"]
    (slow,) = [item for item in found.slow if item.names == ["dat.1"]]
    assert slow.value / slow.usual == pytest.approx(slow.ratio, rel=0.05)


def test_a_slow_run_with_another_setting_shows_it() -> None:
    random_ = random.Random(3)
    runs = [
        run_of(
            random_,
            20,
            0.003,
            name=f"{n}",
            hosts=("a", "b"),
            slowdown=lambda _, n=n: 2.0 if n == 4 else 1.0,
            nccl="2.18.1" if n == 4 else "2.28.3",
        )
        for n in range(6)
    ]  # type: ignore[misc]
    (slow,) = judged(runs).slow
    assert (slow.names, slow.facts) == (["4"], ["its NCCL: 2.18.1; the others': 2.28.3"])


def test_runs_of_different_algorithms_are_no_runs_of_one_test() -> None:
    random_ = random.Random(3)

    def ran(label: str, ranks: int) -> MeasuredRun:
        run = run_of(random_, 9, 0.01, name=label, test=test_of(1, ranks))
        curve = run.curves[test_of(1, ranks), "default"]
        curve.ran = dict.fromkeys(curve.times, label)
        return run

    runs = [ran(label, ranks) for ranks in (2, 4, 6) for label in ("ring/simple", "nvls/simple")]
    apart = labelled_by_ran(runs)
    assert {item.title for item in scaling(apart)} == {
        "all-reduce, 1 node, ring/simple",
        "all-reduce, 1 node, nvls/simple",
    }
    same = [ran("ring/simple", ranks) for ranks in (2, 4)] + [ran("nvls/simple", 6)]
    assert labelled_by_ran(same) == same


def test_runs_without_a_usual_value_are_uneven() -> None:
    rates = (1.0, 1.3, 9.0, 17.0)
    runs = [run_of(random.Random(i), 8, 0.01, slowdown=lambda _, r=r: r, hosts=("a",), name=str(i))
            for i, r in enumerate(rates)]  # type: ignore[misc]  # fmt: skip
    found = judged(runs)
    assert found.slow == []
    assert found.uneven
    assert found.rates[1] / found.rates[0] == pytest.approx(17, rel=0.1)
    assert not judged(checks(["n"] * 8, 0.05)).uneven


def test_the_plateau_at_the_end_counts_below_an_earlier_peak() -> None:
    """A curve that falls at its largest sizes: these are reported, and they are judged there."""

    def slow(i: int) -> Callable[[int], float]:
        return lambda size: (6.0 if i == 2 else 3.0) if size >= 1 << 16 else 1.0

    runs = [run_of(random.Random(i), 9, 0.01, slowdown=slow(i), hosts=(f"n{i}",), name=str(i))
            for i in range(6)]  # fmt: skip
    (item,) = judged(runs).slow
    assert item.names == ["n2"]
    assert item.ratio == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("slow", [0, 1, 2, 4, 5])
def test_a_size_at_which_runs_differ_most_is_named(slow: int) -> None:
    random_ = random.Random(7)
    runs = [
        run_of(
            random_,
            12,
            0.02,
            slowdown=lambda size, at=at: 3.0 if at < slow and size == 1 << 18 else 1.0,  # type: ignore[misc]
            hosts=("a", "b"),
            name=f"{at}",
        )
        for at in range(6)
    ]
    (test,) = judge_fleet(runs)
    # One run apart may be chance.
    assert (test.varied is not None) == (1 < slow < 5)
    assert test.varied is None or test.varied[0] == 1 << 18
