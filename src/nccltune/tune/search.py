# SPDX-License-Identifier: Apache-2.0
"""Search rules: a few size ranges in which a choice beats the default beyond noise.

For every collective and scale the sizes are split into segments with one choice each. The best
split has the least total log latency plus a penalty for each rule. NCCL's default competes at every
size. If the timings do not support a rule, its choice is forbidden at the rule's worst size and the
search runs again.
"""

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from nccltune.analyze.curves import scatter
from nccltune.analyze.gains import GainTable, gain_tables
from nccltune.analyze.timings import Timings
from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule, RuleState
from nccltune.model.scale import Scale
from nccltune.model.sizes import MAX_BYTES
from nccltune.tune.evidence import doubted, evidence, log_times, never_runs
from nccltune.tune.left_alone import left_alone_at
from nccltune.tune.result import Decision, LeftAlone, RuleEvidence, TunedGroup, TuneOptions, gain_of
from nccltune.tune.segment import WIDE, Segment, boundary, segment
from nccltune.tune.state import printed_gain, state_of, too_many_channels

_LEAST_CHUNK_GAIN = math.log1p(0.01)
"""The least log gain of a choice with a chunk size over the same choice without a chunk size."""

_BEHIND = math.log(1.1)
"""Without a default, a rule covers no size at which its choice is slower than the best by more than
this log ratio and the noise."""
_SHOWN = 6
"""The fewest sizes with which the scatter along the curves is that of the timings, and not the
shape of a curve of which too few sizes are known."""

_ANY = (RuleState.CANDIDATE, RuleState.SURE)
"""The states that the timings of a study can give a rule."""

_REACH = 2
"""Rules reach into a wide gap by this factor."""

Weights = Callable[[int], float]
"""A function from a size in bytes to the weight of its latency in the search."""


def search(
    timings: Sequence[Timings],
    options: TuneOptions = TuneOptions(),  # noqa: B008 - frozen
    weights: Weights | None = None,
    doubts: Sequence[str] = (),
    *,
    eager: bool = False,
) -> list[TunedGroup]:
    """Return rules for every collective, scale, registration and pipe ops in `timings`.

    A rule names the registration or the pipe ops only where several of them were measured.

    With `eager`, candidates compete with sure rules on equal terms: this is for deciding what to
    measure next. `weights` gives the weight of each size; None weighs all sizes equally. `doubts`
    are sentences on why the runs may come from several platforms. If there is any doubt, no rule is
    sure.
    """
    tables = gain_tables(timings, options.assumed_noise)
    registrations: dict[tuple[Collective, Scale], set[bool]] = {}
    pipe_ops: dict[tuple[Collective, Scale], set[int]] = {}
    for table in tables:
        registrations.setdefault((table.collective, table.scale), set()).add(table.registered)
        pipe_ops.setdefault((table.collective, table.scale), set()).add(table.pipe_ops)
    return [
        _tune(
            table,
            options,
            weights or (lambda _: 1.0),
            table.registered if len(registrations[table.collective, table.scale]) > 1 else None,
            table.pipe_ops if len(pipe_ops[table.collective, table.scale]) > 1 else None,
            doubts,
            eager=eager,
        )
        for table in tables
        if table.sizes
    ]


def _tune(
    table: GainTable,
    options: TuneOptions,
    weights: Weights,
    registered: bool | None,
    pipe_ops: int | None,
    doubts: Sequence[str],
    *,
    eager: bool,
) -> TunedGroup:
    sizes = table.sizes
    weights = _normalised(weights, sizes)
    split = _split(table, options, weights, eager)
    segments, chosen = _with_channels(table, split, options, eager)
    ends = _ends(table, segments, chosen, options)
    rules: list[RuleEvidence] = []
    left_alone: list[LeftAlone] = []
    decisions: list[Decision] = []
    for place, (item, choice, (low, high)) in enumerate(zip(segments, chosen, ends, strict=True)):
        covered = sizes[item.first : item.last + 1]
        if choice is None:
            beside = [*chosen[max(0, place - 1) : place], *chosen[place + 1 : place + 2]]
            left_alone += left_alone_at(table, covered, options, beside)
            decisions += [_decision(table, size, None) for size in covered]
        else:
            for first, last, part in _parts(table, item, low, high):
                if len(part) < len(covered) and _supports_none(table, choice, part, options):
                    left_alone += left_alone_at(table, part, options, [choice])
                    decisions += [_decision(table, size, None) for size in part]
                    continue
                decisions += [_decision(table, size, choice) for size in part]
                rule = Rule(
                    table.collective,
                    first,
                    last,
                    choice,
                    nodes=table.scale.nodes,
                    ranks=table.scale.ranks,
                    pipe_ops=pipe_ops,
                    registered=registered,
                )
                rules.append(doubted(evidence(table, rule, part, options), doubts))
    expected_gain, recovered = gain_of(decisions, rules)
    return TunedGroup(
        collective=table.collective,
        scale=table.scale,
        registered=registered,
        pipe_ops=pipe_ops,
        rounds=table.rounds,
        noise=table.noise.typical,
        noise_source=table.noise.source,
        rules=rules,
        left_alone=left_alone,
        decisions=decisions,
        expected_gain=expected_gain,
        recovered=recovered,
    )


def _parts(
    table: GainTable, item: Segment, low: int, high: int
) -> Iterator[tuple[int, int, list[int]]]:
    """Yield the range of a segment, from `low` to `high`, as rules: their ends and their sizes.

    Nobody knows whether the default is faster in the middle of a wide gap. So where it was measured
    a rule reaches into the gap by a factor of `_REACH` at most.
    """
    sizes, first = table.sizes, item.first
    for at in range(item.first, item.last + 1):
        is_wide = _is_wide(table, at)
        if at < item.last and not is_wide:
            continue
        after_wide = _is_wide(table, first - 1)
        yield (
            max(low, math.ceil(sizes[first] / _REACH)) if after_wide else low,
            min(high, _REACH * sizes[at]) if is_wide else high,
            list(sizes[first : at + 1]),
        )
        first = at + 1


def _supports_none(
    table: GainTable, choice: Choice, part: Sequence[int], options: TuneOptions
) -> bool:
    """Return whether a part of a segment, compared with the default alone, supports no rule."""
    is_compared = printed_gain(table, choice, part) is not None
    return is_compared and state_of(table, choice, part, options.min_gain) is None


def _is_wide(table: GainTable, at: int) -> bool:
    """Return whether the gap after the size at index `at` is wide."""
    beside = table.sizes[max(at, 0) : at + 2]
    return table.has_default and len(beside) > 1 and at >= 0 and beside[1] > WIDE * beside[0]


def _normalised(weights: Weights, sizes: Sequence[int]) -> Weights:
    """Return `weights` scaled to a mean of 1 over `sizes`.

    So the unit of the weights does not change the effect of `penalty`.
    """
    mean = math.fsum(weights(size) for size in sizes) / len(sizes)
    return weights if mean <= 0 else lambda size: weights(size) / mean


def _split(table: GainTable, options: TuneOptions, weights: Weights, eager: bool) -> list[Segment]:
    """Return the best split into segments.

    Below the first and above the last size of the default there is nothing to compare with, so
    these sizes are split as if the default was not measured at all.
    """
    places = range(len(table.sizes))
    known = [
        place
        for place in places
        if table.log_time(table.sizes[place], DEFAULT, anywhere=True) is not None
    ]
    if not known:
        return _without_default(table, places, options, weights)
    first, end = known[0], known[-1] + 1
    return [
        *_without_default(table, places[:first], options, weights),
        *_against_default(table, places[first:end], options, weights, eager),
        *_without_default(table, places[end:], options, weights),
    ]


def _against_default(
    table: GainTable, places: range, options: TuneOptions, weights: Weights, eager: bool
) -> list[Segment]:
    """Return the best split of sizes at which the default was measured.

    Sure rules come first. Candidates may look faster by chance, so they get only the sizes that
    sure rules leave.
    """
    costs = {
        table.sizes[place]: [
            _relative_cost(table, table.sizes[place], choice, weights, options)
            for choice in table.choices
        ]
        for place in places
    }
    known = {
        size: [
            cost if table.comparable(size, choice) else math.inf
            for choice, cost in zip(table.choices, row, strict=True)
        ]
        for size, row in costs.items()
    }
    states = _ANY if eager else [RuleState.SURE]
    sure = _supported(table, places, known, options, states)
    found: list[Segment] = []
    for item in sure:
        if item.choice is not None:
            found.append(item)
            continue
        gap = range(item.first, item.last + 1)
        # A candidate that continues a sure rule is no rule of its own.
        for place, beside in ((gap[0], item.first - 1), (gap[-1], item.last + 1)):
            for other in sure:
                if other.choice is not None and other.first <= beside <= other.last:
                    costs[table.sizes[place]][other.choice] = math.inf
        found += _supported(table, gap, costs, options, _ANY)
    return found


def _supported(
    table: GainTable,
    places: range,
    costs: Mapping[int, Sequence[float]],
    options: TuneOptions,
    states: Container[RuleState | None],
) -> list[Segment]:
    """Return the cheapest split in which every rule has one of `states`.

    `costs` are the costs of all choices by size.
    """
    sizes = [table.sizes[place] for place in places]
    rows = [list(costs[size]) for size in sizes]
    penalty = options.penalty + 2 * table.noise.typical
    while True:
        segments = segment(rows, penalty)
        for first, last, choice in segments:
            if choice is None:
                continue
            covered = sizes[first : last + 1]
            state = state_of(table, table.choices[choice], covered, options.min_gain)
            if state not in states:
                # The rule may be good except at one size. Forbid the choice at the size with the
                # least gain, and search again.
                gains = {
                    place: gain.value
                    for place in range(first, last + 1)
                    if (gain := table.gain(sizes[place], table.choices[choice])) is not None
                }
                rows[min(gains, key=gains.__getitem__)][choice] = math.inf
                break
        else:
            return _shifted(segments, places.start)


def _shifted(segments: Sequence[Segment], by: int) -> list[Segment]:
    return [item._replace(first=item.first + by, last=item.last + by) for item in segments]


def _least_gain(table: GainTable, options: TuneOptions) -> float:
    """Return the log gain that a choice needs at a size to extend a rule to that size.

    Without this threshold, rules would extend to sizes at which they gain nothing.
    """
    return max(table.noise.typical, math.log1p(options.min_gain) / 3)


def _relative_cost(
    table: GainTable, size: int, choice: Choice, weights: Weights, options: TuneOptions
) -> float:
    gain, weight = table.gain(size, choice), weights(size)
    if gain is None or weight <= 0 or never_runs(table, choice):
        return math.inf
    if _unknown_for_some_calls(table, size, choice):
        return math.inf
    if table.slower(size, choice) or too_many_channels(table, size, choice, options):
        return math.inf
    least_gain = _least_gain(table, options)
    return weight * (least_gain + _chunk_price(table, size, choice) - gain.value)


def _unknown_for_some_calls(table: GainTable, size: int, choice: Choice) -> bool:
    """Return whether a choice was measured for groups of calls but not for plain calls at a size.

    The same holds the other way round. NCCL's tuner gets the same for both, so a rule reaches both.
    """
    cells = [(t.condition.group_calls, t.cells[size]) for t in table.timings if size in t.cells]
    return {calls for calls, _ in cells} != {calls for calls, cell in cells if choice in cell}


def _chunk_price(table: GainTable, size: int, choice: Choice) -> float:
    """Return the log gain that a choice with a chunk size needs over the same choice without it.

    A measured chunk size may be larger than NCCL's buffer. NCCL then reduces the chunk size, so
    both choices run the same and their times differ only by noise. The result is 0 if `choice` has
    no chunk size, or the same choice without a chunk size was not measured.
    """
    if choice.chunk_bytes is None:
        return 0.0
    plain = Choice(choice.algorithm, choice.protocol, choice.channels)
    if table.log_time(size, plain, anywhere=True) is None:
        return 0.0
    return max(table.noise.typical, _LEAST_CHUNK_GAIN)


def _without_default(
    table: GainTable, places: range, options: TuneOptions, weights: Weights
) -> list[Segment]:
    """Return the best split of sizes at which the default was not measured.

    The fastest choice wins at each size, but every change of the choice costs a penalty.
    """
    # The scatter along the curves is an upper estimate of the noise. The noise to assume without
    # any timing may be larger, and would swallow a short range with a clear winner.
    noise = table.noise.typical
    if not table.noise.known:
        noise = max(scatter(timings) for timings in table.timings)
    if len(table.sizes) < _SHOWN:
        noise = min(noise, table.assumed_noise)
    costs = []
    for size in (table.sizes[place] for place in places):
        logs = [
            None if never_runs(table, choice) else table.log_time(size, choice)
            for choice in table.choices
        ]
        least = min((log for log in logs if log is not None), default=0.0)
        weight = weights(size)
        costs.append(
            [
                math.inf
                if log is None
                or log - least > max(_BEHIND, 2 * noise)
                or table.beaten_by(size, choice)
                else weight * (log - least + _chunk_price(table, size, choice))
                for choice, log in zip(table.choices, logs, strict=True)
            ]
        )
    penalty = options.penalty + 2 * noise
    return _shifted(segment(costs, penalty, idle_cost=1e6), places.start)


def _cells(table: GainTable, item: Segment) -> tuple[Choice, list[int]]:
    assert item.choice is not None
    return table.choices[item.choice], _sizes(table, item)


def _sizes(table: GainTable, item: Segment) -> list[int]:
    return table.sizes[item.first : item.last + 1]


def _with_channels(
    table: GainTable, segments: Sequence[Segment], options: TuneOptions, eager: bool
) -> tuple[list[Segment], list[Choice | None]]:
    """Return the segments with their final choices: the variants with the fewest channels.

    Neighbouring segments that get the same choice become one.
    """
    merged: list[Segment] = []
    chosen: list[Choice | None] = []
    for item in segments:
        choice = None
        if item.choice is not None:
            choice = _least_channels(table, *_cells(table, item), options, eager)
        if choice is not None and chosen and choice == chosen[-1]:
            both = merged[-1]._replace(last=item.last)
            if _state(table, choice, _sizes(table, both), options) is not None:
                merged[-1] = both
                continue
            # The timings do not support one rule for both. Keep the choices of the search.
            choice = _cells(table, item)[0]
        merged.append(item)
        chosen.append(choice)
    return merged, chosen


def _least_channels(
    table: GainTable, choice: Choice, covered: Sequence[int], options: TuneOptions, eager: bool
) -> Choice:
    """Return the variant of `choice` with the fewest channels that is nearly as fast.

    It may be slower than `choice` by `channel_tolerance`, but not slower than the default, and a
    rule with it must have the same state, except with `eager`. If there is no such variant, return
    `choice`. Fewer channels are better, because each channel occupies an SM that compute kernels
    cannot use.
    """
    best = _mean_log(table, covered, choice)
    state = _state(table, choice, covered, options)
    siblings = [
        other
        for other in table.choices
        if other.channels is not None
        and (other.algorithm, other.protocol, other.chunk_bytes)
        == (choice.algorithm, choice.protocol, choice.chunk_bytes)
    ]
    for other in sorted(siblings, key=lambda sibling: sibling.channels or 0):
        time = _mean_log(table, covered, other)
        if best is None or time is None or time > best + math.log1p(options.channel_tolerance):
            continue
        if any(too_many_channels(table, size, other, options) for size in covered):
            continue
        if table.has_default and any(table.slower(size, other) for size in covered):
            continue
        if eager or _state(table, other, covered, options) == state:
            return other
    return choice


def _state(
    table: GainTable, choice: Choice, sizes: Sequence[int], options: TuneOptions
) -> RuleState | None:
    """Return the state of a rule; where nothing was compared, every rule is a candidate."""
    compared = [table.gain(size, choice) is not None for size in sizes]
    if not any(compared):
        return RuleState.CANDIDATE
    return state_of(table, choice, sizes, options.min_gain) if all(compared) else None


def _mean_log(table: GainTable, sizes: Sequence[int], choice: Choice) -> float | None:
    logs = [table.log_time(size, choice) for size in sizes]
    known = [log for log in logs if log is not None]
    return math.fsum(known) / len(known) if len(known) == len(logs) else None


def _ends(
    table: GainTable,
    segments: Sequence[Segment],
    chosen: Sequence[Choice | None],
    options: TuneOptions,
) -> list[tuple[int, int]]:
    """Return the first and the last byte of every segment, without overlaps.

    Between two sizes of which only one has the timings of a choice there is a gap.
    The first segment begins at the smallest measured size, and the last one ends at the largest.
    With `extend` they begin at 0 and end at `MAX_BYTES`.
    """
    sizes = table.sizes
    margin = _least_gain(table, options) if table.has_default else 0.0
    first, last = [0 if options.extend else sizes[0]], []
    for here, there, before, after in zip(segments, segments[1:], chosen, chosen[1:], strict=False):
        left, right = sizes[here.last], sizes[there.first]
        end = boundary(table, left, right, before, after, margin)
        last.append(left if end is None else end)
        first.append(right if end is None else end + 1)
    last.append(MAX_BYTES if options.extend else sizes[-1])
    return list(zip(first, last, strict=True))


def _decision(table: GainTable, size: int, choice: Choice | None) -> Decision:
    default = table.log_time(size, DEFAULT)
    candidates: list[AnyChoice] = [DEFAULT, *table.choices]
    # Prefer choices measured under every condition (data type, in place or out of place). If there
    # is none, use the choices measured under only some conditions.
    common = log_times(table, size, candidates)
    best, best_log = min(
        (common or log_times(table, size, candidates, anywhere=True)).items(),
        key=lambda item: item[1],
    )
    tuned = table.log_time(size, choice or DEFAULT)
    if tuned is None:
        tuned = table.log_time(size, choice or DEFAULT, anywhere=True)
    tuned_log = best_log if tuned is None else tuned
    gain = table.gain(size, choice, table.strict) if choice is not None else None
    return Decision(
        bytes=size,
        choice=choice,
        default_us=None if default is None else math.exp(default),
        tuned_us=math.exp(tuned_log),
        best=best if isinstance(best, Choice) else None,
        best_us=math.exp(best_log),
        gain=None if gain is None else math.exp(gain.value),
        gain_low=None if gain is None else math.exp(gain.low),
        gain_high=None if gain is None else math.exp(gain.high),
        channels=table.channels(size, choice or DEFAULT),
        default_channels=table.channels(size, DEFAULT),
        default_ran=table.default_ran(size),
    )
