# SPDX-License-Identifier: Apache-2.0
"""Times that fall as the size grows: found on published curves, never in smooth ones."""

import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nccltune.analyze import analyze, sort_samples
from nccltune.analyze.falling_findings import Fall, falls
from nccltune.analyze.result import Condition
from nccltune.analyze.timings import Timings
from nccltune.model.choice import DEFAULT, parse_choice
from nccltune.model.collective import Collective
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.platform import Platform
from nccltune.model.sample import Sample, Source
from nccltune.model.scale import Scale
from tests.unit.builders import analyze_samples, measure

K, M = 1 << 10, 1 << 20
CURVES: list[dict[str, Any]] = json.loads(
    Path(__file__).parents[2].joinpath("data", "curves", "falling.json").read_text()
)
"""Published times of NCCL's default in us: out of place and in place, one timing a point."""
PLATFORM = Platform(name="synthetic")


def timings(rows: Iterable[tuple[int, Sequence[float]]]) -> Timings:
    """Timings of the default: each size with the time of every round."""
    cells = {size: {DEFAULT: {(r, 0): t for r, t in enumerate(times)}} for size, times in rows}
    return Timings(Condition(Collective.ALLREDUCE, Scale(4, 16)), cells)  # type: ignore[arg-type]


def falls_of(curve: dict[str, Any]) -> list[Fall]:
    outside = timings((size, [time]) for size, time, _ in curve["rows"])
    inside = timings((size, [time]) for size, _, time in curve["rows"])
    return falls(outside, DEFAULT, inside, 0.05)


def named(name: str) -> dict[str, Any]:
    (curve,) = [curve for curve in CURVES if curve["name"].startswith(name)]
    return curve


def test_ten_of_the_fourteen_curves_of_a_cluster_have_a_fall() -> None:
    found = [falls_of(curve) for curve in CURVES if curve["name"].startswith("Alps")]
    assert len(found) == 14
    assert sum(map(bool, found)) == 10
    assert all(fall.worst >= 16 * K for every in found for fall in every)


def test_a_loud_fall_is_one_range_with_its_worst_size() -> None:
    (fall,) = falls_of(named("Alps GH200, 2 nodes, aws-ofi-nccl 1.13.0"))
    assert (fall.first, fall.last, fall.worst, fall.larger) == (128 * K, M, M, 2 * M)
    assert fall.factor == pytest.approx(7.13, abs=0.01)


@pytest.mark.parametrize(
    ("name", "worst", "factor"), [("Dell XE9680", 2 * M, 1.27), ("H100 8x NDR", M, 1.40)]
)
@pytest.mark.parametrize("beside", [True, False])
def test_a_single_slow_size_is_found(name: str, worst: int, factor: float, beside: bool) -> None:
    rows = named(name)["rows"]
    inside = timings((size, [time]) for size, _, time in rows)
    outside = timings((size, [time]) for size, time, _ in rows)
    (fall,) = falls(outside, DEFAULT, inside if beside else None, 0.05)
    assert (fall.first, fall.last, fall.worst) == (worst, worst, worst)
    assert fall.factor == pytest.approx(factor, abs=0.01)


def smooth(random_: random.Random) -> list[tuple[int, float]]:
    """A curve that never falls: the best of three protocols, sometimes with steps upward."""
    first = random_.randint(3, 20)
    sizes = [1 << power for power in range(first, min(35, first + random_.randint(20, 30)))]
    latency, rate = random_.uniform(6, 80), random_.uniform(2e3, 4e5)
    shapes = [
        (1.0, random_.uniform(0.02, 0.2)),
        (random_.uniform(1.2, 2), random_.uniform(0.2, 0.7)),
        (random_.uniform(1.5, 4), 1.0),
    ]
    step = random_.choice([*sizes, 0, 0])
    return [
        (
            size,
            min(latency * late + size / (rate * share) for late, share in shapes)
            * (1.3 if step and size > step else 1.0),
        )
        for size in sizes
    ]


def flat(random_: random.Random) -> list[tuple[int, float]]:
    """A curve whose time is the same at all sizes, where noise makes the most falls."""
    return [(1 << power, 100.0) for power in range(14, 14 + random_.randint(3, 18))]


def false_share(
    curve: Callable[[random.Random], list[tuple[int, float]]],
    noise: float,
    rounds: int,
    placed: bool,
) -> float:
    """Return the share of 400 null studies with any fall."""
    random_ = random.Random(f"{noise} {rounds} {placed}")
    false = 0
    for _ in range(400):
        true = curve(random_)

        def drawn(true: list[tuple[int, float]] = true) -> Timings:
            return timings(
                (size, [time * math.exp(random_.gauss(0, noise)) for _ in range(rounds)])
                for size, time in true
            )

        one, other = drawn(), drawn() if placed else None
        found = falls(one, DEFAULT, other, 0.05)
        if other is not None:
            found += falls(other, DEFAULT, one, 0.05)
        false += bool(found)
    return false / 400


@pytest.mark.parametrize(("rounds", "placed"), [(1, False), (1, True), (8, False)])
@pytest.mark.parametrize(("noise", "limit"), [(0.05, 0.02), (0.10, 0.02), (0.15, 0.05)])
def test_smooth_curves_have_no_fall(noise: float, limit: float, rounds: int, placed: bool) -> None:
    assert false_share(smooth, noise, rounds, placed) <= limit


def test_a_loud_fall_is_found_in_a_short_curve() -> None:
    times = [80.0, 100.0, 921.0, 200.0, 330.0, 600.0, 1200.0, 2300.0]
    for last in range(4, 9):
        rows = [(512 * K << place, [time]) for place, time in enumerate(times[:last])]
        (fall,) = falls(timings(rows), DEFAULT, None, 0.05)
        assert (fall.worst, round(fall.factor, 2)) == (2 * M, 4.61)


def test_thousands_of_sizes_are_compared() -> None:
    rows = [(16 * K + 4 * K * n, [100.0 + n * 0.1 + n % 3]) for n in range(600)]
    rows[300] = (rows[300][0], [500.0])
    (fall,) = falls(timings(rows), DEFAULT, None, 0.05)
    assert fall.worst == rows[300][0]


@pytest.mark.parametrize("rounds", [1, 8])
def test_flat_curves_have_no_fall(rounds: int) -> None:
    assert false_share(flat, 0.10, rounds, placed=False) <= 0.05


def samples(curve: dict[str, Any]) -> list[Sample]:
    return [
        Sample(
            study="synthetic",
            collective=Collective.ALLREDUCE,
            bytes=size,
            nodes=curve["nodes"],
            ranks=curve["gpus"],
            in_place=in_place,
            choice=DEFAULT,
            time_us=time,
            source=Source(tool="nccl-tests", process="one"),
        )
        for size, outside, inside in curve["rows"]
        for in_place, time in ((False, outside), (True, inside))
    ]


def findings(found: Iterable[Sample]) -> list[Finding]:
    every = analyze_samples(PLATFORM, found).findings
    return [item for item in every if item.kind is FindingKind.FALLING_TIME]


def test_the_sentence_names_both_times_and_what_to_do() -> None:
    (finding,) = findings(samples(named("Alps GH200, 2 nodes, aws-ofi-nccl 1.13.0")))
    assert finding.sentence == (
        "all-reduce, 2 nodes, 8 ranks: 2 MiB takes 129 us and 1 MiB 921 us: the choice at 1 MiB "
        "costs at least 7.1x (a larger message is faster from 128 KiB to 1 MiB). Measure the other "
        "choices to find one that is faster at 1 MiB"
    )
    assert (finding.min_bytes, finding.max_bytes) == (128 * K, M)
    assert finding.evidence["factor"] == pytest.approx(7.13, abs=0.01)
    rows = samples(named("Alps GH200, 2 nodes, aws-ofi-nccl 1.13.0"))
    outlier = [replace(x, time_us=2 * x.time_us) if x.bytes == M else x for x in rows]
    assert "seldom NCCL's choice: run it again" in findings(outlier)[0].sentence


@pytest.mark.parametrize(
    ("collective", "worst", "said"),
    [
        (Collective.SENDRECV, M + 8, "1048584 B is no multiple of 16, so unaligned: measure sizes"),
        (Collective.SENDRECV, M, ""),
        (Collective.ALLGATHER, M + 64, "1048640 B is no multiple of 128, so unaligned: measure"),
        (Collective.ALLGATHER, M, "Measure the other choices"),
        (Collective.ALLREDUCE, M + 8, "Measure the other choices"),
    ],
)
def test_the_choice_is_not_blamed_for_what_is_of_the_size(
    collective: Collective, worst: int, said: str
) -> None:
    curve = named("Alps GH200, 2 nodes, aws-ofi-nccl 1.13.0")
    sizes = {size: worst if size == M else size for size, _, _ in curve["rows"]}
    (finding,) = findings(
        replace(item, collective=collective, bytes=sizes[item.bytes]) for item in samples(curve)
    )
    assert said in finding.sentence
    assert ("costs at least" in finding.sentence) is said.startswith("Measure")


def test_a_fall_that_the_other_placement_lacks_is_said_to_be_one_timing() -> None:
    (dell,) = findings(samples(named("Dell XE9680")))
    assert (
        "1.27x as long (a larger message is faster). It is one timing, and in place 2 MiB takes "
        "132 us and 4 MiB 154 us: run it again"
    ) in dell.sentence
    assert "start-up" not in dell.sentence
    (first,) = findings(samples(named("H100 8x NDR")))
    assert "The first size of a run may include start-up" in first.sentence


@pytest.mark.parametrize(
    ("runs", "words"),
    [("sf", "1 of 2 timings (a.log) takes 90.9 us there, the others 21.6 us: run it again"),
     ("sssf", "3 of 4 timings (a.log, b.log, c.log) take 90.9 us there, the others 21.6 us: what"),
     ("ssss", "costs at least")],
)  # fmt: skip
def test_what_not_all_runs_show_is_no_cost_of_the_choice(runs: str, words: str) -> None:
    slow = {16 * K: 90.9}
    found = [
        sample
        for name, kind in zip("abcd", runs, strict=False)
        for times in (slow if kind == "s" else {},)
        for in_place in (False, True)
        for size, time in {n * K: 20.0 + n / 10 for n in (16, 32, 64, 128, 256, 512)}.items()
        for sample in [
            Sample(
                study="synthetic",
                collective=Collective.ALLREDUCE,
                bytes=size,
                nodes=2,
                ranks=8,
                in_place=in_place,
                choice=DEFAULT,
                time_us=time if in_place else times.get(size, time),
                source=Source(tool="nccl-tests", process=name),
            )
        ]
    ]
    sorted_ = sort_samples(found)
    every = analyze(PLATFORM, sorted_, names={name: f"{name}.log" for name in "abcd"}).findings
    (finding,) = [item for item in every if item.kind is FindingKind.FALLING_TIME]
    assert words in finding.sentence
    assert ("costs" in finding.sentence) == ("f" not in runs)
    assert "one timing," not in finding.sentence


def test_a_placement_that_falls_by_a_trifle_shows_no_cost() -> None:
    rows = [(16 * K, 105.5, 57.07), (32 * K, 65.22, 56.87), (64 * K, 73.32, 56.58)]
    rows += [(K << n, 70.0 + n * n, 60.0 + n * n) for n in range(7, 18)]
    (finding,) = findings(samples({"nodes": 2, "gpus": 16, "rows": rows}))
    assert "costs" not in finding.sentence
    assert "in place 16 KiB takes 57.1 us and 32 KiB 56.9 us: run it again" in finding.sentence


def falling(size: int) -> float:
    return 100 + size / 1e5 + (400 if size == M else 0)


SIZES = [64 * K << power for power in range(10)]


def test_a_known_better_choice_is_a_bad_crossover_instead() -> None:
    both = lambda size: {"default": falling(size), "tree/ll": 101 + size / 1e5}  # noqa: E731
    found = measure(SIZES, both, noise=0.01)
    assert findings(found) == []
    kinds = [item.kind for item in analyze_samples(PLATFORM, found).findings]
    assert FindingKind.BAD_CROSSOVER in kinds


def test_a_fall_of_every_choice_is_not_the_choice() -> None:
    same = lambda size: {"default": falling(size), "tree/ll": 1.01 * falling(size)}  # noqa: E731
    (finding,) = findings(measure(SIZES, same, noise=0.01))
    assert finding.sentence.endswith(
        "No choice that was measured is faster at 1 MiB, so look at channels, chunk sizes and the "
        "network first"
    )


def test_without_the_default_a_choice_that_falls_is_named() -> None:
    (finding,) = findings(measure(SIZES, lambda size: {"ring/ll": falling(size)}, noise=0.01))
    assert "ring/ll at 1 MiB costs at least" in finding.sentence


def test_what_nccl_ran_on_both_sides_is_named() -> None:
    def ran(sample: Sample) -> Sample:
        choice = parse_choice("ring/ll" if sample.bytes <= M else "ring/simple")
        return replace(sample, ran=choice)

    found = map(ran, measure(SIZES, lambda size: {"default": falling(size)}, noise=0.01))
    (finding,) = findings(found)
    assert "NCCL ran ring/ll at 1 MiB and ring/simple at 2 MiB" in finding.sentence
