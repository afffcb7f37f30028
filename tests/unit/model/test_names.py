# SPDX-License-Identifier: Apache-2.0
"""Hints for misspelt words."""

from nccltune.model.names import nearest

RULES = [f"rule-{number:02}" for number in range(40)] + ["gdr-read", "gdr-level", "gdr-unused"]


def test_a_short_list_is_named_whole() -> None:
    assert nearest("Ring", ["ring", "tree"]) == "did you mean 'ring'? valid: ring tree"
    assert nearest("zzz", ["ring", "tree"]) == "valid: ring tree"


def test_of_a_long_list_the_nearest_are_named() -> None:
    hint = nearest("gdr", RULES)
    assert "gdr-read" in hint
    assert "gdr-level" in hint
    assert "rule-07" not in hint
    assert hint.endswith("43 are valid")
    assert nearest("gdr-reed", RULES).startswith("did you mean 'gdr-read'?")
    assert nearest("xyz", RULES).endswith("and 35 more")
