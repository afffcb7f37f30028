# SPDX-License-Identifier: Apache-2.0
"""Expected against measured: is it the platform, or tuning?"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from nccltune.analyze.expected import Expectation
from nccltune.model.choice import parse_choice
from nccltune.model.collective import Collective
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale
from tests.unit.builders import analyze_samples, measure

SIZES = [1 << power for power in range(20, 31)]
PLATFORM = Platform(name="here", gpu="NVIDIA H200", gpus=4, nodes=1, nccl_version="2.28.9")
LIMIT = "GPU0 -> NVS (371 GB/s) is full with GPU to GPU over NVLink"


def expected_of(ceiling: float, **more: Any) -> Expectation:
    fields: dict[str, Any] = {
        "collective": Collective.ALLREDUCE,
        "scale": Scale(1, 4),
        "busbw_gb_per_s": ceiling,
        "limit": LIMIT,
    }
    return Expectation(**fields | more)


def found(
    rates: Mapping[str, float],
    *expected: Expectation,
    platform: Platform = PLATFORM,
    ranks: int = 4,
    latency_us: float = 10.0,
) -> list[Finding]:
    """What is expected or not, where every choice comes near its bus bandwidth."""
    factor = 2 * (ranks - 1) / ranks

    def times(size: int) -> dict[str, float]:
        return {label: latency_us + size * factor / (rate * 1e3) for label, rate in rates.items()}

    samples = measure(SIZES, times, nodes=1, ranks=ranks, rounds=4)
    samples += measure(SIZES, times, nodes=1, ranks=ranks, rounds=4, in_place=True)
    kinds = (FindingKind.AS_EXPECTED, FindingKind.BELOW_EXPECTED)
    analysis = analyze_samples(platform, samples, expected=expected)
    return [item for item in analysis.findings if item.kind in kinds]


def test_a_platform_that_does_what_its_links_allow_is_fine() -> None:
    (finding,) = found({"default": 356.0}, expected_of(371.0))
    assert finding.kind is FindingKind.AS_EXPECTED
    assert finding.sentence == (
        "all-reduce, 1 node, 4 ranks: the links allow 371 GB/s, got 355 GB/s (95.7 %): the "
        f"platform is fine. {LIMIT}"
    )
    assert finding.evidence["expected_gb_per_s"] == 371.0
    (compared,) = found({"default": 356.0, "ring/ll": 80.0}, expected_of(371.0))
    assert compared.sentence.endswith("; what is slow below the peak is tuning")
    # It is no mark on the curve.
    assert (finding.min_bytes, finding.tuning) == (None, None)


def test_what_was_hoped_for_is_explained_by_the_full_link() -> None:
    (finding,) = found({"default": 36.9}, expected_of(37.5, hoped_gb_per_s=48.0))
    assert finding.sentence.endswith(
        f"expected 48 GB/s by NCCL's own model, got 36.9 GB/s: {LIMIT}, which allows 37.5 GB/s. "
        "The platform is fine"
    )
    rated = replace(PLATFORM, line_rate_gb_per_s=50.0)
    first, *_ = found({"default": 36.9}, expected_of(37.5, hoped_gb_per_s=48.0), platform=rated)
    assert "expected 50 GB/s by the line rate, got 36.9 GB/s" in first.sentence


def test_a_platform_below_its_links_is_no_tuning_problem() -> None:
    (finding,) = found({"default": 22.0, "tree/simple": 24.0}, expected_of(48.0))
    assert (finding.kind, finding.tuning) == (FindingKind.BELOW_EXPECTED, False)
    assert "the links allow 48 GB/s, got 22 GB/s (45.8 %), with the best choice 24 GB/s: not a" in (
        finding.sentence
    )
    assert LIMIT in finding.sentence


def test_a_default_below_what_another_choice_reaches_is_tuning() -> None:
    (finding,) = found({"default": 22.0, "tree/simple": 46.0}, expected_of(48.0))
    assert (finding.kind, finding.tuning) == (FindingKind.AS_EXPECTED, True)
    assert finding.better == parse_choice("tree/simple")
    assert "with tree/simple at 1 GiB: the platform is fine, this is tuning" in finding.sentence


def test_what_exceeds_the_links_says_that_the_file_is_wrong() -> None:
    (finding,) = found({"default": 48.0}, expected_of(24.0))
    assert "not of this machine, or a link in it is misread" in finding.sentence


def test_more_than_an_estimate_shows_that_the_estimate_is_too_low() -> None:
    (finding,) = found({"default": 48.0}, expected_of(24.0, sure=False))
    assert "not of this machine" not in finding.sentence
    assert f"what is assumed of {LIMIT} is too low" in finding.sentence


def test_less_than_an_estimate_is_no_verdict() -> None:
    assert found({"default": 22.0}, expected_of(48.0, sure=False)) == []
    assert found({"default": 11.0, "tree/simple": 13.0}, expected_of(48.0, sure=False)) == []
    (finding,) = found({"default": 5.0}, expected_of(48.0, sure=False))
    assert finding.kind is FindingKind.BELOW_EXPECTED
    assert (
        "the links allow 48 GB/s (partly assumed), got 5 GB/s (10.4 %): far below, unless the "
        "assumed part is far too high. At 48 GB/s"
    ) in finding.sentence


def test_a_guess_that_can_only_lower_the_ceiling_is_a_bound() -> None:
    bound = expected_of(48.0, sure=False, at_most=True)
    assert found({"default": 22.0}, bound) == []
    (finding,) = found({"default": 5.0}, bound)
    assert finding.kind is FindingKind.BELOW_EXPECTED
    assert (
        "the links allow at most 48 GB/s, got 5 GB/s (10.4 %): far below, unless the assumed"
    ) in finding.sentence
    (finding,) = found({"default": 60.0}, bound)
    assert "not of this machine, or a link in it is misread" in finding.sentence


def test_a_platform_that_does_what_rings_allow_is_fine() -> None:
    """NCCL takes a ring where NVLSTree could do more, on old drivers or without multicast."""
    more = {"algorithm": "nvls_tree", "ring_gb_per_s": 40.0}
    (finding,) = found({"default": 36.0}, expected_of(60.0, **more))
    assert finding.kind is FindingKind.AS_EXPECTED
    assert "allow 40 GB/s by ring and 60 GB/s by nvls_tree, got 36" in finding.sentence
    assert finding.sentence.endswith(" % of the ring): the platform does what rings allow")
    (low,) = found({"default": 32.0}, expected_of(60.0, **more))
    assert low.sentence.endswith(
        " % of the ring): somewhat low; test the links alone (nvbandwidth)"
    )
    (finding,) = found({"default": 22.0}, expected_of(60.0, **more))
    assert finding.kind is FindingKind.BELOW_EXPECTED


def test_a_curve_that_still_grows_is_not_judged() -> None:
    assert found({"default": 22.0}, expected_of(48.0), latency_us=3e5) == []


def test_nothing_is_said_where_nothing_is_expected() -> None:
    assert found({"default": 22.0}) == []
    other = expected_of(48.0, scale=Scale(2, 4))
    assert found({"default": 22.0}, other) == []


def test_assumed_bandwidths_are_told() -> None:
    (finding,) = found({"default": 22.0}, expected_of(24.0, sure=False))
    assert "the links allow 24 GB/s (partly assumed), got" in finding.sentence
