# SPDX-License-Identifier: Apache-2.0
"""What NCCL ran as its default, titles of conditions, runs that are no rounds of one default."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nccltune.analyze import analyze, sort_samples
from nccltune.analyze.default_runs import ran_text
from nccltune.analyze.result import Condition, titles
from nccltune.analyze.timings import SortedSamples
from nccltune.model.choice import Choice, parse_choice
from nccltune.model.collective import Collective
from nccltune.model.finding import FindingKind
from nccltune.model.platform import Platform
from nccltune.model.sample import Sample
from nccltune.model.scale import Scale
from tests.unit.builders import analyze_samples, measure, sizes

PLATFORM = Platform(name="synthetic")
SIZES = sizes(1 << 14, 1 << 19)


def with_ran(label: Callable[[int], str | None], *, better: bool = False) -> list[Sample]:
    """Timings of the default, for which NCCL reports `label(bytes)`, and of a `better` choice."""

    def times(size: int) -> dict[str, float]:
        default = 10 + size / 1e5
        return {"default": default, "tree/ll": default / 1.35} if better else {"default": default}

    found = []
    for sample in measure(SIZES, times, noise=0.002):
        name = label(sample.bytes) if sample.choice == "default" else None
        choice = parse_choice(name) if name else None
        assert choice is None or isinstance(choice, Choice)
        found.append(replace(sample, ran=choice))
    return found


@pytest.mark.parametrize(
    ("label", "text"),
    [
        (lambda _: None,
         "what it ran is unknown: no line of NCCL's log is known to state it (NCCL 2.20 and "
         "later log it with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING)"),
        (lambda _: "ring/simple/24", "ran ring/simple"),
        (lambda size: "ring/ll" if size <= 1 << 16 else "ring/simple",
         "ran ring/ll to 64 KiB, ring/simple above"),
        (lambda size: None if size == 1 << 14 else "tree/ll",
         "ran unknown to 16 KiB, tree/ll above"),
        (lambda size: "ring/ll" if size.bit_length() % 2 else "tree/ll",
         "ran ring/ll to 16 KiB, tree/ll to 32 KiB, ring/ll to 64 KiB, tree/ll to 128 KiB, 1 "
         "more change, tree/ll above"),
    ],
)  # fmt: skip
def test_what_ran_is_listed_by_size(label: Callable[[int], str | None], text: str) -> None:
    (condition,) = analyze_samples(PLATFORM, with_ran(label)).conditions
    assert ran_text(condition) == text


def test_a_bad_crossover_names_what_nccl_took() -> None:
    samples = with_ran(lambda _: "ring/simple", better=True)
    (finding,) = [
        item
        for item in analyze_samples(PLATFORM, samples).findings
        if item.kind is FindingKind.BAD_CROSSOVER
    ]
    assert "the default is not the best: it ran ring/simple; tree/ll is up to 1.35x" in (
        finding.sentence
    )


def test_the_cost_table_is_a_prediction() -> None:
    found = sort_samples(with_ran(lambda _: None, better=True))
    found.timings[0].predicted = {size: Choice(*_ring_ll()) for size in SIZES}
    analysis = analyze(PLATFORM, found)
    (condition,) = analysis.conditions
    assert ran_text(condition) == "ran, by NCCL's cost table: ring/ll"
    assert not any("it ran" in item.sentence for item in analysis.findings)


def _ring_ll() -> tuple[object, object]:
    choice = parse_choice("ring/ll")
    assert isinstance(choice, Choice)
    return choice.algorithm, choice.protocol


def test_titles_name_only_what_differs() -> None:
    plain = Condition(Collective.ALLREDUCE, Scale(1, 8), dtype="float", redop="sum")
    other = replace(plain, redop="prod")
    gather = Condition(Collective.ALLGATHER, Scale(1, 8), dtype="float")
    assert list(titles([plain, other, gather]).values()) == [
        "all-reduce, 1 node, 8 ranks, sum",
        "all-reduce, 1 node, 8 ranks, prod",
        "all-gather, 1 node, 8 ranks",
    ]
    halves = replace(plain, dtype="half", root=1)
    assert titles([plain, halves])[halves] == "all-reduce, 1 node, 8 ranks, half, root 1"
    assert titles([plain])[plain] == "all-reduce, 1 node, 8 ranks"


def test_findings_of_a_study_with_several_types_name_theirs() -> None:
    def of(dtype: str) -> list[Sample]:
        rising = lambda size: {"default": size / 1e5 * (1 + (size > 1 << 16))}  # noqa: E731
        return [replace(s, dtype=dtype) for s in measure(SIZES, rising)]

    analysis = analyze_samples(PLATFORM, [*of("float"), *of("bfloat16")])
    assert [item.title.split(", ")[-1] for item in analysis.conditions] == ["bfloat16", "float"]
    dips = [item for item in analysis.findings if item.kind is FindingKind.DIP]
    assert {item.where for item in dips} == {item.title for item in analysis.conditions}


def test_a_release_without_choice_lines_is_not_asked_for_a_log() -> None:
    (condition,) = analyze_samples(PLATFORM, with_ran(lambda _: None)).conditions
    assert ran_text(condition, replace(PLATFORM, nccl_version="2.16.5")) == (
        "what it ran is unknown: no line of NCCL's log is known to state it, and NCCL before "
        "2.20 logs no such line"
    )
    assert "NCCL 2.20 and later log it" in (
        ran_text(condition, replace(PLATFORM, nccl_version="2.28.9")) or ""
    )


RUN_SIZES = sizes(1 << 20, 1 << 22)


def run(process: str, ran: str | None, rate: float = 1e5) -> list[Sample]:
    """One process labelled default; NCCL reports `ran` at every size."""
    choice = parse_choice(ran) if ran else None
    assert choice is None or isinstance(choice, Choice)
    return [
        replace(sample, ran=choice, source=replace(sample.source, process=process))
        for sample in measure(RUN_SIZES, lambda s: {"default": s / rate}, rounds=1, twice=False)
    ]


def labels(found: SortedSamples) -> dict[str, int]:
    """Return the number of timings at the first size by choice."""
    (timings,) = found.timings
    return {
        choice if isinstance(choice, str) else choice.label: len(series)
        for choice, series in timings.cells[RUN_SIZES[0]].items()
    }


def test_runs_of_the_same_choice_are_rounds() -> None:
    found = sort_samples(
        [*run("a", "ring/simple/24"), *run("b", "ring/simple/16"), *run("c", None)]
    )
    assert labels(found) == {"default": 3}
    assert found.doubts == []
    assert found.timings[0].default_ran(RUN_SIZES[0]) == parse_choice("ring/simple")


def test_the_named_run_and_those_that_agree_stay_the_default() -> None:
    runs = [
        *run("auto", "ring/simple/24"),
        *run("b", "ring/simple/24"),
        *run("c", "nvls/simple/16"),
    ]
    found = sort_samples(runs, {"auto"})
    assert labels(found) == {"default": 2, "nvls/simple": 1}
    (timings,) = found.timings
    assert timings.channels[RUN_SIZES[0]] == {"default": 24, parse_choice("nvls/simple"): 16}
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
        replace(sample, ran=None) if sample.bytes == RUN_SIZES[-1] else sample
        for sample in run("b", "tree/ll")
    ]
    found = sort_samples([*run("a", "ring/simple"), *partly], {"a"})
    (timings,) = found.timings
    assert list(timings.cells[RUN_SIZES[-1]]) == ["default"]
    assert timings.samples == 2 * len(RUN_SIZES) - 1
    assert "1 timing without such a line left out" in found.doubts[0]


def test_a_default_that_changes_with_the_size_is_one_default() -> None:
    def by_size(process: str) -> list[Sample]:
        small, large = run(process, "tree/ll"), run(process, "ring/simple")
        return [s if s.bytes == RUN_SIZES[0] else b for s, b in zip(small, large, strict=True)]

    found = sort_samples([*by_size("a"), *by_size("b")])
    assert labels(found) == {"default": 2}
    assert found.doubts == []
