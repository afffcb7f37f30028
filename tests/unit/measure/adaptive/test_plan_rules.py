# SPDX-License-Identifier: Apache-2.0
"""The rules of a sweep on noisy platforms of many nodes never lose against the default."""

import math
import random

import pytest

from nccltune.measure.adaptive.plan import Plan
from nccltune.model.choice import DEFAULT
from nccltune.model.scale import Scale
from nccltune.tune.search import search
from tests.unit.measure.platforms import (
    Curves,
    K,
    Platform,
    collective_plan,
    drive,
    linear,
    rule_regret,
    timings_of,
)

SIZES = [round(K * 2 ** (step / 2)) for step in range(33)]
SCALE = Scale(8, 64)
LABELS = [
    *("tree/ll", "tree/simple", "ring/ll", "ring/ll128", "ring/simple"),
    *("nvls_tree/simple", "collnet_direct/simple"),
]


def made_up(seed: int) -> Curves:
    """Return up to seven choices. The default changes twice between any of them."""
    random_ = random.Random(seed)
    labels = LABELS[: random_.randint(2, len(LABELS))]
    lines = {
        label: linear(random_.uniform(20, 300), math.exp(random_.uniform(6.2, 10.8)))
        for label in labels
    }
    choice_ranges = [random_.choice(labels) for _ in range(3)]
    first, second = sorted(K * 2 ** random_.uniform(0, 16) for _ in range(2))
    return Curves(lines, lambda size: choice_ranges[(size >= first) + (size >= second)])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("noise", "hiccups"), [(0.01, 0.0), (0.05, 0.0), (0.01, 0.02)])
def test_no_rule_is_worse_than_the_default(noise: float, hiccups: float, seed: int) -> None:
    exact = made_up(seed)
    plan = Plan([collective_plan(list(exact.lines), scale=SCALE)])
    drive(plan, Platform(exact, noise=noise, hiccups=hiccups, seed=seed))
    timings = timings_of(plan)
    rules = [item.rule for group in search([timings]) for item in group.rules]
    for size in SIZES:
        for rule in rules:
            if rule.matches(timings.condition.collective, size, SCALE.nodes, SCALE.ranks):
                chosen, default = exact(size, rule.choice), exact(size, DEFAULT)
                assert chosen is not None
                assert default is not None
                assert chosen <= default * (1 + noise)
    assert rule_regret(timings, exact, SIZES) <= 0.01 + noise
