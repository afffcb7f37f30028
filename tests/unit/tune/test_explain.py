# SPDX-License-Identifier: Apache-2.0
"""The sizes at which explain asks a plugin."""

from nccltune.model.choice import Choice, parse_choice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.tune.explain import sizes_to_ask


def test_rules_of_one_size_are_not_spread_to_the_next() -> None:
    choices = {4096: parse_choice("tree/ll/2"), 8192: parse_choice("tree/ll/4")}
    rules = [
        Rule(Collective.ALLREDUCE, size, size, choice)
        for size, choice in choices.items()
        if isinstance(choice, Choice)
    ]
    sizes = sizes_to_ask(rules, 4096, 16384)
    assert {4096, 4097, 8191, 8192, 8193} <= set(sizes)
    assert sizes_to_ask(rules, 8192, 16384)[0] == 8192
