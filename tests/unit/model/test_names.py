# SPDX-License-Identifier: Apache-2.0
"""Hints for misspelt words."""

import pytest

from nccltune.model.names import distance, nearest

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


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("DEBGU", "DEBUG", 1),
        ("ALGO", "ALGO", 0),
        ("ALG", "ALGO", 1),
        ("ALGOO", "ALGO", 1),
        ("ABCD", "WXYZ", 3),
        ("A", "ABCDEF", 3),
        ("CA", "ABC", 3),
    ],
)
def test_distance(first: str, second: str, expected: int) -> None:
    assert distance(first, second, 2) == expected
    assert distance(second, first, 2) == expected
