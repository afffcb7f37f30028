# SPDX-License-Identifier: Apache-2.0
"""The threshold from the effects at each size, without processes."""

import itertools
import math

import pytest

from nccltune.analyze.stats import Interval
from nccltune.measure.experiments.copies.verdict import (
    Effect,
    MessageSizeGain,
    effect_of,
    find_threshold,
)

K, M = 1 << 10, 1 << 20
DEFAULT = 2 * M
FLOOR = math.log1p(0.02)
LETTERS = {
    "f": Effect.FASTER,
    "=": Effect.SAME,
    "s": Effect.SLOWER,
    "?": Effect.UNCLEAR,
}
NOT_SLOWER = (Effect.FASTER, Effect.SAME)


def sizes(letters: str, first: int = 512 * K) -> list[MessageSizeGain]:
    """Return the sizes with the effects of `letters`, one letter per size, by powers of two."""
    return [MessageSizeGain(first << at, LETTERS[letter]) for at, letter in enumerate(letters)]


@pytest.mark.parametrize(
    ("letters", "from_bytes"),
    [
        # The sizes are 512K 1M 2M 4M 8M. The default is 2M.
        ("sssff", 4 * M),
        ("sssss", None),
        ("fffff", 512 * K),
        ("=====", 512 * K),
        ("sfff=", 1 * M),
        ("s=fff", 1 * M),
        ("ssfff", 2 * M),
        ("s?fff", 2 * M),
        ("s?f?f", 2 * M),
        ("????f", 2 * M),
        ("?????", 2 * M),
        ("ss?ff", 2 * M),
        ("sss?f", 4 * M),
        ("fsffs", None),
        ("ffsff", 4 * M),
        ("fffsf", 8 * M),
        ("sf?ss", None),
    ],
)
def test_thresholds(letters: str, from_bytes: int | None) -> None:
    assert find_threshold(sizes(letters), DEFAULT).from_bytes == from_bytes


def test_a_threshold_is_never_more_than_what_is_proven() -> None:
    for letters in itertools.product("f=s?", repeat=5):
        known = sizes("".join(letters))
        found = find_threshold(known, DEFAULT)
        slower = [size.bytes for size in known if size.effect is Effect.SLOWER]
        if found.from_bytes is None:
            assert slower
            assert slower[-1] == known[-1].bytes
            continue
        above = [size for size in known if size.bytes >= found.from_bytes]
        assert not any(size.effect is Effect.SLOWER for size in above), letters
        if found.from_bytes < DEFAULT:
            assert all(size.effect in NOT_SLOWER for size in above), letters
            below = [size for size in known if size.bytes < found.from_bytes]
            assert not below or below[-1].effect not in NOT_SLOWER, letters
        elif found.from_bytes > DEFAULT:
            assert max(slower) * 2 == found.from_bytes, letters
        assert found.why


def test_a_default_between_two_sizes_stays_where_these_decide_nothing() -> None:
    found = find_threshold(sizes("sff", first=3 * M // 2), DEFAULT)
    assert found.from_bytes == DEFAULT
    assert "the default stays" in found.why
    assert find_threshold(sizes("fff", first=3 * M // 2), DEFAULT).from_bytes == 3 * M // 2


def test_the_reason_names_what_a_threshold_cannot_express() -> None:
    why = find_threshold(sizes("sfffs"), DEFAULT).why
    assert "slower at 8 MiB, the largest size, though faster between 1 MiB and 4 MiB" in why
    assert "and faster at none" in find_threshold(sizes("sssss"), DEFAULT).why


def interval(value: float, half: float) -> Interval:
    return Interval(value, value - half, value + half, 6, known=True)


@pytest.mark.parametrize(
    ("value", "half", "sure_half", "effect"),
    [
        (0.10, 0.02, 0.04, Effect.FASTER),
        (0.01, 0.005, 0.009, Effect.SAME),
        (0.00, 0.01, 0.02, Effect.SAME),
        (-0.01, 0.005, 0.009, Effect.SAME),
        (-0.10, 0.02, 0.04, Effect.SLOWER),
        (-0.10, 0.05, 0.11, Effect.UNCLEAR),
        (-0.018, 0.005, 0.009, Effect.UNCLEAR),
        (0.05, 0.10, 0.20, Effect.UNCLEAR),
    ],
)
def test_effects(value: float, half: float, sure_half: float, effect: Effect) -> None:
    assert effect_of(interval(value, half), interval(value, sure_half), FLOOR) is effect
