# SPDX-License-Identifier: Apache-2.0
"""State why sizes have no rule."""

import math
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import NamedTuple

from nccltune.analyze.gains import GainTable
from nccltune.analyze.stats import MIN_ROUNDS, Interval, trimmed_interval
from nccltune.model.choice import DEFAULT, Choice, choice_label, rest_of
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes
from nccltune.tune.evidence import never_runs
from nccltune.tune.result import LeftAlone, TuneOptions, is_clear
from nccltune.tune.state import printed_gain, state_of, too_many_channels

_SHAPE = 0.5
"""A larger scatter along the curves is the shape of curves of too few sizes, and no noise."""


class _Compared(NamedTuple):
    gain: Interval
    choice: Choice
    size: int


def left_alone_at(
    table: GainTable,
    covered: Sequence[int],
    options: TuneOptions,
    beside: Collection[Choice | None] = (),
) -> list[LeftAlone]:
    """Return the sizes `covered` as ranges without a rule, each with its reason.

    `beside` are the choices of the rules that end where `covered` begins and begin where it ends.
    Sizes at which nothing was compared with the default are ranges of their own.
    """
    found = []
    for is_compared, sizes in groupby(covered, lambda size: bool(_compared(table, [size]))):
        part = list(sizes)
        reason = _not_compared(table, part)
        if is_compared:
            reason = _reason(table, part, options, beside)
        found.append(LeftAlone(part[0], part[-1], len(part), reason, is_compared))
    return found


def _compared(table: GainTable, sizes: Sequence[int]) -> list[_Compared]:
    return [
        _Compared(gain, choice, size)
        for size in sizes
        for choice in table.choices
        if (gain := table.gain(size, choice)) is not None
    ]


def _not_compared(table: GainTable, sizes: Sequence[int]) -> str:
    if wrong := {choice_label(one) for item in table.timings for one in item.wrong}:
        names = ", ".join("the default" if one == DEFAULT else one for one in sorted(wrong))
        return f"not compared: {names} gave wrong results"
    if all(table.log_time(size, DEFAULT, anywhere=True) is None for size in sizes):
        words = "not compared: the default was not measured"
        choices = [choice for choice in table.choices if not never_runs(table, choice)]
        beaten = (
            [(*by, one.label) for one in choices if (by := table.beaten_by(size, one))]
            for size in sizes
        )
        gain, limits, label = max(map(min, filter(None, beaten)), default=(0.0, None, ""))
        if limits is not None:
            words += (
                f", and {limits}, {rest_of(limits)}, is up to {_times(gain)} as fast as {label}"
            )
        return words
    return "not compared: no whole choice was measured beside the default"


def _reason(
    table: GainTable,
    covered: Sequence[int],
    options: TuneOptions,
    beside: Collection[Choice | None],
) -> str:
    """Return why no choice gets a rule. It usually concerns the one with the largest gain."""
    compared = _compared(table, covered)
    allowed = [
        item for item in compared if not too_many_channels(table, item.size, item.choice, options)
    ]
    not_slower = [item for item in allowed if not table.slower(item.size, item.choice)]
    more_channels = [item for item in compared if item not in allowed and item.gain.low > 0]
    reason = "the default is the fastest measured"
    reason += " with right results" if any(item.wrong for item in table.timings) else ""
    if not_slower:
        ordered = sorted(not_slower, key=lambda item: item.gain.value, reverse=True)
        enough = [item for item in ordered if item.gain.value >= math.log1p(options.min_gain)]
        if enough:
            # A gain that the scatter hides is not the largest, only the least known.
            best = next((item for item in enough if _is_clear(table, item)), enough[0])
            reason = _not_used(table, best, covered, options, beside)
        elif ordered[0].gain.value > 0:
            reason = (
                f"the best choice gains less than {100 * options.min_gain:.3g} % (noise "
                f"{100 * table.noise.typical:.2g} %)"
            )
    reason = _only_for_some_calls(table, covered, math.log1p(options.min_gain)) or reason
    if more_channels:
        _, choice, size = best = max(more_channels, key=lambda item: item.gain.value)
        more, own = table.channels(size, choice), table.channels(size, DEFAULT)
        reason += (
            f"; {choice.label} is {_times(best.gain.value)} faster at {format_bytes(size)} with "
            f"{more} channels (default {'unknown' if own is None else own}): --channels any"
        )
    return reason


def _is_clear(table: GainTable, item: _Compared) -> bool:
    """Return whether the timings show roughly how large a gain is, if they show its noise."""
    strict = printed_gain(table, item.choice, [item.size])
    return strict is None or not item.gain.known or is_clear(*strict.ratio[1:3])


def _not_used(
    table: GainTable,
    best: _Compared,
    covered: Sequence[int],
    options: TuneOptions,
    beside: Collection[Choice | None],
) -> str:
    """Return why a gain that is large enough makes no rule."""
    gain, choice, size = best
    strict = printed_gain(table, choice, [size])
    assert strict is not None
    interval = f"(95 % CI {math.exp(strict.low):.2f}-{math.exp(strict.high):.2f})"
    if not _is_clear(table, best):
        at = format_bytes(size)
        return f"the timings at {at} scatter too much to show a gain of {choice.label} {interval}"
    looks = f"{choice.label} looks {_times(gain.value)} faster at {format_bytes(size)} {interval}"
    if not gain.known and table.row_noise > _SHAPE:
        looks = looks.split(" (95 %")[0]
        return f"{looks}, but so few sizes and rounds cannot show it: measure more of both"
    if not gain.known:
        noise = f"a noise of {100 * table.row_noise:.2g} %"
        return f"{looks}, which does not stand out of {noise}: too few rounds"
    if gain.low <= 0:
        return f"{looks}, which is not beyond noise"
    if strict.low <= 0:
        return f"{looks}, which may be chance among {count(table.comparisons, 'comparison')}"
    if state_of(table, choice, [size], options.min_gain) is None:
        return f"{looks}, less than the noise of {100 * table.noise.typical:.2g} %"
    if choice in beside:
        # The search tried a rule that goes on over these sizes, and its interval reached 1.
        return f"{looks}, but the rule beside it would not be sure with it: measure more rounds"
    others = [
        other
        for other in covered
        if (found := table.gain(other, choice)) is not None
        and found.value >= math.log1p(options.min_gain)
    ]
    where = "only one size" if len(others) == 1 else f"only {len(others)} sizes"
    return f"{looks}, but at {where}: a rule must save more in total (--penalty)"


def _only_for_some_calls(table: GainTable, covered: Sequence[int], floor: float) -> str:
    """Return words on the choice that gains most for some calls but is no rule for all of them.

    The result is empty if the table has one kind of calls, or no choice has such a gain.
    """
    if len({timings.condition.group_calls for timings in table.timings}) < 2:
        return ""
    found = [
        (value, size, choice, timings.condition)
        for timings in table.timings
        for size in covered
        for choice in table.choices
        if len(values := list(timings.log_gains(size, choice).values())) >= MIN_ROUNDS
        for value, half in [trimmed_interval(values)]
        if value - half > floor
    ]
    if not found:
        return ""
    value, size, choice, condition = max(found, key=lambda item: item[0])
    calls = condition.group_calls
    return (
        f"{choice.label} is {math.exp(value):.2f}x faster at {format_bytes(size)} with "
        f"{f'{calls} calls a group' if calls > 1 else 'calls without a group'}, but a rule would "
        "also reach other calls, where it is slower or was not measured"
    )


def _times(value: float) -> str:
    return f"{math.exp(value):.2f}x"
