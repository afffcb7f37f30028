# SPDX-License-Identifier: Apache-2.0
"""Shapes of curves that are findings, and those that are none."""

import math
import random

import pytest
from msgspec.structs import replace

from nccltune.analyze import analyze, sort_samples
from nccltune.analyze.curves import slow_runs
from nccltune.analyze.result import Condition
from nccltune.analyze.timings import Process, Rounds, Timings
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective
from nccltune.model.finding import FindingKind
from nccltune.model.numbers import percent, rate
from nccltune.model.platform import Platform
from nccltune.model.sample import Sample
from nccltune.model.scale import Scale
from tests.unit.builders import analyze_samples, measure

M = 1 << 20
PLATFORM = Platform(name="synthetic")


def samples_of(rates: dict[int, float]) -> list[Sample]:
    """The default's timings at these bandwidths (GB/s of 4 ranks)."""
    return measure(rates, lambda size: {"default": 1.5 * size / (rates[size] * 1e3)})


def kinds(samples: list[Sample]) -> list[tuple[FindingKind, int | None, int | None]]:
    found = analyze_samples(PLATFORM, samples).findings
    return [(item.kind, item.min_bytes, item.max_bytes) for item in found]


def test_large_numbers_have_no_exponent() -> None:
    assert [rate(value) for value in (0.4704, 361.4, 999.6, 3600.2)] == [
        "0.47 GB/s",
        "361 GB/s",
        "1000 GB/s",
        "3600 GB/s",
    ]
    assert [percent(share) for share in (0.0123, 0.881, 12.34)] == ["1.23 %", "88.1 %", "1234 %"]


def test_a_flat_stretch_before_a_fall_is_no_plateau() -> None:
    rates = {M: 100.0, 2 * M: 50.0, 4 * M: 50.0, 8 * M: 40.0, 16 * M: 40.0}
    assert FindingKind.PLATEAU not in [kind for kind, _, _ in kinds(samples_of(rates))]


def test_a_flat_stretch_before_a_rise_is_a_plateau() -> None:
    rates = {M: 20.0, 2 * M: 50.0, 4 * M: 50.0, 8 * M: 80.0, 16 * M: 100.0, 32 * M: 100.0}
    assert (FindingKind.PLATEAU, 2 * M, 4 * M) in kinds(samples_of(rates))


def wavering(share: float) -> list[Sample]:
    """Bandwidth falls by 10 % at 2 MiB; every other round is faster by `share`."""
    samples = samples_of({M: 100.0, 2 * M: 90.0, 4 * M: 120.0})
    return [
        replace(sample, time_us=sample.time_us * (1 - share * (sample.round % 2)))
        for sample in samples
    ]


def test_a_fall_within_the_spread_of_timings_is_no_dip() -> None:
    assert (FindingKind.DIP, M, 2 * M) in kinds(wavering(0.01))
    assert (FindingKind.DIP, M, 2 * M) not in kinds(wavering(0.4))


def once(rates: dict[int, float]) -> list[Sample]:
    return [sample for sample in samples_of(rates) if (sample.round, sample.repeat) == (0, 0)]


def test_a_single_timing_of_a_small_message_is_no_dip() -> None:
    small = {16 << n: rate for n, rate in enumerate((2.0, 1.0, 4.0, 8.0))}
    assert FindingKind.DIP not in [kind for kind, _, _ in kinds(once(small))]
    assert FindingKind.DIP in [kind for kind, _, _ in kinds(samples_of(small))]
    large = {M << n: rate for n, rate in enumerate((10, 11, 12, 6, 14, 15, 16, 16, 16))}
    (dip,) = [
        item
        for item in analyze_samples(PLATFORM, once(large)).findings
        if item.kind is FindingKind.DIP
    ]
    assert "(50 % less, one timing each)" in dip.sentence


def test_single_timings_of_small_messages_are_no_plateau() -> None:
    flat = {16 << n: rate for n, rate in enumerate((1.0, 1.0, 2.0, 4.0, 8.0))}
    assert FindingKind.PLATEAU not in [kind for kind, _, _ in kinds(once(flat))]
    assert FindingKind.PLATEAU in [kind for kind, _, _ in kinds(samples_of(flat))]


def runs(*factors: float, noise: float = 0.02) -> list[Sample]:
    """One process for each factor, by which all its times are longer."""
    rates = {M << n: 100.0 for n in range(8)}
    found = []
    for number, factor in enumerate(factors):
        one = measure(
            rates,
            lambda size: {"default": factor * size / 1e5},  # noqa: B023
            rounds=1,
            twice=False,
            noise=noise,
            seed=number,
        )
        source = replace(one[0].source, process=str(number))
        found += [replace(sample, source=source) for sample in one]
    return found


def noisy(samples: list[Sample]) -> list[str]:
    found = analyze_samples(PLATFORM, samples).findings
    return [item.sentence for item in found if item.kind is FindingKind.NOISY]


def test_a_slow_run_among_many_is_named() -> None:
    (sentence,) = noisy(runs(*[1.0] * 8, 1.6, *[1.0] * 3))
    assert "1 of 12 runs takes 1.6" in sentence
    assert noisy(runs(*[1.0] * 12)) == []
    # Runs of two states, and runs that scatter, have no outlier.
    assert not any("as the others" in words for words in noisy(runs(1, 1, 1, 1.4, 1.4, 1.4)))
    assert not any("as the others" in words for words in noisy(runs(1, 1.05, 1.1, 1.15, 1.2)))


@pytest.mark.parametrize("number", [4, 5, 8, 16])
@pytest.mark.parametrize(("offset", "noise"), [(0.0, 0.15), (0.05, 0.01), (0.1, 0.05), (0.2, 0.02)])
def test_runs_that_only_scatter_have_no_slow_run(number: int, offset: float, noise: float) -> None:
    """Of 300 null studies at most 2 % have a slow run (expected: 0.2 %)."""
    random_ = random.Random(number * 1000 + int(offset * 100))
    false = 0
    for _ in range(300):
        rounds = Rounds([Process(str(run)) for run in range(number)], list(range(number)))
        timings = Timings(Condition(Collective.ALLREDUCE, Scale(2, 16)), rounds_of=rounds)
        for run in range(number):
            level = random_.gauss(0, offset)
            for power in range(10, 22):
                time_us = 20 * math.exp(level + random_.gauss(0, noise))
                timings.add(1 << power, DEFAULT, (run, 0), time_us)
        false += slow_runs(timings, DEFAULT) is not None
    assert false <= 6


def test_a_cliff_is_named_by_its_edge_and_is_no_missing_size() -> None:
    def rates(size: int) -> float:
        return 29.0 if size < 64 * M else 5.0 + size / (8 << 30)

    points = {size << 20: rates(size << 20) for size in range(2, 112, 10)}
    found = analyze_samples(PLATFORM, samples_of(points)).findings
    assert FindingKind.NOT_SATURATED not in {item.kind for item in found}
    (dip,) = (item.sentence for item in found if item.kind is FindingKind.DIP)
    assert "falls from 29 GB/s" in dip
    curve = {4 * M: 20.0, 8 * M: 28.0, 16 * M: 27.5, 32 * M: 6.0, 64 * M: 5.5, 128 * M: 5.8}
    found = analyze_samples(PLATFORM, samples_of(curve)).findings
    (dip,) = (item.sentence for item in found if item.kind is FindingKind.DIP)
    assert "from 27.5 GB/s at 16 MiB to 6 GB/s at 32 MiB" in dip
    assert FindingKind.NOT_SATURATED not in {item.kind for item in found}


def test_whole_runs_that_differ_are_not_noise() -> None:
    (sentence,) = noisy(runs(1.0, 1.9))
    assert "of 2 runs the slowest takes 1.9" in sentence
    assert "more rounds" not in sentence
    assert noisy(runs(1.0, 1.03)) == []
    (sentence,) = noisy(runs(1.0, 1.0, noise=0.3))
    assert "more rounds narrow the intervals" in sentence


def test_the_default_alone_below_its_limit_is_not_called_all_choices() -> None:
    slow = Platform(name="slow", line_rate_gb_per_s=800)
    rates = {M << n: 100.0 for n in range(8)}
    (finding,) = [
        item
        for item in analyze_samples(slow, samples_of(rates)).findings
        if item.kind in (FindingKind.BELOW_EXPECTED, FindingKind.NOT_A_TUNING_PROBLEM)
    ]
    assert finding.kind is FindingKind.BELOW_EXPECTED
    assert "default reaches 100 GB/s, 12.5 % of the line rate. No other choice was" in (
        finding.sentence
    )
    assert finding.tuning is None


def test_too_few_timings_do_not_claim_that_another_choice_is_faster() -> None:
    stuck = {M << n: rate for n, rate in enumerate((10, 10.1, 40, 60, 80, 90, 95, 97, 98))}

    def times(size: int) -> dict[str, float]:
        return {"default": size / stuck[size] / 1e3, "ring/ll": size / 80 / 1e3}

    for rounds, words in ((8, "choice is faster there"), (1, "choice looks faster there")):
        samples = measure(stuck, times, rounds=rounds, twice=False, noise=0.001)
        found = analyze_samples(PLATFORM, samples).findings
        (sentence,) = [item.sentence for item in found if item.kind is FindingKind.PLATEAU]
        assert words in sentence


def sentences(samples: list[Sample], kind: FindingKind) -> list[str]:
    found = analyze_samples(PLATFORM, samples).findings
    return [item.sentence.partition(": ")[2] for item in found if item.kind is kind]


def test_a_cliff_is_named_by_its_edge_and_what_stays() -> None:
    rates = {M * n: 12.0 if n <= 51 else 5.6 for n in range(1, 103, 2)}
    rates[M] = 6.0
    rates[61 * M] = 5.0
    (dip,) = sentences(once(rates), FindingKind.DIP)
    assert dip == (
        "bus bandwidth falls from 12 GB/s at 51 MiB to 5.6 GB/s at 53 MiB (53.3 % less, one timing "
        "each) and stays between 5 GB/s and 5.6 GB/s up to 101 MiB"
    )
    assert sentences(once(rates), FindingKind.PLATEAU) == []
    assert sentences(once(rates), FindingKind.NOT_SATURATED) == []


def test_a_cliff_in_a_short_curve_is_no_scatter() -> None:
    values = (1.2, 1.7, 12.9, 16.2, 24.1, 29.5, 5.3, 5.2, 4.1, 5.3)
    samples = once({M << n: v for n, v in enumerate(values)})
    (dip,) = sentences(samples, FindingKind.DIP)
    assert "from 29.5 GB/s at 32 MiB to 5.3 GB/s at 64 MiB" in dip
    assert "stays between 4.1 GB/s and 5.3 GB/s up to 512 MiB" in dip
    assert sentences(samples, FindingKind.NOT_SATURATED) == []


def test_each_dip_of_several_is_named_by_its_own_fall() -> None:
    values = (10.0, 20.0, 8.0, 19.5, 7.0, 19.0)
    first, second = sentences(
        samples_of({M << n: v for n, v in enumerate(values)}), FindingKind.DIP
    )
    assert "from 20 GB/s at 2 MiB to 8 GB/s at 4 MiB" in first
    assert "from 19.5 GB/s at 8 MiB to 7 GB/s at 16 MiB" in second


def test_a_gradual_fall_and_a_return_are_named_so() -> None:
    values = (10.0, 20.0, 17.0, 14.5, 12.2, 10.3, 22.0, 22.1)
    (dip,) = sentences(samples_of({M << n: v for n, v in enumerate(values)}), FindingKind.DIP)
    assert dip.startswith(
        "bus bandwidth falls from 20 GB/s at 2 MiB to 10.3 GB/s at 32 MiB (48.5 % less, over "
        "several sizes); it is 22 GB/s again at 64 MiB"
    )


def test_two_points_that_differ_are_no_plateau() -> None:
    linear = {10 * M * n + M: min(13.0, 6.2 + 2.5 * n) for n in range(30)}
    assert sentences(once(linear), FindingKind.PLATEAU) == []
    wavy = {M + 10 * M * n: (6 + 0.05 * n) * (1 + 0.01 * (n % 2)) for n in range(100)}
    assert sentences(once(wavy), FindingKind.PLATEAU) == []


def test_a_size_that_is_slow_in_one_placement_only_is_to_be_run_again() -> None:
    rates = {M << n: v for n, v in enumerate((10, 12, 4, 14, 15, 15, 15, 16, 16, 16))}
    usual = {**rates, 4 * M: 13.0}
    samples = once(rates) + [replace(sample, in_place=True) for sample in once(usual)]
    (dip,) = sentences(samples, FindingKind.DIP)
    assert "The other placement has 13 GB/s there: run it again" in dip
    both = once(rates) + [replace(sample, in_place=True) for sample in once(rates)]
    (dip,) = sentences(both, FindingKind.DIP)
    assert "run it again" not in dip


def test_slow_runs_are_named_by_their_files() -> None:
    samples = runs(3.9, 11.0, 1.0, 1.01, 0.99)
    names = {str(number): f"dat.{number + 1}" for number in range(5)}
    found = analyze(PLATFORM, sort_samples(samples), names=names).findings
    (sentence,) = [item.sentence for item in found if "as long" in item.sentence]
    assert "2 of 5 runs take at least 3.7" in sentence
    assert "(dat.2 10.6" in sentence
    assert ", dat.1 3.7" in sentence


def test_runs_that_are_slow_at_large_sizes_only_are_named() -> None:
    late = [
        replace(
            sample,
            time_us=sample.time_us
            * (4 if sample.source.process == "2" and sample.bytes >= 8 * M else 1),
        )
        for sample in runs(*[1.0] * 6)
    ]
    # Eight sizes have no upper third of four sizes, so all sizes count.
    assert not any("as long" in words for words in noisy(late))
    more = [
        replace(sample, bytes=sample.bytes >> 8, time_us=sample.time_us / 256)
        for sample in runs(*[1.0] * 6)
    ]
    (sentence,) = [words for words in noisy([*more, *late]) if "as long" in words]
    assert "1 of 6 runs takes 3.9" in sentence or "1 of 6 runs takes 4.0" in sentence
    assert "as long as the others from 8 MiB on" in sentence


def placed(rates: dict[int, float], inside: dict[int, float]) -> list[Sample]:
    return once(rates) + [replace(sample, in_place=True) for sample in once(inside)]


def test_a_dip_of_one_size_in_a_short_curve_shows_in_both_placements() -> None:
    values = ((11.9, 16.6, 32.6, 19.1, 30.7, 42.6), (13.1, 16.8, 32.0, 19.1, 30.9, 42.2))
    outside, inside = ({8 * M << n: v for n, v in enumerate(row)} for row in values)
    (dip,) = sentences(placed(outside, inside), FindingKind.DIP)
    assert "from 32.6 GB/s at 32 MiB to 19.1 GB/s at 64 MiB" in dip
    assert "run it again" not in dip


def test_a_fall_of_five_sizes_shows_in_both_placements() -> None:
    values = ((0.59, 0.6, 1.2, 0.73, 0.7), (0.6, 0.63, 1.26, 0.75, 0.78))
    outside, inside = ({M << n: v for n, v in enumerate(row)} for row in values)
    (dip,) = sentences(placed(outside, inside), FindingKind.DIP)
    assert "from 1.2 GB/s at 4 MiB to 0.73 GB/s at 8 MiB" in dip


@pytest.mark.parametrize("sizes", [4, 6, 10])
def test_a_fall_by_noise_alone_is_seldom_one_of_both_placements(sizes: int) -> None:
    random_, found = random.Random(1), 0
    for _ in range(60):
        rows = [
            {M << n: 100 * math.exp(random_.gauss(0, 0.05)) for n in range(sizes)} for _ in range(2)
        ]
        dips = sentences(placed(*rows), FindingKind.DIP)
        found += any("run it again" not in dip for dip in dips)
    assert found <= 10


def test_noise_alone_seldom_makes_a_plateau() -> None:
    random_, found = random.Random(1), 0
    for _ in range(60):
        rates = {M << n: 100 / (1 + 2.0 ** (4 - n)) for n in range(10)}
        noisy_rates = {s: rate * math.exp(random_.gauss(0, 0.15)) for s, rate in rates.items()}
        found += bool(sentences(once(noisy_rates), FindingKind.PLATEAU))
    assert found <= 12


def test_less_than_a_doubling_of_the_size_shows_no_growth() -> None:
    values = (32.0, 33.1, 32.6, 33.1, 33.4, 33.6, 33.9)
    narrow = {(32 + 2 * n) * M: value for n, value in enumerate(values)}
    assert sentences(once(narrow), FindingKind.NOT_SATURATED) == []


def test_growth_over_a_wide_gap_of_sizes_is_no_growth() -> None:
    grows = {M << n: 2.0**n for n in range(5)}
    assert sentences(once(grows), FindingKind.NOT_SATURATED) != []
    cut = {8: 0.001, 16: 0.002, 16384 * M: 400.0}
    assert sentences(once(cut), FindingKind.NOT_SATURATED) == []
