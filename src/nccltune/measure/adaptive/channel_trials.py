# SPDX-License-Identifier: Apache-2.0
"""Choose the channel counts and chunk sizes to try for the choice of a rule.

Each channel takes an SM from compute. Fewer channels are therefore better as long as they cost no
time. The counts tried are powers of two below the count that ran, downwards until the time gets
worse. Three more variants are tried and kept only if they are faster: twice that channel count, and
half and twice the chunk size that ran. Chunk sizes are tried only if the tuner interface can set
them.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive.rounds import spent_us, timing_us
from nccltune.measure.adaptive.size_state import SizeState
from nccltune.measure.bench.conversation import ExecutedChoice
from nccltune.model.choice import Choice, chunk_grain, largest_chunk
from nccltune.model.collective import Collective

CHANNEL_TOLERANCE = 0.02
"""How much slower fewer channels may be (a log), as in the rule search."""
_MOST_CHANNELS = 64
"""The largest channel count that a rule can name."""
_PROBE_ROUNDS = 2
_ROUNDS = 4
_TIMINGS = 4
"""Timings in one round of a trial: one of the variant, one of the unchanged choice, and two of the
default."""
_MOST_COST = 0.3
"""Share of the time spent so far that a trial may cost: large sizes seldom need fewer channels."""


class ChannelTrial(NamedTuple):
    """Rounds to measure: `rounds` rounds of `choices` at each of `sizes`."""

    sizes: Sequence[int]
    choices: Sequence[Choice]
    rounds: int


def next_trial(
    collective: Collective,
    base: Choice,
    states: Sequence[SizeState],
    ran: Mapping[int, ExecutedChoice | None],
    impossible: Collection[Choice],
    *,
    chunks: bool,
) -> ChannelTrial | None:
    """Return the next trial for a rule with the choice `base` at the sizes of `states`, if any.

    `ran` maps each size to what NCCL executed when `base` was forced. `impossible` are choices that
    could not run at one of the sizes. `chunks`: the tuner interface can set chunk sizes.
    """
    if any(base not in state.estimates for state in states):
        return None
    open_: list[tuple[Choice, ChannelTrial]] = []
    for channels in _channel_ladder(ran):
        variant = Choice(base.algorithm, base.protocol, channels)
        if variant in impossible:
            break
        trial, good = _judge(base, variant, states, -CHANNEL_TOLERANCE)
        if trial is not None:
            open_.append((variant, trial))
        if not good:
            break
    faster = [Choice(base.algorithm, base.protocol, channels) for channels in _more_channels(ran)]
    if chunks:
        faster += _chunk_variants(collective, base, ran)
    for variant in faster:
        if variant not in impossible:
            trial, _ = _judge(base, variant, states, CHANNEL_TOLERANCE)
            if trial is not None:
                open_.append((variant, trial))
    if not open_:
        return None
    # Variants that need the same sizes and rounds are measured together. Then the default is timed
    # only once for all of them.
    _, first = open_[0]
    return first._replace(choices=[base, *(item for item, trial in open_ if trial == first)])


def affordable(states: Sequence[SizeState], timings: Timings) -> bool:
    """Return whether a trial at all these sizes costs less than `_MOST_COST` of the time so far."""
    cost_us = math.fsum(_TIMINGS * _ROUNDS * timing_us(timings, state.bytes) for state in states)
    return cost_us < _MOST_COST * spent_us(timings)


def _judge(
    base: Choice, variant: Choice, states: Sequence[SizeState], least_lead: float
) -> tuple[ChannelTrial | None, bool]:
    """Return the rounds still needed to judge `variant`, and whether it is good enough.

    It is if its mean gain exceeds that of `base` by `least_lead` (log); False while that is
    unknown. The trial names only `base`: the caller adds the variant. The largest size is tried
    first, because it needs channels most.
    """
    largest = states[-1]
    probe = largest.estimates.get(variant)
    if probe is None or probe.n < _PROBE_ROUNDS:
        rounds = _PROBE_ROUNDS - (probe.n if probe else 0)
        return ChannelTrial([largest.bytes], [base], rounds), False
    if probe.high < largest.estimates[base].gain + least_lead:
        return None, False
    measured = [state.estimates.get(variant) for state in states]
    least = min(estimate.n if estimate else 0 for estimate in measured)
    if least >= _PROBE_ROUNDS:
        leads = [state.difference(variant, base) for state in states]
        lead = math.fsum(lead for lead, _ in leads) / len(states)
        doubt = 2 * math.sqrt(math.fsum(error**2 for _, error in leads)) / len(states)
        if least >= _ROUNDS or abs(lead - least_lead) > doubt:
            return None, lead >= least_lead
    missing = [
        state.bytes
        for state, estimate in zip(states, measured, strict=True)
        if estimate is None or estimate.n <= least
    ]
    return ChannelTrial(missing, [base], 1), False


def _channel_ladder(ran: Mapping[int, ExecutedChoice | None]) -> list[int]:
    most = _most_channels(ran)
    return [1 << power for power in range(7, -1, -1) if 1 << power < most]


def _more_channels(ran: Mapping[int, ExecutedChoice | None]) -> list[int]:
    most = _most_channels(ran)
    return [most * 2] if 0 < most <= _MOST_CHANNELS / 2 else []


def _most_channels(ran: Mapping[int, ExecutedChoice | None]) -> int:
    return max((item.channels or 0 for item in ran.values() if item), default=0)


def _chunk_variants(
    collective: Collective, base: Choice, ran: Mapping[int, ExecutedChoice | None]
) -> list[Choice]:
    """Return variants with half and twice the largest chunk size that ran, within NCCL's limits."""
    most = max((item.chunk_bytes or 0 for item in ran.values() if item), default=0)
    limit = largest_chunk(collective, base) or most * 2
    return [
        Choice(base.algorithm, base.protocol, None, chunk)
        for chunk in (most // 2, most * 2)
        if chunk_grain(base) <= chunk <= limit
    ]
