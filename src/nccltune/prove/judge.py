# SPDX-License-Identifier: Apache-2.0
"""Decide whether a size or a rule is good, bad or open.

A gain is the natural log of default over tuned time; there is one for each round. Every size gets
`FIRST_LOOK` rounds. Sizes and rules that are open get more rounds, so that one outlier does not
remove a good rule. Many sizes are judged. A size is therefore called slower only with an interval
that is valid for all sizes together (Bonferroni). After `MOST_ROUNDS` rounds, the 95 % interval of
the size alone decides.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from nccltune.analyze.stats import MIN_ROUNDS, Interval, estimate

FIRST_LOOK = MIN_ROUNDS
"""The number of rounds that every size gets."""
STEP = 4
"""The number of rounds that are added at once to an open size or rule."""
SECOND_LOOK = 12
"""With fewer rounds than this no size and no rule is called bad."""
MOST_ROUNDS = 24
"""The most rounds of a size. After them a size that is not proven slower is called good."""
LEAST_FLOOR = 0.01
"""A size may be slower than the default by this fraction. If the default differs from itself by
more than this (A/A noise), a size may be slower by the noise."""
_CHANCE = 0.05
"""The chance that any size of a configuration is called slower by mistake. The chance that any rule
is called faster by mistake is the same."""


class ProofState(StrEnum):
    """The state of a size or of a rule. `OPEN` means that more rounds are needed."""

    GOOD = "good"
    BAD = "bad"
    OPEN = "open"


class Strictness(NamedTuple):
    """The confidence needed to call a size slower, and the confidence needed to call a rule
    faster."""

    size: float
    rule: float


def strictness(sizes: int, rules: int, chance: float = _CHANCE) -> Strictness:
    """Return the confidences for this many sizes and this many rules (Bonferroni).

    Only sizes that a rule applies to are counted. `chance` is that of any mistake among them.
    """
    return Strictness(1 - chance / max(1, sizes), 1 - chance / max(1, rules))


def interval(gains: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the trimmed mean of gains with its interval.

    Return None for fewer than `MIN_ROUNDS` gains, because so few do not show their noise.
    """
    if len(gains) < MIN_ROUNDS:
        return None
    return estimate(gains, assumed_sd=0.0, confidence=confidence)


def size_state(gains: Sequence[float], floor: float, strict: float) -> ProofState:
    """Return the state of one size from its gains.

    Good: slower by at most `floor` (a fraction), with 95 % confidence. Bad: slower with the
    confidence `strict`, and by more than `floor` in the mean. After `MOST_ROUNDS` rounds, 95 %
    confidence is enough for bad, and every other size is good. Open: anything else.

    >>> size_state([0.20, 0.21, 0.19, 0.20], floor=0.01, strict=0.99)
    <ProofState.GOOD: 'good'>
    """
    plain, sure = interval(gains), interval(gains, strict)
    if plain is None or sure is None:
        return ProofState.OPEN
    if plain.low > -floor:
        return ProofState.GOOD
    # Before the last round be strict, because more rounds follow.
    last = len(gains) >= MOST_ROUNDS
    judged = plain if last else sure
    if len(gains) >= SECOND_LOOK and judged.high < 0 and judged.value < -floor:
        return ProofState.BAD
    return ProofState.GOOD if last else ProofState.OPEN


def rule_state(gains: Sequence[float], noise: float, strict: float) -> ProofState:
    """Return the state of a rule from its gains: for each round, the mean over all its sizes.

    Good: faster with the confidence `strict`, and by more than `noise` (a fraction) in the mean.
    Bad: not good after `MOST_ROUNDS` rounds. A rule is bad earlier if its gain is smaller than
    `noise` with the confidence `strict`. Open: anything else.
    """
    plain, sure = interval(gains), interval(gains, strict)
    if plain is None or sure is None:
        return ProofState.OPEN
    if sure.low > 0 and sure.value > noise:
        return ProofState.GOOD
    if len(gains) >= MOST_ROUNDS or (len(gains) >= SECOND_LOOK and sure.high < noise):
        return ProofState.BAD
    return ProofState.OPEN
