# SPDX-License-Identifier: Apache-2.0
"""Whether a job is faster, from pairs of its starts."""

import random

import pytest

from nccltune.measure.experiments.ab.speed import JobSpeed
from nccltune.prove.job import confidence_of, judge_pairs, looks


def _pairs(
    n: int, gain: float, noise: float, seed: int, rounding: float = 0.0
) -> list[tuple[JobSpeed, JobSpeed]]:
    random_ = random.Random(seed)
    return [
        (
            JobSpeed("steps/s", random_.gauss(1, noise), rounding=rounding),
            JobSpeed("steps/s", gain * random_.gauss(1, noise), rounding=rounding),
        )
        for _ in range(n)
    ]


def _verdict(gain: float, noise: float, seed: int) -> str:
    """Return what is decided at the first look that decides."""
    ends = looks(12)
    pairs = _pairs(ends[-1], gain, noise, seed)
    found = [judge_pairs(pairs[:end], confidence_of(end)).verdict for end in ends]
    return next((verdict for verdict in found if verdict != "not sure"), "not sure")


def test_looks_of_later_runs_count() -> None:
    """The chances of all looks of runs with ever more rounds stay under 5 %."""
    ends = {end for rounds in range(3, 400) for end in looks(rounds)}
    assert sum(1 - confidence_of(end) for end in ends) < 0.05


def test_a_job_without_a_gain_is_seldom_proven() -> None:
    found = [_verdict(1.0, 0.01, seed) for seed in range(400)]
    assert found.count("proven") <= 0.025 * 400 + 8


def test_a_job_with_a_gain_is_proven() -> None:
    assert [_verdict(1.03, 0.005, seed) for seed in range(60)].count("proven") >= 57
    assert [_verdict(0.97, 0.005, seed) for seed in range(60)].count("no") >= 57
    assert [_verdict(1.0, 0.001, seed) for seed in range(60)].count("proven") <= 5


@pytest.mark.parametrize(
    ("pairs", "verdict", "why"),
    [
        (_pairs(2, 2.0, 0.0, 1), "not sure", "needs at least 3 pairs of starts, has 2"),
        (_pairs(3, 1.02, 0.0, 1), "proven", "faster"),
        (_pairs(3, 0.98, 0.0, 1), "no", "slower"),
        (_pairs(3, 1.002, 0.0, 1), "no", "gain less than 0.5 %"),
        (_pairs(3, 1.0, 0.0, 1), "no", "less than 0.5 %"),
        # Equal numbers that the program rounds to 1 % show no gain of less than that.
        (_pairs(3, 1.0, 0.0, 1, rounding=0.01), "not sure", "too few digits (rounded to 1 %)"),
        (_pairs(3, 1.015, 0.0, 1, rounding=0.01), "not sure", "too few digits"),
        # The noise is more than what is rounded, so more pairs may decide.
        (_pairs(3, 1.0, 0.05, 1, rounding=0.01), "not sure", "noise"),
    ],
)
def test_verdicts(pairs: list[tuple[JobSpeed, JobSpeed]], verdict: str, why: str) -> None:
    found = judge_pairs(pairs, 0.95)
    assert found.verdict == verdict
    assert why in found.why
    assert found.coarse is ("digits" in why)


def test_a_job_that_fails_with_the_rules_is_no() -> None:
    found = judge_pairs([], 0.95, "ended with status 1")
    assert (found.verdict, found.gain) == ("no", None)
    assert found.why == "the job failed twice with the rules: ended with status 1"
