# SPDX-License-Identifier: Apache-2.0
"""The verdict on a curve by the systems that are alike."""

from msgspec.structs import replace

from nccltune.model.collective import Collective
from nccltune.reference.alike import SystemShown
from nccltune.reference.curves import ReferenceCurve
from nccltune.reference.placement import Placement, Verdict, figures, place

TWO_NODES = SystemShown(gpu="H100", nodes=2, gpus=16, nic_gbps_per_gpu=400.0)
SIZE = 8 << 30


def curve(system: str, gb_per_s: float, *, size: int = SIZE, **facts: object) -> ReferenceCurve:
    plain = {"gpu": "H100", "gpus": 16, "nodes": 2, "nic_gbps_per_gpu": 400.0}
    merged = {**plain, **facts}
    gpus = int(str(merged["gpus"]))
    time_us = size / (gb_per_s * 1e3) * 2 * (gpus - 1) / gpus
    return ReferenceCurve(
        system=system,
        collective=Collective.ALLREDUCE,
        source=f"https://{system}",
        read="table",
        points=((size, time_us),),
        **merged,  # type: ignore[arg-type]
    )


def placed(
    gb_per_s: float, curves: list[ReferenceCurve], system: SystemShown = TWO_NODES, size: int = SIZE
) -> Placement:
    gpus = system.gpus or 1
    time_us = size / (gb_per_s * 1e3) * 2 * (gpus - 1) / gpus
    return place(system, Collective.ALLREDUCE, {size: time_us}, curves)


FOUR = [curve(name, rate) for name, rate in zip("abcd", (400, 440, 460, 480), strict=True)]


def test_quartiles_from_four_systems_on() -> None:
    found = placed(450, FOUR).bandwidth
    assert found.verdict is Verdict.BETWEEN
    assert found.sentence == (
        "450 GB/s at 8 GiB: between p25 and p75 of 4 published systems like it (400 to 480 GB/s)"
    )
    assert "below p25 of 4" in placed(405, FOUR).bandwidth.sentence
    assert "above p75 of 4" in placed(475, FOUR).bandwidth.sentence
    assert "between the 3 published systems" in placed(450, FOUR[:3]).bandwidth.sentence


def test_low_is_clearly_below_the_lowest() -> None:
    assert placed(355, FOUR).bandwidth.verdict is Verdict.LOW
    assert "below all 4 published systems like it, 50 % below the lowest" in (
        placed(200, FOUR).bandwidth.sentence
    )
    assert placed(365, FOUR).bandwidth.verdict is Verdict.BELOW
    assert placed(500, FOUR).bandwidth.verdict is Verdict.ABOVE
    # One system alone is weaker evidence.
    assert placed(320, FOUR[:1]).bandwidth.verdict is Verdict.BELOW
    assert placed(290, FOUR[:1]).bandwidth.verdict is Verdict.LOW


def test_several_runs_of_a_system_are_one_system_at_its_nearest_scale() -> None:
    runs = [curve("alps", 300, gpus=g, nodes=n, nccl=v) for g, n, v in ((64, 8, "2"), (32, 4, "3"))]
    runs.append(curve("alps", 320, gpus=32, nodes=4))
    found = figures(runs, SIZE, 5)
    assert [(item.nodes, round(item.busbw_gb_per_s), item.runs) for item in found] == [(4, 310, 2)]


def test_runs_with_other_settings_count_only_where_there_is_no_default() -> None:
    both = [curve("a", 400), curve("a", 300, settings="NCCL_NVLS_ENABLE=0")]
    assert [round(item.busbw_gb_per_s) for item in figures(both, SIZE, 2)] == [400]
    assert [round(item.busbw_gb_per_s) for item in figures(both[1:], SIZE, 2)] == [300]


def test_a_system_that_was_reported_as_slow_is_no_measure() -> None:
    found = placed(300, [*FOUR, curve("ill", 230, fault="reported as slow")]).bandwidth
    assert found.verdict is Verdict.LOW
    assert [item.system for item in found.faults] == ["ill"]
    assert "ill" not in [item.system for item in found.systems]
    for rate, verdict in ((320, Verdict.LOW), (350, Verdict.BELOW), (370, Verdict.BELOW)):
        near = [FOUR[0], curve("ill", 310, fault="reported as slow")]
        assert placed(rate, near).bandwidth.verdict is verdict


def test_an_unknown_nic_rate_is_asked_for_and_no_verdict_is_given() -> None:
    unknown = SystemShown(gpu="H100", nodes=2, gpus=16)
    found = placed(200, [*FOUR, curve("slow", 100, nic_gbps_per_gpu=100.0)], unknown)
    assert found.bandwidth.verdict is Verdict.UNDECIDED
    assert [words.partition(":")[0] for words in found.by_rate] == [
        "with 400 Gbit/s for each GPU",
        "with 100 Gbit/s for each GPU",
    ]
    assert found.sizes == [], "thresholds of several NIC rates would be none"


def test_an_unknown_gpu_has_no_verdict() -> None:
    found = placed(450, FOUR, SystemShown(nodes=2, gpus=16, nic_gbps_per_gpu=400.0))
    assert found.bandwidth.verdict is Verdict.UNDECIDED
    assert found.bandwidth.systems == []


def test_nothing_alike_is_a_refusal_with_the_nearest_of_the_same_gpu() -> None:
    far = [curve("far", 300, gpus=256, nodes=32), curve("other", 99, gpu="A100")]
    found = placed(450, far)
    assert found.bandwidth.verdict is Verdict.NOTHING_ALIKE
    assert found.bandwidth.sentence == "450 GB/s at 8 GiB: no published system is like it"
    assert [(item.system, item.unlike) for item in found.nearest] == [("far", ["nodes"])]


def test_small_sizes_are_compared_as_latency_at_the_same_number_of_nodes() -> None:
    system = SystemShown(gpu="H100", nodes=4, gpus=32, nic_gbps_per_gpu=400.0)
    small = [
        curve("same", 1.0, size=1024, gpus=32, nodes=4),
        curve("more", 0.5, size=1024, gpus=64, nodes=8),
    ]
    found = placed(0.4, small, system, 1024)
    assert found.latency is not None
    assert found.latency.verdict is Verdict.LOW
    assert found.latency.sentence == (
        "4.96 us, the least up to 16 KiB: slower than the one published system like it, 2.50"
        " times the time of the slowest (1.98 us)"
    )
    assert [item.systems for item in found.sizes] == [["same"]]


def test_thresholds_have_quartiles_and_sources() -> None:
    (item,) = placed(450, FOUR).sizes
    assert (item.low, item.high) == (FOUR[0].busbw_at(SIZE), FOUR[3].busbw_at(SIZE))
    assert item.p25 is not None
    assert item.low < item.p25 < item.median
    assert item.systems == ["a", "b", "c", "d"]
    (few,) = placed(450, FOUR[:3]).sizes
    assert few.p25 is None


def test_the_disturbed_first_size_of_a_run_is_no_latency() -> None:
    reference = replace(curve("a", 1.0), points=((8, 68.0), (16, 24.0), (1 << 20, 90.0)))
    times = {8: 70.0, 16: 25.0, SIZE: 40_000.0}
    found = place(TWO_NODES, Collective.ALLREDUCE, times, [reference])
    assert found.latency is not None
    assert found.latency.sentence == (
        "25.0 us, the least up to 16 KiB: slower than the one published system like it, but near"
        " (24.0 us)"
    )
