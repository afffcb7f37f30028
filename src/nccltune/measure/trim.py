# SPDX-License-Identifier: Apache-2.0
"""Channel counts and chunk sizes of a choice that a rule will name.

Channels are SMs taken from compute, so fewer are better where they cost nothing: powers of two
below what ran, downwards until the time suffers. Twice the channels have to be faster to be kept,
and so has a chunk size: half and twice what ran.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from nccltune.analyze.timings import Timings
from nccltune.measure.conversation import Ran
from nccltune.measure.rounds import spent_us, timing_us
from nccltune.measure.view import SizeView
from nccltune.model.choice import Choice
from nccltune.model.chunks import chunk_grain, largest_chunk
from nccltune.model.collective import Collective

CHANNEL_TOLERANCE = 0.02
"""Log time that fewer channels may cost; the rule search's own default."""
_MOST_CHANNELS = 64
"""That a rule can name; NCCL runs no more than its communicator has."""
_PROBE_ROUNDS = 2
_ROUNDS = 4
_TIMINGS = 4
"""In a round of one variant: its own, that of the choice as it is and the default's two."""
_MOST_COST = 0.3
"""Of the time spent so far: fewer channels are a courtesy, and large sizes seldom grant it."""


class Trial(NamedTuple):
    """Rounds to measure."""

    sizes: Sequence[int]
    choices: Sequence[Choice]
    rounds: int


def next_trial(
    collective: Collective,
    base: Choice,
    views: Sequence[SizeView],
    ran: Mapping[int, Ran | None],
    impossible: Collection[Choice],
    *,
    chunks: bool,
) -> Trial | None:
    """The next thing to try in the range `views` of the rule for `base`; None when all is known.

    `ran` says by size what ran for `base`; `impossible` could not be run somewhere.
    """
    if any(base not in view.estimates for view in views):
        return None
    open_: list[tuple[Choice, Trial]] = []
    for channels in _channel_ladder(ran):
        variant = Choice(base.algorithm, base.protocol, channels)
        if variant in impossible:
            break
        trial, good = _judge(base, variant, views, -CHANNEL_TOLERANCE)
        if trial is not None:
            open_.append((variant, trial))
        if not good:
            break
    faster = [Choice(base.algorithm, base.protocol, channels) for channels in _more_channels(ran)]
    if chunks:
        faster += _chunk_variants(collective, base, ran)
    for variant in faster:
        if variant not in impossible:
            trial, _ = _judge(base, variant, views, CHANNEL_TOLERANCE)
            if trial is not None:
                open_.append((variant, trial))
    if not open_:
        return None
    # Those that need the same share their rounds, and with them the default's timings.
    _, first = open_[0]
    return first._replace(choices=[base, *(item for item, trial in open_ if trial == first)])


def affordable(views: Sequence[SizeView], timings: Timings) -> bool:
    """Whether trying a variant all over a range costs little beside what was spent so far."""
    cost_us = math.fsum(_TIMINGS * _ROUNDS * timing_us(timings, view.bytes) for view in views)
    return cost_us < _MOST_COST * spent_us(timings)


def _judge(
    base: Choice, variant: Choice, views: Sequence[SizeView], least_lead: float
) -> tuple[Trial | None, bool]:
    """What is missing (but for `variant` itself) to know whether `variant` is at least `least_lead`
    faster than `base`, or the verdict. The largest size is tried first: it asks the most of
    channels."""
    largest = views[-1]
    probe = largest.estimates.get(variant)
    if probe is None or probe.n < _PROBE_ROUNDS:
        rounds = _PROBE_ROUNDS - (probe.n if probe else 0)
        return Trial([largest.bytes], [base], rounds), False
    if probe.high < largest.estimates[base].gain + least_lead:
        return None, False
    measured = [view.estimates.get(variant) for view in views]
    least = min(estimate.n if estimate else 0 for estimate in measured)
    if least >= _PROBE_ROUNDS:
        leads = [view.difference(variant, base) for view in views]
        lead = math.fsum(lead for lead, _ in leads) / len(views)
        doubt = 2 * math.sqrt(math.fsum(error**2 for _, error in leads)) / len(views)
        if least >= _ROUNDS or abs(lead - least_lead) > doubt:
            return None, lead >= least_lead
    missing = [
        view.bytes
        for view, estimate in zip(views, measured, strict=True)
        if estimate is None or estimate.n <= least
    ]
    return Trial(missing, [base], 1), False


def _channel_ladder(ran: Mapping[int, Ran | None]) -> list[int]:
    """Powers of two below the most channels that ran, downwards."""
    most = _most_channels(ran)
    return [1 << power for power in range(7, -1, -1) if 1 << power < most]


def _more_channels(ran: Mapping[int, Ran | None]) -> list[int]:
    most = _most_channels(ran)
    return [most * 2] if 0 < most <= _MOST_CHANNELS / 2 else []


def _most_channels(ran: Mapping[int, Ran | None]) -> int:
    return max((item.channels or 0 for item in ran.values() if item), default=0)


def _chunk_variants(
    collective: Collective, base: Choice, ran: Mapping[int, Ran | None]
) -> list[Choice]:
    """Half and twice what ran at most, but for sizes that NCCL would change: the same would run."""
    most = max((item.chunk_bytes or 0 for item in ran.values() if item), default=0)
    limit = largest_chunk(collective, base) or most * 2
    return [
        Choice(base.algorithm, base.protocol, None, chunk)
        for chunk in (most // 2, most * 2)
        if chunk_grain(base) <= chunk <= limit
    ]
