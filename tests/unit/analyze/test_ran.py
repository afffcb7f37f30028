# SPDX-License-Identifier: Apache-2.0
"""What NCCL ran as its default, and the titles of conditions."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nccltune.analyze import analyze, sort_samples
from nccltune.analyze.default_runs import ran_text
from nccltune.analyze.result import Condition, titles
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
        (
            lambda _: None,
            "what it ran is unknown: no line of NCCL's log states it (NCCL 2.20 and later log it "
            "with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING)",
        ),
        (lambda _: "ring/simple/24", "ran ring/simple"),
        (
            lambda size: "ring/ll" if size <= 1 << 16 else "ring/simple",
            "ran ring/ll to 64 KiB, ring/simple above",
        ),
        (
            lambda size: None if size == 1 << 14 else "tree/ll",
            "ran unknown to 16 KiB, tree/ll above",
        ),
        (
            lambda size: "ring/ll" if size.bit_length() % 2 else "tree/ll",
            "ran ring/ll to 16 KiB, tree/ll to 32 KiB, ring/ll to 64 KiB, tree/ll to 128 KiB, 1 "
            "more change, tree/ll above",
        ),
    ],
)
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
    assert ran_text(condition, "2.16.5") == (
        "what it ran is unknown: no line of NCCL's log states it, and NCCL before 2.20 logs no "
        "such line"
    )
    assert "NCCL 2.20 and later log it" in (ran_text(condition, "2.28.9") or "")
