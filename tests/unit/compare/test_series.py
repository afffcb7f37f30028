# SPDX-License-Identifier: Apache-2.0
"""Scaling series: rows, efficiency, where bandwidth drops, and stretches that differ."""

import math
import random
import re
from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from nccltune.compare.runs import MeasuredRun, with_nominal_sizes
from nccltune.compare.scan import FEWEST, LEAST_SCATTER, Stretch, scatter, stretches
from nccltune.compare.series import kept_apart, scaling
from nccltune.formats.reading.platform_facts import PlatformFacts
from nccltune.model.collective import Collective
from tests.unit.compare.simulated import run_of, sizes_of, test_of


def series(factors: Mapping[int, float], each: int = 4, noise: float = 0.005) -> list[MeasuredRun]:
    """Runs with `each` ranks on every node; the factor is that of the time."""
    random_ = random.Random(1)
    return [
        run_of(
            random_,
            10,
            noise,
            slowdown=lambda _, factor=factor: factor,  # type: ignore[misc]
            test=test_of(nodes, nodes * each),
        )
        for nodes, factor in factors.items()
    ]


def test_efficiency_is_relative_to_the_first_scale_with_a_network() -> None:
    (found,) = scaling(series({1: 0.5, 2: 1.0, 4: 1.0, 8: 1.0, 16: 2.0}))
    assert found.title == "all-reduce, 4 ranks on each node"
    assert found.sizes == sizes_of(10)[-3:]
    assert [(row.nodes, row.ranks, row.runs) for row in found.rows] == [
        (1, 4, 1), (2, 8, 1), (4, 16, 1), (8, 32, 1), (16, 64, 1),
    ]  # fmt: skip
    assert found.rows[0].efficiency is None
    # The bus factor grows from 1.75 to 1.97.
    assert [row.efficiency for row in found.rows[1:]] == [
        pytest.approx(value, rel=0.02) for value in (1.0, 1.07, 1.11, 0.56)
    ]
    assert not found.has_outlier
    assert len(found.sentences) == 1
    assert "GB/s with 8 nodes" in found.sentences[0]
    assert "GB/s with 16 nodes at 512 KiB: 49 % lost" in found.sentences[0]


def test_a_scale_below_both_neighbours_is_an_outlier() -> None:
    (found,) = scaling(series({2: 1.0, 4: 1.0, 8: 2.0, 16: 1.05, 32: 1.05}))
    assert [row.nodes for row in found.rows if row.outlier] == [8]
    assert found.has_outlier
    assert "GB/s with 8 nodes at 512 KiB, but " in found.sentences[0]
    assert len(found.sentences) == 1


def test_a_loss_is_told_at_a_size_that_loses() -> None:
    random_ = random.Random(1)
    sizes = sizes_of(10)
    last = {2: (1.0, 1.0, 1.0), 4: (2.0, 1.5, 1.0), 8: (2.0, 1.5, 2.0)}
    runs = [
        run_of(
            random_,
            10,
            0.005,
            slowdown=lambda size, f=factors: dict(zip(sizes[-3:], f, strict=True)).get(size, 1.0),  # type: ignore[misc]
            test=test_of(nodes, nodes * 8),
        )
        for nodes, factors in last.items()
    ]
    (found,) = scaling(runs)
    middle, largest = found.sentences
    # The step to 4 nodes loses at two of three sizes, that to 8 nodes only at the largest.
    assert "with 4 nodes at 128 KiB: 48 % lost, 31 % at 256 KiB" in middle
    assert "with 8 nodes at 512 KiB: 49 % lost" in largest


def test_a_flat_series_has_no_drop() -> None:
    (found,) = scaling(series({2: 1.0, 4: 1.0, 8: 1.02}))
    assert found.sentences == ["no step loses more than 10 % at the sizes shown"]


@pytest.mark.parametrize(
    ("factors", "told"),
    [
        ((1.0, 1.12, 1.27, 1.42, 1.6), [r"with 4 nodes, .* 64 nodes .*: 3\d % lost over 5 scales"]),
        ((1.0, 1.12, 1.27, 2.6, 2.9), ["with 4 nodes, .* 64 nodes .* lost over 5 scales",
                                       "with 16 nodes, .* 32 nodes .*: 5[01] % lost$"]),
        ((1.0, 1.0, 1.0, 1.0, 1.3), [r"with 32 nodes, .* 64 nodes .*: 2\d % lost$"]),
        # A gain between makes up for it, so each loss is told.
        ((1.0, 1.2, 1.44, 0.7, 0.7), ["with 4 nodes, .* 8 nodes", "with 8 nodes, .* 16 nodes"]),
    ],
)  # fmt: skip
def test_a_loss_over_all_scales_is_told_and_a_step_only_beyond_the_trend(
    factors: tuple[float, ...], told: list[str]
) -> None:
    (found,) = scaling(series(dict(zip((4, 8, 16, 32, 64), factors, strict=True)), each=8))
    assert len(found.sentences) == len(told), found.sentences
    for sentence, words in zip(found.sentences, told, strict=True):
        assert re.search(words, sentence), found.sentences


@pytest.mark.parametrize(("first", "each", "trees"), [(2, 8, True), (2, 1, False), (4, 8, False)])
def test_what_trees_gain_on_two_nodes_is_told(first: int, each: int, *, trees: bool) -> None:
    factors = {first: 1.0, 8: 3.0, 16: 3.0}
    (found,) = scaling(series(factors, each=each))
    assert len(found.sentences) == 1
    assert "% lost" in found.sentences[0]
    assert ("2 nodes with NCCL_ALGO=Ring" in found.sentences[0]) is trees


def test_more_ranks_on_the_same_nodes_are_a_series() -> None:
    random_ = random.Random(2)
    runs = [
        run_of(
            random_,
            8,
            0.005,
            slowdown=lambda _, ranks=ranks: 1.7 if ranks == 80 else 1.0,  # type: ignore[misc]
            test=test_of(10, ranks),
        )
        for ranks in (10, 20, 40, 80)
    ]
    (found,) = scaling(runs)
    assert found.title == "all-reduce, 10 nodes"
    assert [row.efficiency for row in found.rows] == [None] * 4
    assert "GB/s with 80 ranks" in found.sentences[0]


def test_a_scale_below_its_neighbours_at_one_size_is_told_there() -> None:
    """It is no loss of a step at that size, and no outlier as a whole."""
    runs = series({2: 1.0, 4: 1.0, 8: 1.0, 16: 1.0})
    curve = next(iter(runs[2].curves.values()))
    small = sizes_of(10)[-3]
    curve.times = {p: x + math.log(2) * (p.bytes == small) for p, x in curve.times.items()}
    (found,) = scaling(runs)
    assert not found.has_outlier
    (sentence,) = found.sentences
    assert re.search(r"^\S+ GB/s with 8 nodes at 128 KiB, but .* run it again", sentence)


def test_runs_of_two_gpus_are_not_one_series() -> None:
    runs = series({2: 1.0, 4: 1.0, 8: 1.0, 16: 3.0, 32: 3.0})
    names = ["A100", "A100", "A100", "H100", None]
    runs = [
        msgspec.structs.replace(run, name=f"run {i}", facts=PlatformFacts(gpu=gpu))
        for i, (run, gpu) in enumerate(zip(runs, names, strict=True))
    ]
    (found,) = scaling(runs)
    assert [row.nodes for row in found.rows] == [2, 4, 8]
    assert found.title == "all-reduce, 4 ranks on each node, GPU A100"
    assert kept_apart(runs) == (
        "not one series, because the runs differ: run 0, run 1, run 2 (GPU A100); run 3 (GPU H100);"
        " run 4 (GPU not shown)"
    )
    # A run that does not show the GPU of all others is in the series.
    runs[3] = msgspec.structs.replace(runs[3], facts=PlatformFacts(gpu="A100"))
    assert kept_apart(runs) is None
    assert len(scaling(runs)[0].rows) == 5


def test_sizes_that_differ_by_rounding_are_one_size() -> None:
    runs = series({2: 1.0, 4: 1.0, 8: 1.0}, each=10)
    for run in runs:
        ((test, label), curve), *_ = run.curves.items()
        run.curves = {(test._replace(collective=Collective.ALLGATHER), label): curve}
        block = 16 * (run.scale[1] or 1)
        curve.times = {
            p._replace(bytes=p.bytes * 1024 // block * block): x for p, x in curve.times.items()
        }
    (bare,) = scaling(runs)
    (found,) = scaling(with_nominal_sizes(runs))
    assert [row.ranks for row in found.rows] == [20, 40, 80]
    assert found.sizes == [size // 320 * 320 for size in (1 << 27, 1 << 28, 1 << 29)]
    assert bare.sizes != found.sizes
    # All-reduce is not rounded, and runs of one number of ranks are rounded alike.
    for collective, ranks in ((Collective.ALLREDUCE, None), (Collective.ALLGATHER, (2, 2))):
        apart = [
            msgspec.structs.replace(
                run,
                curves={
                    (test._replace(collective=collective, scale=ranks or test.scale), label): curve
                    for (test, label), curve in run.curves.items()
                },
            )
            for run in runs
        ]
        assert with_nominal_sizes(apart) == apart


def test_scales_without_a_common_size_are_named() -> None:
    runs = series({2: 1.0, 4: 1.0, 8: 1.0})
    for run in runs:
        (curve,) = run.curves.values()
        curve.times = {p._replace(bytes=p.bytes * run.scale[1]): x for p, x in curve.times.items()}
        curve.times = dict(list(curve.times.items())[:1])
    (found,) = scaling(runs)
    assert found.rows == []
    assert found.sentences == ["not shown: no size is common to the scales"]


def test_a_scale_that_ended_early_takes_no_sizes() -> None:
    runs = series(dict.fromkeys((2, 4, 8, 16, 32), 1.0))
    curve = next(iter(runs[1].curves.values()))
    curve.times = {p: x for p, x in curve.times.items() if p.bytes < 1 << 14}
    (found,) = scaling(runs)
    assert found.sizes == sizes_of(10)[-3:]
    assert [row.nodes for row in found.rows] == [2, 8, 16, 32]


def test_two_scales_are_no_series() -> None:
    assert scaling(series({2: 1.0, 4: 1.0})) == []


def test_runs_of_one_scale_that_differ_are_no_series_to_judge() -> None:
    runs = series({2: 1.0, 4: 1.0, 8: 1.0}) + series({2: 9.0, 16: 9.0})
    (found,) = scaling(runs)
    assert len(found.rows) == 4
    (sentence,) = found.sentences
    assert re.search(
        r"^runs of one scale differ by up to (8|9)\.\d+x, for example with 8 ranks: ", sentence
    )


RANDOM = np.random.default_rng(1)


def test_a_step_is_found_with_its_places_and_its_value() -> None:
    series = np.array([0.0, 0.01, -0.01, 0.3, 0.31, 0.29, 0.3, 0.0, 0.01])
    assert stretches(series, 0.05, 0.05) == [Stretch(3, 7, pytest.approx(0.3))]
    assert stretches(-series, 0.05, 0.05) == [Stretch(3, 7, pytest.approx(-0.3))]


def test_two_steps_of_opposite_sign_are_two_stretches() -> None:
    series = np.array([0.3, 0.31, 0.3, 0.0, 0.01, 0.0, 0.01, -0.2, -0.21, -0.2])
    found = stretches(series, 0.05, 0.05)
    assert [(item.start, item.stop) for item in found] == [(0, 3), (7, 10)]


def test_a_single_outlier_is_no_stretch() -> None:
    series = np.zeros(12)
    series[5] = 2.0
    assert stretches(series, 0.05, 0.05) == []


def test_a_difference_of_the_whole_series_below_the_allowance_is_none() -> None:
    assert stretches(np.full(20, 0.04), 0.05, 0.05) == []
    assert stretches(np.full(20, 0.08), 0.05, 0.05) == [Stretch(0, 20, pytest.approx(0.08))]


def test_the_allowance_may_differ_by_place() -> None:
    series = np.full(20, 0.2)
    allowance = np.where(np.arange(20) < 10, 0.5, 0.05)
    assert stretches(series, allowance, 0.05) == [Stretch(10, 20, pytest.approx(0.2))]


def test_short_series_have_no_scatter_and_no_stretch() -> None:
    assert stretches(np.ones(FEWEST - 1), 0.0, 0.05) == []
    assert stretches(np.ones(FEWEST), 0.0, 0.05) == [Stretch(0, FEWEST, 1.0)]


def test_the_scatter_is_the_noise_and_no_step_adds_to_it() -> None:
    noise = RANDOM.normal(0, 0.1, 400)
    noise[200:] += 1.0
    assert float(np.median(scatter(noise))) == pytest.approx(0.1, rel=0.3)
    assert scatter(np.zeros(8)).tolist() == [LEAST_SCATTER] * 8


def test_a_quiet_part_does_not_vouch_for_a_noisy_one() -> None:
    noise = RANDOM.normal(0, 1, 60) * np.where(np.arange(60) < 20, 0.2, 0.01)
    found = scatter(noise)
    assert found[5] > 0.1 > found[50]


@pytest.mark.parametrize("places", [5, 9, 16, 30])
def test_noise_alone_gives_a_stretch_as_rarely_as_stated(places: int) -> None:
    series = RANDOM.normal(0, 0.2, (400, places))
    rate = sum(bool(stretches(item, 0.0, 0.05)) for item in series) / len(series)
    # 5 % plus three standard errors of 400 trials.
    assert 0.005 < rate < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
