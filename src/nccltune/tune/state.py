# SPDX-License-Identifier: Apache-2.0
"""Decide the state of a rule (sure, only a candidate, or no rule at all), and its channels.

The interval that decides is the interval that every output prints, so that the two never
contradict each other.
"""

import math
from collections.abc import Sequence

from nccltune.analyze.gains import GainTable
from nccltune.analyze.stats import MIN_ROUNDS, Interval, median, normal_z
from nccltune.model.choice import DEFAULT, Choice
from nccltune.model.rule import RuleState
from nccltune.tune.result import TuneOptions

_LEAST_SIZES = 3
"""The fewest sizes that must show the gain of a candidate."""
_RANGES = 1.2
"""The search also selects the range of a candidate, which the confidence does not count. With this
factor at most 5 % of studies without any gain get a candidate (tests/unit/tune/test_states.py)."""
_CHANCE = 0.03
"""The accepted chance that a difference between two processes is larger than its limit."""


def printed_gain(table: GainTable, choice: Choice, sizes: Sequence[int]) -> Interval | None:
    """Return the gain of `choice` over `sizes`, with the interval that decides and is printed.

    It stays valid although the search selected the choice and the range. Return None if the
    default or the choice was not measured.
    """
    return table.pooled(choice, sizes, table.strict)


def state_of(
    table: GainTable, choice: Choice, sizes: Sequence[int], min_gain: float
) -> RuleState | None:
    """Return the state of a rule for `choice` at `sizes`; None if the timings support no rule.

    The gain must reach `min_gain` and the noise floor. A rule is sure if its noise is measured and
    its interval lies above 1. It is a candidate if its gain stands out of the scatter of the
    timings.
    """
    found = printed_gain(table, choice, sizes)
    if found is None:
        return None
    floor = max(math.log1p(min_gain), table.noise.typical if table.noise.known else 0.0)
    if found.value < floor:
        return None
    # Also check the median over sizes, because outliers raise the mean. The search may have
    # selected the range for its outliers.
    single = [gain.value for size in sizes if (gain := table.gain(size, choice)) is not None]
    if median(single) < min(found.value / 2, floor):
        return None
    if found.known and found.low > 0:
        return RuleState.SURE
    return RuleState.CANDIDATE if _stands_out(table, choice, sizes, single) else None


def too_many_channels(table: GainTable, size: int, choice: Choice, options: TuneOptions) -> bool:
    """Return whether the options forbid a choice because it uses more channels than the default.

    If the number of channels of the default is unknown, a choice that sets a number of channels is
    forbidden. Choices with an unknown number of channels are allowed.
    """
    if options.channels == "any":
        return False
    own, default = table.channels(size, choice), table.channels(size, DEFAULT)
    if own is None:
        return False
    return choice.channels is not None if default is None else own > default


def _stands_out(
    table: GainTable, choice: Choice, sizes: Sequence[int], single: Sequence[float]
) -> bool:
    """Return whether a gain whose noise is not known well enough stands out of the scatter.

    The mean over sizes must exceed two limits: the scatter of timings and, where the default ran in
    other processes, the difference that two processes may have. More sizes reduce only the scatter.
    Most sizes must show half of that gain, because one bad timing of the default looks like a gain
    of every choice.
    """
    plain = table.pooled(choice, sizes)
    if plain is not None and plain.known and plain.low <= 0:
        return False
    offset, rows = 0.0, len(single)
    if table.shares_rounds(choice):
        # Timings of one process share an offset: more than four show no more than four.
        rows = min(MIN_ROUNDS, rows)
    else:
        offset = normal_z(1 - _CHANCE / len(table.choices)) * table.assumed_noise
    scatter = _RANGES * normal_z(table.strict) * table.row_noise / math.sqrt(rows)
    limit = math.sqrt(2) * max(offset, scatter)
    showing = sum(value > limit / 2 for value in single)
    mean = math.fsum(single) / len(single)
    return mean > limit and showing >= max(_LEAST_SIZES, 0.75 * len(single))
