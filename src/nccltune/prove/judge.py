# SPDX-License-Identifier: Apache-2.0
"""Decide whether a size, or a rule, is good, bad or still open.

Gains are natural logs of default over tuned time, one for each round. Every size gets
`FIRST_LOOK` rounds. What is not clear then gets more, so that one outlier does not remove a good
rule. Many sizes are judged, so calling one slower takes an interval that holds for all of them
together (Bonferroni).
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from nccltune.analyze.stats import MIN_ROUNDS, Interval, estimate

FIRST_LOOK = MIN_ROUNDS
"""The rounds that every size gets."""
STEP = 4
"""The number of rounds that are added at a time."""
SECOND_LOOK = 12
"""With fewer rounds no size is called slower, and no rule unproven."""
MOST_ROUNDS = 24
"""The most rounds of a size. What is within noise then counts as no slower."""
LEAST_FLOOR = 0.01
"""A size may be slower by this fraction, or by the A/A noise if that is larger."""
_CHANCE = 0.05
"""The chance that any size is called slower by mistake; the same for a rule called faster."""


class ProofState(StrEnum):
    """The state of a size or of a rule: decided, or open while more rounds are needed."""

    GOOD = "good"
    BAD = "bad"
    OPEN = "open"


class Strictness(NamedTuple):
    """The confidences that a size needs to be called slower, and a rule to be called faster."""

    size: float
    rule: float


def strictness(sizes: int, rules: int) -> Strictness:
    """Return the confidences for this number of sizes in rules and of rules (Bonferroni)."""
    return Strictness(1 - _CHANCE / max(1, sizes), 1 - _CHANCE / max(1, rules))


def interval(gains: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the trimmed mean of log gains with its interval.

    None for fewer than `MIN_ROUNDS` rounds, which do not show their noise.
    """
    if len(gains) < MIN_ROUNDS:
        return None
    return estimate(gains, assumed_sd=0.0, confidence=confidence)


def size_state(gains: Sequence[float], floor: float, strict: float) -> ProofState:
    """Return the state of one size from its log gains.

    Good: slower by at most `floor` (a fraction), with 95 % confidence. Bad: slower by more than
    that, with the confidence `strict`.

    >>> size_state([0.20, 0.21, 0.19, 0.20], floor=0.01, strict=0.99)
    <ProofState.GOOD: 'good'>
    """
    plain, sure = interval(gains), interval(gains, strict)
    if plain is None or sure is None:
        return ProofState.OPEN
    if plain.low > -floor:
        return ProofState.GOOD
    # Before the last round use the interval that holds for all sizes together: more rounds follow.
    last = len(gains) >= MOST_ROUNDS
    judged = plain if last else sure
    if len(gains) >= SECOND_LOOK and judged.high < 0 and judged.value < -floor:
        return ProofState.BAD
    return ProofState.GOOD if last else ProofState.OPEN


def rule_state(gains: Sequence[float], noise: float, strict: float) -> ProofState:
    """Return the state of a rule from its log gains over all its sizes.

    Good: faster with the confidence `strict`, and by more than `noise` (a fraction). Bad: not so
    after all rounds, or clearly within noise before.
    """
    plain, sure = interval(gains), interval(gains, strict)
    if plain is None or sure is None:
        return ProofState.OPEN
    if sure.low > 0 and sure.value > noise:
        return ProofState.GOOD
    if len(gains) >= MOST_ROUNDS or (len(gains) >= SECOND_LOOK and sure.high < noise):
        return ProofState.BAD
    return ProofState.OPEN
