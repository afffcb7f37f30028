# SPDX-License-Identifier: Apache-2.0
"""Runs labelled default in which NCCL ran different algorithms are not rounds of one default."""

import pytest
from msgspec.structs import replace

from nccltune.analyze import sort_samples
from nccltune.analyze.timings import SortedSamples
from nccltune.model.choice import Choice, parse_choice
from nccltune.model.sample import Sample
from tests.unit.builders import measure, sizes

SIZES = sizes(1 << 20, 1 << 22)


def run(process: str, ran: str | None, rate: float = 1e5) -> list[Sample]:
    """One process labelled default; NCCL reports `ran` at every size."""
    choice = parse_choice(ran) if ran else None
    assert choice is None or isinstance(choice, Choice)
    return [
        replace(sample, ran=choice, source=replace(sample.source, process=process))
        for sample in measure(SIZES, lambda s: {"default": s / rate}, rounds=1, twice=False)
    ]


def labels(found: SortedSamples) -> dict[str, int]:
    """Return the number of timings at the first size by choice."""
    (timings,) = found.timings
    return {
        choice if isinstance(choice, str) else choice.label: len(series)
        for choice, series in timings.cells[SIZES[0]].items()
    }


def test_runs_of_the_same_choice_are_rounds() -> None:
    found = sort_samples(
        [*run("a", "ring/simple/24"), *run("b", "ring/simple/16"), *run("c", None)]
    )
    assert labels(found) == {"default": 3}
    assert found.doubts == []
    assert found.timings[0].default_ran(SIZES[0]) == parse_choice("ring/simple")


def test_the_named_run_and_those_that_agree_stay_the_default() -> None:
    runs = [
        *run("auto", "ring/simple/24"),
        *run("b", "ring/simple/24"),
        *run("c", "nvls/simple/16"),
    ]
    found = sort_samples(runs, {"auto"})
    assert labels(found) == {"default": 2, "nvls/simple": 1}
    (timings,) = found.timings
    assert timings.channels[SIZES[0]] == {"default": 24, parse_choice("nvls/simple"): 16}
    (doubt,) = found.doubts
    assert "nvls/simple in 1 run" in doubt
    assert "ring/simple in 2 runs; 2 runs kept as the default" in doubt


@pytest.mark.parametrize("named", [(), ("a", "b")])
def test_without_a_run_that_is_surely_the_default_none_is(named: tuple[str, ...]) -> None:
    found = sort_samples([*run("a", "ring/simple"), *run("b", "tree/ll")], named)
    assert labels(found) == {"ring/simple": 1, "tree/ll": 1}
    assert len(found.doubts) == 1


def test_timings_without_a_report_of_nccl_are_counted_as_left_out() -> None:
    partly = [
        replace(sample, ran=None) if sample.bytes == SIZES[-1] else sample
        for sample in run("b", "tree/ll")
    ]
    found = sort_samples([*run("a", "ring/simple"), *partly], {"a"})
    (timings,) = found.timings
    assert list(timings.cells[SIZES[-1]]) == ["default"]
    assert timings.samples == 2 * len(SIZES) - 1
    assert "1 timing without such a line left out" in found.doubts[0]


def test_a_default_that_changes_with_the_size_is_one_default() -> None:
    def by_size(process: str) -> list[Sample]:
        small, large = run(process, "tree/ll"), run(process, "ring/simple")
        return [s if s.bytes == SIZES[0] else b for s, b in zip(small, large, strict=True)]

    found = sort_samples([*by_size("a"), *by_size("b")])
    assert labels(found) == {"default": 2}
    assert found.doubts == []
