# SPDX-License-Identifier: Apache-2.0
"""The judge of simulated studies counts true and false rules, and each noise is there."""

import math

import numpy as np
import pytest

from nccltune.model.choice import Choice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule, RuleState
from nccltune.model.scale import Scale
from nccltune.tune.result import Decision, RuleEvidence, TunedGroup
from tests.simulation.effects import CHOICES, EFFECTS, NULL, PLANTED
from tests.simulation.judge import judge_rules
from tests.simulation.layouts import LAYOUTS
from tests.simulation.noises import NOISES


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
    assert (tally.rules_covered, tally.sure_covered) == (1, 1)
    assert (tally.sizes_covered, tally.sizes) == (7, 7)
    assert tally.kept == pytest.approx(1)
    assert tally.optimism == pytest.approx(math.log(1.29 / 1.3))


def test_the_judge_counts_a_false_rule() -> None:
    tally = judge_rules(group_of(1.05), NULL)
    assert (tally.false_sure, tally.false_any, tally.found, tally.exact) == (1, 1, 0, 0)
    assert (tally.sure, tally.sure_covered, tally.sizes, tally.sizes_covered) == (1, 0, 7, 0)


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
