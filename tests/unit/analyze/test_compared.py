# SPDX-License-Identifier: Apache-2.0
"""What counts as a comparison with the default."""

import msgspec
import pytest

from nccltune.analyze.compared import Compared, compared, comparisons, is_right
from nccltune.model.collective import Collective
from nccltune.model.finding import FindingKind
from nccltune.model.platform import Platform
from nccltune.model.sample import Sample
from tests.unit.builders import analyze_samples, measure, sizes

SIZES = sizes(1 << 20, 1 << 23)
PLATFORM = Platform(name="synthetic")


def of(samples: list[Sample]) -> Compared:
    return compared(analyze_samples(PLATFORM, samples).conditions)


def test_the_default_alone_is_compared_with_nothing() -> None:
    found = of(measure(SIZES, lambda size: {"default": size / 1e5}))
    assert (found.choices, found.sizes, found.alone) == ((0, 0), 0, SIZES)
    assert found.has_default
    assert not found.anything
    assert not found.conclusive


def test_choices_without_the_default_are_compared_with_nothing() -> None:
    found = of(measure(SIZES, lambda size: {"tree/ll": size / 1e5, "ring/ll": size / 1e5}))
    assert (found.choices, found.sizes, found.alone) == ((2, 2), 0, [])
    assert not found.has_default
    assert not found.anything
    assert not found.everywhere


def test_rounds_of_both_at_every_size_are_conclusive() -> None:
    both = lambda size: {"default": size / 1e5, "ring/ll": size / 9e4}  # noqa: E731
    found = of(measure(SIZES, both, rounds=6, twice=False))
    assert found == Compared((1, 1), len(SIZES), [], True, 6, True)
    assert found.conclusive
    once = of(measure(SIZES, both, rounds=1, twice=False))
    assert once.everywhere
    assert not once.known
    assert not once.conclusive


def test_sizes_without_another_choice_are_listed() -> None:
    def some(size: int) -> dict[str, float]:
        times = {"default": size / 1e5}
        return times if size == SIZES[-1] else {**times, "ring/ll": size / 9e4}

    found = of(measure(SIZES, some))
    assert found.anything
    assert not found.everywhere
    assert found.alone == SIZES[-1:]


def test_the_choices_are_those_of_one_size() -> None:
    low, middle = {"ring/ll": 10.0, "tree/ll": 9.0}, {"tree/ll": 20.0}
    high = {"ring/simple": 50.0, "tree/simple": 40.0, "tree/ll": 90.0}
    rows = dict(zip(SIZES, [low, middle, high], strict=False))
    assert texts(measure(rows, rows.__getitem__, rounds=1)) == [
        "2 to 3 choices a size with each other: fastest tree/ll at 1 MiB (by up to 1.11x), "
        "fastest tree/simple at 4 MiB (by up to 1.25x); the default was not measured"
    ]
    never = measure(SIZES[:1], lambda _: low | {"pat/simple": 5.0}, rounds=1)
    assert "fastest tree/ll" in texts(never)[0]
    assert "; pat/simple is none: NCCL has no pat algorithm for allreduce" in texts(never)[0]
    both = measure(rows, lambda size: {"default": 45.0, **rows[size]}, rounds=1, twice=False)
    assert texts(both) == [
        "with 1 to 3 choices at 3 sizes, 1 timing a point: most at 1 MiB, where tree/ll looks "
        "5.00x faster, but so few timings cannot show it"
    ]
    apart = {SIZES[0]: middle, SIZES[1]: {"ring/ll": 20.0}}
    assert texts(measure(apart, apart.__getitem__, rounds=1)) == [
        "with nothing: the default was not measured"
    ]


def test_a_comparison_in_place_counts_for_both_placements() -> None:
    default = measure(SIZES, lambda size: {"default": size / 1e5})
    inside = measure(
        SIZES, lambda size: {"default": size / 1e5, "ring/ll": size / 9e4}, in_place=True
    )
    assert of([*default, *inside]).everywhere


def texts(samples: list[Sample]) -> list[str]:
    return [item.text for item in comparisons(analyze_samples(PLATFORM, samples))]


def gaps(samples: list[Sample]) -> list[str]:
    found = analyze_samples(PLATFORM, samples).findings
    return [item.sentence for item in found if item.kind is FindingKind.NOT_COMPARED]


def two(size: int) -> dict[str, float]:
    return {"default": 10 + size / 1e5, "ring/ll": 11 + size / 9e4}


def one(size: int) -> dict[str, float]:
    return {"default": two(size)["default"]}


def test_only_the_default_is_a_finding_and_never_right() -> None:
    samples = measure(SIZES, one)
    (sentence,) = gaps(samples)
    assert sentence.startswith(
        "all-reduce, 4 nodes, 4 ranks: only the default was measured, so no rule can be found"
    )
    assert texts(samples) == [
        "with nothing: only the default was measured, so no rule can be found"
    ]
    assert not is_right(analyze_samples(PLATFORM, samples))


def test_the_default_is_right_where_other_choices_were_compared_at_every_size() -> None:
    samples = measure(SIZES, two, noise=0.005)
    assert gaps(samples) == []
    assert texts(samples) == [
        "with 1 choice at 4 sizes, 8 rounds or more: none is faster beyond noise"
    ]
    assert is_right(analyze_samples(PLATFORM, samples))


def test_one_timing_a_point_shows_nothing() -> None:
    once = measure(SIZES, two, rounds=1, twice=False)
    assert texts(once) == [
        "with 1 choice at 4 sizes, 1 timing a point: the default looks right, but so few timings "
        "cannot show it"
    ]
    faster = measure(
        SIZES, lambda size: {**one(size), "tree/ll": size / 2e5}, rounds=1, twice=False
    )
    (text,) = texts(faster)
    assert "1 timing a point: most at 1 MiB, where tree/ll looks 3.91x faster" in text
    assert not is_right(analyze_samples(PLATFORM, once))


def test_a_bad_crossover_takes_the_claim_away() -> None:
    better = measure(SIZES, lambda size: {**one(size), "tree/ll": 5 + size / 2e5}, noise=0.005)
    assert texts(better) == ["with 1 choice at 4 sizes, 8 rounds or more"]
    assert not is_right(analyze_samples(PLATFORM, better))


@pytest.mark.parametrize(
    ("alone", "words"), [(SIZES[2:], "4 MiB to 8 MiB"), ([SIZES[0], SIZES[3]], "1 MiB, 8 MiB")]
)
def test_sizes_of_the_default_alone_are_named(alone: list[int], words: str) -> None:
    samples = measure(SIZES, lambda size: one(size) if size in alone else two(size), noise=0.005)
    (sentence,) = gaps(samples)
    assert f": at {words} only the default was measured" in sentence
    assert texts(samples) == ["with 1 choice at 2 of 4 sizes, 8 rounds or more"]


def test_each_collective_is_judged_alone() -> None:
    samples = measure(SIZES, two, noise=0.005)
    samples += measure(SIZES, one, noise=0.005, collective=Collective.ALLGATHER)
    (sentence,) = gaps(samples)
    assert sentence.startswith("all-gather, 4 nodes, 4 ranks: only")
    assert not is_right(analyze_samples(PLATFORM, samples))


def test_a_collective_without_a_tuner_lacks_nothing() -> None:
    samples = measure(SIZES, one, collective=Collective.SENDRECV)
    assert gaps(samples) == []
    assert texts(samples) == ["with nothing: NCCL asks no tuner about it"]
    assert not is_right(analyze_samples(PLATFORM, samples))


def test_choices_without_the_default_are_compared_with_each_other() -> None:
    samples = measure(SIZES, lambda size: {"ring/ll": size / 1e5, "tree/ll": size / 9e4})
    assert texts(samples) == [
        "2 choices a size with each other: fastest ring/ll at 1 MiB to 8 MiB (by up to 1.11x); "
        "the default was not measured"
    ]


@pytest.mark.parametrize(
    ("choice", "said"), [("ring/ll", "ring/ll"), ("tuned", "a tuned run")], ids=["choice", "tuned"]
)
def test_one_choice_without_the_default_is_compared_with_nothing(choice: str, said: str) -> None:
    samples = measure(SIZES, lambda size: {choice: size / 1e5})
    assert texts(samples) == ["with nothing: the default was not measured"]
    (finding,) = [
        item
        for item in analyze_samples(PLATFORM, samples).findings
        if item.kind is FindingKind.NO_DEFAULT
    ]
    assert f"{said} is the only whole choice measured, so its gain" in finding.sentence


@pytest.mark.parametrize(
    ("whole", "first", "second"),
    [
        (
            {"default": 2.0},
            "no whole choice was measured beside the default, so no rule can be found",
            "default, NCCL_ALGO=NVLS: fastest NCCL_ALGO=NVLS at 1 MiB to 8 MiB (by up to 2.00x)",
        ),
        (
            {"ring/ll": 4.0, "tree/ll": 0.5},
            "2 choices a size with each other: fastest tree/ll at 1 MiB to 8 MiB (by up to 8.00x); "
            "the default was not measured",
            "ring/ll, tree/ll, NCCL_ALGO=NVLS: fastest tree/ll at 1 MiB to 8 MiB (by up to 2.00x)",
        ),
        (
            {"ring/ll": 4.0},
            "with nothing: the default was not measured",
            "ring/ll, NCCL_ALGO=NVLS: f",
        ),
    ],
)
def test_a_run_limited_to_an_algorithm_is_compared_with_what_was_measured(
    whole: dict[str, float], first: str, second: str
) -> None:
    samples = [
        *measure(SIZES, whole, rounds=1, twice=False),
        *(
            msgspec.structs.replace(sample, choice="NCCL_ALGO=NVLS")
            for sample in measure(SIZES, {"default": 1.0}, rounds=1, twice=False)
        ),
    ]
    own, limited = texts(samples)
    assert own == first
    assert limited.startswith(second)
    assert not any("only the default" in sentence for sentence in gaps(samples))


def test_groups_of_calls_are_a_comparison_of_their_own() -> None:
    both = lambda size: {"default": size / 1e5, "ring/ll": size / 9e4}  # noqa: E731
    only = lambda size: {"default": size / 1e5}  # noqa: E731
    samples = [
        *measure(SIZES, both, rounds=6),
        *measure(SIZES, only, rounds=6, group_calls=60, pipe_ops=3),
    ]
    plain, groups = comparisons(analyze_samples(PLATFORM, samples))
    assert plain.compared.everywhere
    assert not groups.compared.anything
    assert groups.where.endswith("3 pipe ops")
