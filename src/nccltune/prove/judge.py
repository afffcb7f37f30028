# SPDX-License-Identifier: Apache-2.0
"""Judge a size, and a rule, as good, bad or open. Gains are natural logs of default over
tuned time, one a round.

Everything gets a first look. What is clear then is left; whatever looks bad, or is within
bad, is looked at further, so that a fluke does not cost a good rule. Because many sizes are looked
at, calling one slower takes an interval that is right for all of them together (Bonferroni).
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from nccltune.analyze.stats import MIN_ROUNDS, Interval, estimate

FIRST_LOOK = MIN_ROUNDS
STEP = 4
"""Rounds that are added at a time."""
SECOND_LOOK = 12
"""No size is called slower, and no rule unproven, with fewer rounds."""
MOST_ROUNDS = 24
"""The most rounds: what is within noise after them is not worse than noise."""
LEAST_FLOOR = 0.01
"""A size may be slower by this, or by the A/A noise where that is more."""
_CHANCE = 0.05


class ProofState(StrEnum):
    """What is known of a size or a rule."""

    GOOD = "good"
    BAD = "bad"
    OPEN = "open"


class Strictness(NamedTuple):
    """The confidences with which one of many is called slower (sizes) or faster (rules)."""

    size: float
    rule: float


def strictness(sizes: int, rules: int) -> Strictness:
    """For that many sizes in rules, and rules."""
    return Strictness(1 - _CHANCE / max(1, sizes), 1 - _CHANCE / max(1, rules))


def interval(gains: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Trimmed mean with its interval; None for too few rounds to show their own noise."""
    if len(gains) < MIN_ROUNDS:
        return None
    return estimate(gains, assumed_sd=0.0, confidence=confidence)


def size_state(gains: Sequence[float], floor: float, strict: float) -> ProofState:
    """Good: no slower than by `floor`, with 95 % confidence. Bad: slower by more than that."""
    plain, sure = interval(gains), interval(gains, strict)
    if plain is None or sure is None:
        return ProofState.OPEN
    if plain.low > -floor:
        return ProofState.GOOD
    # After all rounds the ordinary interval decides, before them the one for all sizes together.
    last = len(gains) >= MOST_ROUNDS
    judged = plain if last else sure
    if len(gains) >= SECOND_LOOK and judged.high < 0 and judged.value < -floor:
        return ProofState.BAD
    return ProofState.GOOD if last else ProofState.OPEN


def rule_state(gains: Sequence[float], noise: float, strict: float) -> ProofState:
    """Good: faster beyond doubt, and by more than the noise. Bad: not, after all rounds."""
    plain, sure = interval(gains), interval(gains, strict)
    if plain is None or sure is None:
        return ProofState.OPEN
    if sure.low > 0 and sure.value > noise:
        return ProofState.GOOD
    if len(gains) >= MOST_ROUNDS or (len(gains) >= SECOND_LOOK and sure.high < noise):
        return ProofState.BAD
    return ProofState.OPEN
