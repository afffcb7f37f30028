# SPDX-License-Identifier: Apache-2.0
"""The simulated studies have the properties that their names state."""

import math
from datetime import datetime

import numpy as np
import pytest

from nccltune.model.choice import DEFAULT, Choice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule, RuleState
from nccltune.model.sample import Sample
from nccltune.model.scale import Scale
from nccltune.tune.result import Decision, RuleEvidence, TunedGroup
from tests.simulation.effects import CHOICES, EFFECTS, NULL, PLANTED
from tests.simulation.judge import judge_rules, judge_study
from tests.simulation.layouts import LAYOUTS
from tests.simulation.noises import NOISES, process_offsets
from tests.simulation.studies import study

K, M = 1 << 10, 1 << 20


def samples_of(layout: str, noise: str = "lognormal-1", effect: str = "null") -> list[Sample]:
    return study(LAYOUTS[layout], EFFECTS[effect], NOISES[noise], seed=1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_choice_is_measured_at_each_size(layout: str) -> None:
    samples = samples_of(layout)
    choices = {sample.choice for sample in samples}
    assert {DEFAULT, CHOICES[PLANTED]} <= choices
    sizes = {sample.bytes for sample in samples}
    assert (min(sizes), max(sizes)) == (K, 1 << 30)
    assert {(s.bytes, s.choice) for s in samples} == {(b, c) for b in sizes for c in choices}


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if not name.startswith("sweep")])
def test_a_process_of_nccl_tests_runs_one_choice(layout: str) -> None:
    by_process: dict[str | None, set[object]] = {}
    for sample in samples_of(layout):
        by_process.setdefault(sample.source.process, set()).add(sample.choice)
    assert None not in by_process
    assert all(len(choices) == 1 for choices in by_process.values())


def test_a_sweep_has_every_choice_in_one_process() -> None:
    samples = samples_of("sweep-8")
    assert {sample.source.process for sample in samples} == {"process-000"}
    assert {(s.round, s.repeat) for s in samples if s.choice == DEFAULT} == {
        (round_, repeat) for round_ in range(8) for repeat in range(2)
    }
    seconds = [datetime.fromisoformat(sample.at or "") for sample in samples]
    assert seconds == sorted(seconds)
    assert {s.source.process for s in samples_of("sweep-8-old")} == {None}
    assert {s.source.process for s in samples_of("sweep-2x4")} == {"process-000", "process-001"}


def starts(layout: str) -> list[int]:
    """The numbers of the choices in the order in which their processes started."""
    by_start = sorted({(s.at or "", CHOICES.index(s.choice)) for s in samples_of(layout)})
    return [choice for _, choice in by_start]


def test_processes_start_in_the_order_of_the_layout() -> None:
    assert starts("files-4") == list(range(7)) * 4
    assert starts("blocked-4") == [choice for choice in range(7) for _ in range(4)]
    assert starts("files-8-twice") == [*range(7), 0] * 8
    assert starts("files-8-random") != list(range(7)) * 8
    assert starts("files-3-between") == [0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6] * 3
    assert starts("blocked-4-two") == [0] * 4 + [PLANTED] * 4


def test_what_a_study_says_of_time() -> None:
    assert all(s.at is None and s.source.in_rounds for s in samples_of("files-8-stated"))
    assert all(s.at is None and not s.source.in_rounds for s in samples_of("files-8-bare"))
    assert all(s.at and not s.source.in_rounds for s in samples_of("files-8"))


def test_the_order_of_files_in_a_study_says_nothing_of_time() -> None:
    assert [s.choice for s in samples_of("files-8-bare", "drift-up-20")] == [
        s.choice for s in samples_of("blocked-8")
    ]


def test_cycles_are_rounds_of_one_process() -> None:
    samples = samples_of("cycles-8")
    assert {s.round for s in samples} == set(range(8))
    assert len({s.source.process for s in samples}) == len(CHOICES)


def test_the_planted_choice_is_faster_in_its_range_only() -> None:
    sizes = np.array([32 * K, 64 * K, 4 * M, 8 * M], dtype=float)
    gains = EFFECTS["gain-10"].log_gains(sizes)
    assert gains[PLANTED].tolist() == pytest.approx([0, math.log(1.1), math.log(1.1), 0])
    assert not np.delete(gains, PLANTED, axis=0).any()
    assert not NULL.log_gains(sizes).any()
    slower = EFFECTS["gain-10-slower"].log_gains(sizes)
    assert slower[PLANTED, 0] == pytest.approx(math.log(0.95))


@pytest.mark.parametrize("noise", NOISES)
def test_a_noise_is_as_large_as_its_name_says(noise: str) -> None:
    rng = np.random.default_rng(7)
    plan = LAYOUTS["files-8"].make(rng)
    logs = NOISES[noise](plan, rng)
    assert logs.shape == (plan.count,)
    assert np.isfinite(logs).all()
    assert 0.005 < logs.std() < 0.5
    if "drift" in noise:
        towards = 1 if "up" in noise else -1
        assert towards * (logs[-200:].mean() - logs[:200].mean()) > 0.03


def test_rows_of_a_process_share_its_offset() -> None:
    rng = np.random.default_rng(3)
    plan = LAYOUTS["files-8"].make(rng)
    logs = process_offsets(plan, rng)
    offsets = [set(logs[plan.process == process]) for process in range(56)]
    assert all(len(values) == 1 for values in offsets)
    assert np.std([values.pop() for values in offsets]) == pytest.approx(0.03, rel=0.3)


def test_a_study_is_the_same_for_the_same_seed() -> None:
    first, second = (
        study(LAYOUTS["files-8-random"], NULL, NOISES["student"], seed) for seed in (5, 5)
    )
    other = study(LAYOUTS["files-8-random"], NULL, NOISES["student"], seed=6)
    assert first == second
    assert first != other


def group_of(gain: float) -> TunedGroup:
    """One sure rule for the planted choice from 64 KiB to 4 MiB, among 21 sizes."""
    sizes = [1 << power for power in range(10, 31)]
    covered = sizes[6:13]
    choice = CHOICES[PLANTED]
    assert isinstance(choice, Choice)
    rule = Rule(Collective.ALLREDUCE, covered[0], covered[-1], choice)
    return TunedGroup(
        collective=Collective.ALLREDUCE,
        scale=Scale(4, 32),
        registered=None,
        rounds=8,
        noise=0.01,
        noise_source="",
        rules=[
            RuleEvidence(
                rule,
                covered,
                99,
                "",
                RuleState.SURE,
                gain=gain,
                gain_low=gain - 0.02,
                gain_high=gain + 0.02,
            )
        ],
        left_alone=[],
        decisions=[
            Decision(
                size,
                choice if size in covered else None,
                default_us=1.3,
                tuned_us=1.0,
                best=None,
                best_us=1.0,
                gain=gain,
                gain_low=gain - 0.04,
                gain_high=gain + 0.04,
            )
            for size in sizes
        ],
        expected_gain=gain,
        recovered=1.0,
    )


def test_the_judge_counts_a_true_rule() -> None:
    tally = judge_rules(group_of(1.29), EFFECTS["gain-30"])
    assert (tally.false_sure, tally.found, tally.exact) == (0, 1, 1)
    assert (tally.rules_covered, tally.sure_covered, tally.sizes_covered, tally.sizes) == (
        1,
        1,
        7,
        7,
    )
    assert tally.kept == pytest.approx(1)
    assert tally.optimism == pytest.approx(math.log(1.29 / 1.3))


def test_the_judge_counts_a_false_rule() -> None:
    tally = judge_rules(group_of(1.05), NULL)
    assert (tally.false_sure, tally.false_any, tally.found, tally.exact) == (1, 1, 0, 0)
    assert (tally.sure, tally.sure_covered, tally.sizes, tally.sizes_covered) == (1, 0, 7, 0)


def test_a_tally_is_the_sum_of_its_studies() -> None:
    one = judge_study("sweep-8-coarse", "lognormal-1", "gain-10", 0)
    assert (one + one).studies == 2
    assert (one + one).cells == 2 * one.cells == 2 * 11 * 6
