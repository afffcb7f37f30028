# SPDX-License-Identifier: Apache-2.0
"""Which timings are independent of each other, and what the search makes of it."""

import math
import random
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from msgspec.structs import replace

from nccltune.analyze import sort_samples
from nccltune.analyze.contrasts import PairedContrasts, ProcessContrasts, ProcessTimings, moderate
from nccltune.analyze.gains import GainTable, gain_tables
from nccltune.analyze.stats import curve_scatter
from nccltune.model.choice import DEFAULT, Algorithm, Choice, Protocol, parse_choice
from nccltune.model.finding import FindingKind
from nccltune.model.platform import Platform
from nccltune.model.rule import RuleState
from nccltune.model.sample import Sample, Source
from nccltune.tune.result import TunedGroup
from nccltune.tune.search import search
from nccltune.tune.state import state_of
from tests.unit.builders import analyze_samples, measure, sizes

K, M = 1 << 10, 1 << 20
SIZES = sizes(4 * K, 4 * M)
TREE = Choice(Algorithm.TREE, Protocol.LL)


def processes(
    order: Iterable[str],
    offset: Callable[[int, str], float],
    *,
    timed: bool = True,
    stated: bool = False,
    rows: int = 2,
    noise: float = 0.002,
    seed: int = 0,
) -> list[Sample]:
    """One process for each label in `order`, a minute apart; `offset(place, label)` is what the log
    of its times differs by. `rows` are cycles of one process."""
    random_ = random.Random(seed)
    seen: dict[str, int] = {}
    found = []
    for place, label in enumerate(order):
        round_ = seen[label] = seen.get(label, -1) + 1
        for size in SIZES:
            for row in range(rows):
                log = math.log(20 + size / 50e3) + offset(place, label) + random_.gauss(0, noise)
                found.append(
                    Sample(
                        study="s",
                        collective=measure([K], lambda _: {"default": 1.0})[0].collective,
                        bytes=size,
                        nodes=2,
                        ranks=16,
                        choice=parse_choice(label),
                        round=round_ if stated else row,
                        repeat=row if stated else 0,
                        time_us=math.exp(log),
                        source=Source(tool="nccl-tests", process=f"p{place}", in_rounds=stated),
                        at=f"2026-01-01T00:{place:02}:00+00:00" if timed else None,
                    )
                )
    return found


def tuned(samples: list[Sample]) -> TunedGroup:
    (group,) = search(sort_samples(samples).timings)
    return group


def table(samples: list[Sample]) -> GainTable:
    (found,) = gain_tables(sort_samples(samples).timings, 0.05)
    return found


def gain(place: int, label: str) -> float:
    return 0.0 if label == "default" else -0.2


ALTERNATING = ["default", "tree/ll"] * 5
BLOCKED = ["default"] * 5 + ["tree/ll"] * 5


def test_alternating_processes_make_a_sure_rule() -> None:
    (rule,) = tuned(processes(ALTERNATING, gain)).rules
    assert rule.state is RuleState.SURE
    assert rule.gain == pytest.approx(math.exp(0.2), rel=0.01)
    assert rule.decided_by is None


def test_blocks_are_not_sure_and_say_which_runs_decide() -> None:
    (rule,) = tuned(processes(BLOCKED, lambda p, c: 2 * gain(p, c))).rules
    assert rule.state is RuleState.CANDIDATE
    assert "in blocks" in rule.reason
    assert rule.decided_by is not None
    assert "alternating order" in rule.decided_by


def test_an_unknown_order_is_not_sure() -> None:
    (rule,) = tuned(processes(ALTERNATING, lambda p, c: 2 * gain(p, c), timed=False)).rules
    assert rule.state is RuleState.CANDIDATE
    assert rule.decided_by is not None
    assert "--in-rounds" in rule.decided_by


def test_a_stated_order_is_as_good_as_a_known_one() -> None:
    (rule,) = tuned(processes(ALTERNATING, gain, timed=False, stated=True)).rules
    assert rule.state is RuleState.SURE


def test_rows_of_one_process_are_one_replicate() -> None:
    (rule,) = tuned(processes(["default", "tree/ll"], lambda p, c: 2 * gain(p, c), rows=8)).rules
    assert rule.state is RuleState.CANDIDATE
    assert "one process" in rule.reason


def test_three_processes_a_choice_are_too_few() -> None:
    group = tuned(processes(ALTERNATING[:6], lambda p, c: 2 * gain(p, c)))
    assert [item.state for item in group.rules] == [RuleState.CANDIDATE]


def test_drift_is_not_a_gain() -> None:
    """The machine gets 3 % faster with each process; the choice runs after the default."""
    samples = processes(ALTERNATING, lambda place, _: -0.03 * place)
    found = table(samples).pooled(TREE, SIZES)
    assert found is not None
    assert found.known
    assert found.value == pytest.approx(0.0, abs=0.005)
    assert tuned(samples).rules == []


def test_stated_rounds_allow_for_drift_within_a_round() -> None:
    samples = processes(ALTERNATING, lambda place, _: -0.03 * place, timed=False, stated=True)
    found = table(samples).pooled(TREE, SIZES)
    assert found is not None
    assert found.value == pytest.approx(0.03, abs=0.005)
    assert found.low < 0 < found.high
    assert tuned(samples).rules == []


def test_old_samples_of_nccl_tests_share_no_round() -> None:
    """Without a process id their rounds were counted by occurrence."""
    samples = [
        replace(sample, source=Source(tool="nccl-tests", file_hash="f"), at=None)
        for sample in processes(ALTERNATING, gain)
    ]
    (timings,) = sort_samples(samples).timings
    assert timings.compares_processes
    assert len(timings.rounds_of.processes) == 2
    assert not timings.log_gains(SIZES[0], TREE)


def test_samples_of_the_bench_share_their_rounds() -> None:
    (timings,) = sort_samples(measure(SIZES, lambda _: {"default": 2.0, "tree/ll": 1.0})).timings
    assert not timings.compares_processes
    assert len(timings.rounds_of.processes) == 1
    assert len(timings.log_gains(SIZES[0], TREE)) == 8


def test_two_starts_of_the_bench_share_no_round() -> None:
    samples = [
        replace(
            sample,
            source=Source(tool="nccltune-bench", process="a" if sample.choice == DEFAULT else "b"),
        )
        for sample in measure(SIZES, lambda _: {"default": 2.0, "tree/ll": 1.0})
    ]
    (timings,) = sort_samples(samples).timings
    assert timings.compares_processes


def test_assumed_noise_makes_no_finding() -> None:
    analysis = analyze_samples(Platform(name="x"), processes(BLOCKED, lambda p, c: 2 * gain(p, c)))
    kinds = {item.kind for item in analysis.findings}
    assert FindingKind.BAD_CROSSOVER not in kinds
    (missing,) = [i for i in analysis.findings if i.kind is FindingKind.SINGLE_SAMPLES]
    assert "tree/ll" in missing.sentence
    assert "To decide, run them in alternating order" in missing.sentence


def test_assumed_noise_does_not_compete_with_measured() -> None:
    """Two lucky rounds of ring/ll beside eight of pat/simple."""
    base = measure([64 * K], lambda _: {"default": 158.0, "pat/simple": 100.0}, noise=0.01)
    lucky = measure([64 * K], lambda _: {"ring/ll": 60.0}, rounds=2, noise=0.01)
    found = table([*base, *lucky])
    pat, ring = parse_choice("pat/simple"), parse_choice("ring/ll")
    assert found.comparable(64 * K, pat)
    assert not found.comparable(64 * K, ring)
    analysis = analyze_samples(Platform(name="x"), [*base, *lucky])
    (crossing,) = [i for i in analysis.findings if i.kind is FindingKind.BAD_CROSSOVER]
    assert crossing.better == pat
    # A sweep drops a choice after a round or two on purpose.
    assert FindingKind.SINGLE_SAMPLES not in {item.kind for item in analysis.findings}


def test_rows_scatter_more_than_is_assumed() -> None:
    quiet = measure(SIZES, lambda s: {"default": 20 + s / 5e4}, rounds=1, twice=False)
    random_ = random.Random(1)
    loud = [
        replace(sample, time_us=sample.time_us * math.exp(random_.gauss(0, 0.3)))
        for sample in [*quiet, *measure(SIZES, lambda s: {"tree/ll": 20 + s / 5e4}, rounds=1)]
    ]
    assert table(loud).row_noise > 0.12
    assert table(loud).noise.typical == table(loud).row_noise
    plain = [*quiet, *measure(SIZES, lambda _: {"tree/ll": 20.0}, rounds=1)]
    assert table(plain).row_noise < 0.06


def test_scatter_is_the_standard_deviation_around_a_straight_line() -> None:
    random_ = random.Random(0)
    logs = [float(place) for place in range(4000)]
    found = curve_scatter(logs, [2 * log + random_.gauss(0, 0.1) for log in logs])
    assert float(np.std(found)) == pytest.approx(0.1, rel=0.05)
    assert curve_scatter([0.0, 1.0, 3.0], [0.0, 2.0, 6.0]) == [pytest.approx(0.0)]


def test_moderation_draws_a_variance_to_the_others() -> None:
    variance, degrees = moderate(1.0, 3, [(2.0, 3), (2.0, 3)])
    assert 1.0 < variance < 2.0
    assert degrees == pytest.approx(3 + 6 / 1.25)


def test_a_noisy_choice_stands_alone() -> None:
    random_ = np.random.default_rng(0)
    calm = {parse_choice(f"ring/ll/{n}"): random_.normal(0, 0.01, (8, 1)) for n in (1, 2, 4)}
    wild = random_.normal(0, 0.1, (8, 1))
    contrasts = PairedContrasts({TREE: wild, **calm})
    found = contrasts.contrast(TREE, [0])
    other = contrasts.contrast(parse_choice("ring/ll/1"), [0])
    assert found is not None
    assert other is not None
    assert found.degrees == 5
    assert found.error > 0.02
    assert other.degrees > 5


def test_a_few_sizes_do_not_carry_a_rule() -> None:
    samples = [
        replace(sample, time_us=sample.time_us * 1.6)
        if sample.choice == DEFAULT and sample.bytes == SIZES[2]
        else sample
        for sample in processes(ALTERNATING, lambda *_: 0.0)
    ]
    found = table(samples)
    assert state_of(found, TREE, SIZES[2:3], 0.03) is RuleState.SURE
    assert state_of(found, TREE, SIZES[2:6], 0.03) is None


def test_a_size_is_slower_beyond_its_own_noise_though_others_are_noisier() -> None:
    noisy = measure(SIZES[1:], lambda _: {"default": 100.0, "tree/ll": 100.0}, noise=0.08)
    quiet = measure(SIZES[:1], lambda _: {"default": 100.0, "tree/ll": 102.0}, noise=0.001)
    found = table([*noisy, *quiet])
    assert found.noise.high > 0.025
    assert found.slower(SIZES[0], TREE)
    assert not found.slower(SIZES[1], TREE)


def test_outlying_rows_do_not_make_an_unsure_rule() -> None:
    samples = [
        replace(sample, time_us=sample.time_us * 3)
        if sample.choice == DEFAULT and sample.bytes == SIZES[4]
        else sample
        for sample in processes(["default", "tree/ll"], lambda *_: 0.0, rows=1)
    ]
    assert tuned(samples).rules == []


def test_a_process_that_lacks_a_size_is_left_out_of_ranges_with_it() -> None:
    def one(place: int, label: str, logs: list[float]) -> ProcessTimings:
        choice = parse_choice(label)
        return ProcessTimings(place, choice, np.array(logs), 60.0 * place, None)

    random_ = random.Random(0)
    found = [
        one(
            place,
            label,
            [
                (0.0 if label == "default" else -0.3) + random_.gauss(0, 0.01),
                math.nan if place == 0 else random_.gauss(0, 0.01),
            ],
        )
        for place, label in enumerate(ALTERNATING)
    ]
    contrasts = ProcessContrasts(found)
    first = contrasts.contrast(TREE, [0])
    both = contrasts.contrast(TREE, [0, 1])
    assert first is not None
    assert both is not None
    assert first.value == pytest.approx(0.3, abs=0.02)
    assert (first.n, both.n) == (10, 9)
    assert both.value == pytest.approx(0.15, abs=0.02)
