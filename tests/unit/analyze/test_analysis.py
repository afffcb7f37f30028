# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec.structs import replace

from nccltune.analyze import sort_samples
from nccltune.analyze.result import Analysis
from nccltune.model.choice import Choice, choice_label, parse_choice
from nccltune.model.collective import Collective
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.platform import Platform
from nccltune.model.sample import Purpose, Sample, Source
from tests.unit.builders import analyze_samples, measure, sizes

PLATFORM = Platform(name="synthetic")
SIZES = sizes(1 << 10, 1 << 30)
VERIFIED = Source(tool="nccltune-bench", purpose=Purpose.VERIFY)
OTHER = Source(tool="nccltune-bench", purpose=Purpose.AB)
RAN = parse_choice("ring/ll128/8")


def of_kind(analysis: Analysis, kind: FindingKind) -> list[Finding]:
    return [finding for finding in analysis.findings if finding.kind is kind]


def smooth(size: int) -> dict[str, float]:
    return {"default": 10 + size / 200e3, "ring/simple": 10.5 + size / 195e3}


def test_a_smooth_curve_has_its_knee_and_no_finding() -> None:
    analysis = analyze_samples(PLATFORM, measure(SIZES, smooth, noise=0.003))
    (condition,) = analysis.conditions
    assert analysis.findings == []
    assert condition.noise.source == "a/a series"
    assert condition.noise.typical < 0.005
    top = condition.saturation
    assert top is not None
    # 1.5 x 200 GB/s is the ceiling; half is reached where latency is half the time, at 2 MB.
    assert top.peak_gb_per_s == pytest.approx(300, rel=0.02)
    assert top.half_bytes == 2 << 20
    assert top.ninety_bytes == 32 << 20
    assert top.saturated


def test_noise_is_what_the_default_differs_from_itself() -> None:
    analysis = analyze_samples(PLATFORM, measure(SIZES, smooth, noise=0.05))
    noise = analysis.conditions[0].noise
    assert 0.01 < noise.typical < 0.04
    assert noise.typical <= noise.high
    split = (
        analyze_samples(PLATFORM, measure(SIZES, smooth, noise=0.05, twice=False))
        .conditions[0]
        .noise
    )
    assert split.source == "split rounds"
    assert 0.01 < split.typical < 0.05


def dipping(size: int) -> dict[str, float]:
    """NVIDIA's story: a drop from 2 to 4 MB that another choice does not have."""
    good = 10 + size / 200e3
    slow = 2.5 if 4 << 20 <= size <= 8 << 20 else 1.0
    return {"default": good * slow, "tree/ll128": good * 1.05, "ring/simple": good * slow * 1.02}


def test_a_dip_that_another_choice_mends_is_tuning() -> None:
    analysis = analyze_samples(PLATFORM, measure(SIZES, dipping, noise=0.01))
    (dip,) = of_kind(analysis, FindingKind.DIP)
    assert (dip.min_bytes, dip.max_bytes) == (2 << 20, 4 << 20)
    assert dip.tuning is True
    assert dip.better is not None
    assert dip.better.label == "tree/ll128"
    assert "tree/ll128" in dip.sentence
    (crossover,) = of_kind(analysis, FindingKind.BAD_CROSSOVER)
    assert (crossover.min_bytes, crossover.max_bytes) == (4 << 20, 8 << 20)
    assert crossover.evidence["most"] == pytest.approx(2.5 / 1.05, rel=0.03)
    assert of_kind(analysis, FindingKind.NOT_A_TUNING_PROBLEM) == []


def platform_dip(size: int) -> dict[str, float]:
    good = 10 + size / 200e3
    slow = 2.5 if 4 << 20 <= size <= 8 << 20 else 1.0
    return {"default": good * slow, "tree/ll128": good * slow * 1.02}


def test_a_dip_that_every_choice_has_is_not_tuning() -> None:
    analysis = analyze_samples(PLATFORM, measure(SIZES, platform_dip, noise=0.01))
    (dip,) = of_kind(analysis, FindingKind.DIP)
    assert dip.tuning is False
    (other,) = of_kind(analysis, FindingKind.NOT_A_TUNING_PROBLEM)
    assert "base performance" in other.sentence
    assert of_kind(analysis, FindingKind.BAD_CROSSOVER) == []


def stuck(size: int) -> dict[str, float]:
    time = 10 + size / 200e3
    if 4 << 20 <= size <= 16 << 20:
        time = size / 60e3
    return {"default": time, "ring/ll128": 10 + size / 190e3}


def test_a_plateau_below_the_peak_is_found() -> None:
    analysis = analyze_samples(PLATFORM, measure(SIZES, stuck, noise=0.005))
    plateaus = of_kind(analysis, FindingKind.PLATEAU)
    assert [(item.min_bytes, item.max_bytes) for item in plateaus] == [(4 << 20, 16 << 20)]
    assert plateaus[0].tuning is True
    assert "stands still at about" in plateaus[0].sentence


def test_a_plateau_that_grows_a_little_names_both_ends() -> None:
    def creeping(size: int) -> dict[str, float]:
        times = stuck(size)
        return times | {"default": times["default"] * (0.95 if size == 16 << 20 else 1.0)}

    (plateau,) = of_kind(
        analyze_samples(PLATFORM, measure(SIZES, creeping, noise=0.0)), FindingKind.PLATEAU
    )
    assert "hardly grows: 90 GB/s at 4 MiB, 94.7 GB/s at 16 MiB" in plateau.sentence


def test_a_saturated_end_is_no_plateau() -> None:
    analysis = analyze_samples(PLATFORM, measure(SIZES, smooth))
    assert of_kind(analysis, FindingKind.PLATEAU) == []
    assert of_kind(analysis, FindingKind.NOT_SATURATED) == []


def test_a_curve_cut_short_is_not_saturated() -> None:
    analysis = analyze_samples(PLATFORM, measure(sizes(1024, 1 << 20), smooth))
    (finding,) = of_kind(analysis, FindingKind.NOT_SATURATED)
    assert finding.max_bytes == 1 << 20


def test_a_line_rate_that_nothing_reaches_is_not_tuning() -> None:
    slow = Platform(name="slow", line_rate_gb_per_s=800)
    analysis = analyze_samples(slow, measure(SIZES, smooth))
    (finding,) = of_kind(analysis, FindingKind.NOT_A_TUNING_PROBLEM)
    assert "% of the line rate" in finding.sentence
    fast = analyze_samples(Platform(name="f", line_rate_gb_per_s=310), measure(SIZES, smooth))
    assert of_kind(fast, FindingKind.NOT_A_TUNING_PROBLEM) == []


def test_noise_alone_rarely_makes_a_crossover() -> None:
    # The strict confidence promises a false finding in under 5 % of studies: 2 of 40.
    false = 0
    for seed in range(40):
        same = measure(
            SIZES,
            lambda _: dict.fromkeys(("default", "ring/ll", "tree/ll", "ring/simple"), 20.0),
            noise=0.05,
            seed=seed,
        )
        false += len(of_kind(analyze_samples(PLATFORM, same), FindingKind.BAD_CROSSOVER))
    assert false <= 4


def test_single_timings_say_that_noise_cannot_be_told() -> None:
    analysis = analyze_samples(PLATFORM, measure(SIZES, smooth, rounds=1, twice=False))
    (finding,) = of_kind(analysis, FindingKind.SINGLE_SAMPLES)
    assert "1 round cannot show the noise" in finding.sentence
    assert "measure at least 4 rounds" in finding.sentence
    assert analysis.conditions[0].noise.source == "assumed"


def test_noisy_points_are_named() -> None:
    def shaky(size: int) -> dict[str, float]:
        return {"default": 10 + size / 200e3}

    calm = measure(sizes(1024, 1 << 20), shaky, noise=0.01)
    wild = measure([1 << 21], shaky, noise=0.4)
    (finding,) = of_kind(analyze_samples(PLATFORM, [*calm, *wild]), FindingKind.NOISY)
    assert (finding.min_bytes, finding.max_bytes) == (1 << 21, 1 << 21)


def replaced(sample: Sample, **changes: object) -> Sample:
    return replace(sample, **changes)


def test_wrong_results_are_left_out_and_said() -> None:
    good = measure(SIZES, smooth)
    wrong = [replaced(item, wrong=3, time_us=0.1) for item in measure(SIZES[:1], smooth, seed=1)]
    analysis = analyze_samples(PLATFORM, [*good, *wrong])
    kinds = of_kind(analysis, FindingKind.WRONG_RESULTS)
    assert {finding.evidence["timings"] for finding in kinds} == {8.0, 16.0}
    assert [finding.sentence for finding in kinds] == [
        "all-reduce, 4 nodes, 4 ranks: calls without a forced choice gave wrong results at 1 KiB "
        "(16 timings failed the data check), so no rule is made that could hide them: "
        "find the cause",
        "all-reduce, 4 nodes, 4 ranks: ring/simple gave wrong results at 1 KiB (8 timings "
        "failed the data check), so no rule uses it here, whatever the size",
    ]
    assert analysis.findings[0].kind is FindingKind.WRONG_RESULTS
    assert min(point.time_us for point in analysis.conditions[0].curves[0].points) > 9


@pytest.mark.parametrize(
    ("wrong", "changes", "left"),
    [
        ("ring/ll128", {}, {"default", "ring/simple", "tree/ll128"}),
        ("ring/ll128", {"in_place": True}, {"default", "ring/simple", "tree/ll128"}),
        ("ring/ll128/8", {}, {"default", "ring/simple", "tree/ll128"}),
        ("NCCL_PROTO=LL128", {}, {"default", "ring/simple"}),
        ("NCCL_ALGO=Tree", {}, {"default", "ring/simple", "ring/ll128"}),
        ("default", {}, {"default"}),
        # `verify` found it: its samples are of the rules, with what NCCL ran.
        ("tuned", {"source": VERIFIED, "ran": RAN}, {"default", "ring/simple", "tree/ll128"}),
        ("tuned", {}, {"default", "ring/simple", "tree/ll128", "ring/ll128"}),
        ("ring/ll128", {"nodes": 2}, {"default", "ring/simple", "tree/ll128", "ring/ll128"}),
        ("ring/ll128", {"source": OTHER}, {"default", "ring/simple", "tree/ll128", "ring/ll128"}),
    ],
)
def test_what_gave_a_wrong_result_is_no_choice_at_any_size(
    wrong: str, changes: dict[str, object], left: set[str]
) -> None:
    times = {"default": 20.0, "ring/simple": 15.0, "tree/ll128": 12.0, "ring/ll128": 10.0}
    good = measure(SIZES[:4], times)
    choice = wrong if "=" in wrong or wrong in ("default", "tuned") else parse_choice(wrong)
    bad = replaced(good[0], **{"choice": choice, "wrong": 1, "bytes": SIZES[8], **changes})
    found = sort_samples([*good, bad])
    (timings,) = (item for item in found.timings if item.sizes != [SIZES[8]])
    assert {choice_label(one) for one in timings.choices} == left
    assert timings.samples == sum(choice_label(item.choice) in left for item in good)
    assert bool(found.wrong) == (changes.get("source") is not OTHER)


def test_what_has_no_scale_or_one_rank_is_left_out_and_said() -> None:
    good = [item for item in measure([1024], smooth) if isinstance(item.choice, Choice)]
    lost = [replaced(item, ranks=None) for item in good]
    alone = [replaced(item, nodes=1, ranks=1) for item in good]
    found = sort_samples([*lost, *alone])
    assert (found.without_scale, found.one_rank) == (len(good), len(good))
    # The same processes were imported once more, with their scale.
    assert sort_samples([*lost, *good]).without_scale == 0
    sentences = [
        finding.sentence for finding in analyze_samples(PLATFORM, [*lost, *alone]).findings
    ]
    assert any("--nodes and --ranks" in sentence for sentence in sentences)
    assert any("single rank" in sentence for sentence in sentences)


def test_no_default_is_said() -> None:
    without = measure(SIZES, lambda _: {"ring/ll": 10.0, "tree/ll": 11.0})
    (finding,) = of_kind(analyze_samples(PLATFORM, without), FindingKind.NO_DEFAULT)
    assert "default was not measured" in finding.sentence


def test_conditions_are_kept_apart() -> None:
    samples = [
        *measure([1024], smooth),
        *measure([1024], smooth, in_place=True),
        *measure([1024], smooth, collective=Collective.ALLGATHER),
        *measure([1024], smooth, nodes=2),
    ]
    titles = [item.condition.title for item in analyze_samples(PLATFORM, samples).conditions]
    assert titles == [
        "all-reduce, 2 nodes, 4 ranks",
        "all-reduce, 4 nodes, 4 ranks",
        "all-reduce, 4 nodes, 4 ranks, in place",
        "all-gather, 4 nodes, 4 ranks",
    ]


def test_the_same_round_and_repeat_read_twice_is_kept_twice() -> None:
    once = measure([1024], smooth)
    (timings,) = sort_samples([*once, *once]).timings
    assert timings.samples == 2 * len(once)
    assert len(timings.series(1024, "default")) == 32
