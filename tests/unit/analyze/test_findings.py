# SPDX-License-Identifier: Apache-2.0
"""Shapes of curves that are findings, and those that are none."""

import msgspec

from nccltune.analyze.findings import percent, rate
from nccltune.model.finding import FindingKind
from nccltune.model.platform import Platform
from nccltune.model.sample import Sample
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
        msgspec.structs.replace(sample, time_us=sample.time_us * (1 - share * (sample.round % 2)))
        for sample in samples
    ]


def test_a_fall_within_the_spread_of_timings_is_no_dip() -> None:
    assert (FindingKind.DIP, M, 2 * M) in kinds(wavering(0.01))
    assert (FindingKind.DIP, M, 2 * M) not in kinds(wavering(0.4))
