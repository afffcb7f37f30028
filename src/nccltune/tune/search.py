# SPDX-License-Identifier: Apache-2.0
"""Search rules: a few size ranges in which a choice beats the default beyond noise.

For every collective and scale the sizes are split into segments with one choice each. The best
split has the least total log latency plus a penalty for each rule. The default is a candidate at
every size. If the timings do not prove a rule, its choice is forbidden at the rule's worst size and
the search runs again.
"""

import math
from collections.abc import Callable, Sequence

import msgspec

from nccltune.analyze.gains import GainTable, gain_tables
from nccltune.analyze.stats import MIN_ROUNDS, median, trimmed_interval
from nccltune.analyze.timings import Timings
from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale, count
from nccltune.model.sizes import MAX_BYTES, format_bytes
from nccltune.tune.boundary import boundary
from nccltune.tune.result import (
    Decision,
    LeftAlone,
    RuleEvidence,
    TunedGroup,
    TuneOptions,
    most_channels,
)
from nccltune.tune.segment import Segment, segment

_LEAST_SIZES = 4
"""The fewest sizes in a rule if noise is assumed, because a single timing may be an outlier."""
_LEAST_CHUNK_GAIN = math.log1p(0.01)
"""The least log gain of a choice with a chunk size over the same choice without a chunk size."""

Weights = Callable[[int], float]
"""A function from a size in bytes to the weight of its latency in the search."""


def search(
    timings: Sequence[Timings],
    options: TuneOptions = TuneOptions(),  # noqa: B008 - frozen
    weights: Weights | None = None,
    doubts: Sequence[str] = (),
) -> list[TunedGroup]:
    """Return rules for every collective, scale, registration and pipe ops in `timings`.

    A rule names the registration or the pipe ops only where several of them were measured.

    `weights` gives the weight of each size; None weighs all sizes equally. `doubts` are sentences
    on why the runs may come from several platforms. If there is any doubt, no rule is sure.
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
        )
        for table in tables
        if table.sizes
    ]


def proven(table: GainTable, choice: Choice, sizes: Sequence[int], min_gain: float) -> bool:
    """Return whether `choice` beats the default by `min_gain` and beyond noise.

    The gain is pooled over `sizes`. With assumed noise, four or more sizes are needed. Return False
    if the gain is unknown.
    """
    pooled = table.pooled(choice, sizes, table.strict)
    if pooled is None:
        return False
    if not pooled.known and len(sizes) < _LEAST_SIZES:
        return False
    floor = max(math.log1p(min_gain), table.noise.typical if table.noise.known else 0.0)
    if pooled.value < floor or pooled.low <= 0:
        return False
    # Also check the median over sizes, because outliers raise the mean. The search may have
    # selected the range for its outliers.
    single = [gain.value for size in sizes if (gain := table.gain(size, choice)) is not None]
    return median(single) >= min(pooled.value / 2, floor)


def _tune(
    table: GainTable,
    options: TuneOptions,
    weights: Weights,
    registered: bool | None,
    pipe_ops: int | None,
    doubts: Sequence[str],
) -> TunedGroup:
    sizes, choices = table.sizes, table.choices
    weights = _normalised(weights, sizes)
    if table.has_default:
        segments = _against_default(table, options, weights)
    else:
        segments = _without_default(table, options, weights)
    chosen = [
        _least_channels(table, item, choices[item.choice], options)
        if item.choice is not None
        else None
        for item in segments
    ]
    ends = _ends(table, segments, chosen, options)
    rules: list[RuleEvidence] = []
    left_alone: list[LeftAlone] = []
    decisions: list[Decision] = []
    for item, choice, (low, high) in zip(segments, chosen, ends, strict=True):
        covered = sizes[item.first : item.last + 1]
        written = False
        if choice is None:
            left_alone.append(_left_alone(table, covered, options))
        else:
            rule = Rule(
                table.collective,
                low,
                high,
                choice,
                nodes=table.scale.nodes,
                ranks=table.scale.ranks,
                pipe_ops=pipe_ops,
                registered=registered,
            )
            found = _doubted(evidence(table, rule, covered), doubts)
            written = found.sure or options.include_unsure
            rules.append(msgspec.structs.replace(found, written=written))
        decisions += [_decision(table, size, choice if written else None) for size in covered]
    expected_gain, recovered = gain_of(decisions)
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


def gain_of(decisions: Sequence[Decision]) -> tuple[float | None, float | None]:
    """Return `TunedGroup.expected_gain` and `TunedGroup.recovered` for these decisions."""
    gains = [item.gain for item in decisions if item.choice is not None and item.gain is not None]
    return _geometric_mean(gains), _recovered(decisions)


def _normalised(weights: Weights, sizes: Sequence[int]) -> Weights:
    """Return `weights` scaled to a mean of 1 over `sizes`.

    So the unit of the weights does not change the effect of `penalty`.
    """
    mean = math.fsum(weights(size) for size in sizes) / len(sizes)
    return weights if mean <= 0 else lambda size: weights(size) / mean


def _against_default(table: GainTable, options: TuneOptions, weights: Weights) -> list[Segment]:
    """Return the best split into segments if the default was measured. All its rules are proven."""
    sizes, choices = table.sizes, table.choices
    least_gain = _least_gain(table, options)
    costs = [
        [
            _relative_cost(table, size, choice, least_gain, weights(size), options)
            for choice in choices
        ]
        for size in sizes
    ]
    penalty = options.penalty + 2 * table.noise.typical
    while True:
        segments = segment(costs, penalty)
        unproven = next(
            (
                item
                for item in segments
                if item.choice is not None
                and not proven(table, *_cells(table, item), options.min_gain)
            ),
            None,
        )
        if unproven is None:
            return segments
        # The rule may be good except at one size. Forbid the choice at the size with the least
        # gain, and search again.
        assert unproven.choice is not None
        weakest = max(
            range(unproven.first, unproven.last + 1),
            key=lambda position: costs[position][unproven.choice or 0] / weights(sizes[position]),
        )
        costs[weakest][unproven.choice] = math.inf


def _least_gain(table: GainTable, options: TuneOptions) -> float:
    """Return the log gain that a choice needs at a size to extend a rule to that size.

    Without this threshold, rules would extend to sizes at which they gain nothing.
    """
    return max(table.noise.typical, math.log1p(options.min_gain) / 3)


def _relative_cost(
    table: GainTable,
    size: int,
    choice: Choice,
    least_gain: float,
    weight: float,
    options: TuneOptions,
) -> float:
    gain = table.gain(size, choice)
    if gain is None or weight <= 0 or not table.comparable(size, choice):
        return math.inf
    if _unknown_for_some_calls(table, size, choice):
        return math.inf
    if table.slower(size, choice) or _too_many_channels(table, size, choice, options):
        return math.inf
    return weight * (least_gain + _chunk_price(table, size, choice) - gain.value)


def _unknown_for_some_calls(table: GainTable, size: int, choice: Choice) -> bool:
    """Return whether a choice was measured for groups of calls but not for plain calls at a size.

    The same holds the other way round. NCCL's tuner gets the same for both, so a rule reaches both.
    """
    cells = [(t.condition.group_calls, t.cells[size]) for t in table.timings if size in t.cells]
    return {calls for calls, _ in cells} != {calls for calls, cell in cells if choice in cell}


def _too_many_channels(table: GainTable, size: int, choice: Choice, options: TuneOptions) -> bool:
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


def _without_default(table: GainTable, options: TuneOptions, weights: Weights) -> list[Segment]:
    """Return the best split into segments if the default was not measured.

    The fastest choice wins at each size, but every change of the choice costs a penalty.
    """
    costs = []
    for size in table.sizes:
        logs = [table.log_time(size, choice) for choice in table.choices]
        least = min((log for log in logs if log is not None), default=0.0)
        weight = weights(size)
        costs.append(
            [
                math.inf
                if log is None
                else weight * (log - least + _chunk_price(table, size, choice))
                for choice, log in zip(table.choices, logs, strict=True)
            ]
        )
    penalty = options.penalty + 2 * table.noise.typical
    return segment(costs, penalty, idle_cost=1e6)


def _cells(table: GainTable, item: Segment) -> tuple[Choice, list[int]]:
    assert item.choice is not None
    return table.choices[item.choice], table.sizes[item.first : item.last + 1]


def _least_channels(
    table: GainTable, item: Segment, choice: Choice, options: TuneOptions
) -> Choice:
    """Return the variant of `choice` with the fewest channels that is nearly as fast.

    It may be slower than `choice` by `channel_tolerance`, but not slower than the default. If there
    is no such variant, return `choice`. Fewer channels are better, because each channel occupies an
    SM that compute kernels cannot use.
    """
    covered = table.sizes[item.first : item.last + 1]
    best = _mean_log(table, covered, choice)
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
        if any(_too_many_channels(table, size, other, options) for size in covered):
            continue
        if not (table.has_default and any(table.slower(size, other) for size in covered)):
            return other
    return choice


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
    """Return the first and the last byte of every segment, without gaps or overlaps.

    The first segment begins at the smallest measured size, and the last one ends at the largest.
    With `extend` they begin at 0 and end at `MAX_BYTES`.
    """
    sizes = table.sizes
    margin = _least_gain(table, options) if table.has_default else 0.0
    last = [
        boundary(table, sizes[here.last], sizes[there.first], before, after, margin)
        for here, there, before, after in zip(
            segments, segments[1:], chosen, chosen[1:], strict=False
        )
    ]
    first = [0 if options.extend else sizes[0], *(end + 1 for end in last)]
    last.append(MAX_BYTES if options.extend else sizes[-1])
    return list(zip(first, last, strict=True))


def _decision(table: GainTable, size: int, choice: Choice | None) -> Decision:
    default = table.log_time(size, DEFAULT)
    candidates: list[AnyChoice] = [DEFAULT, *table.choices]
    # Prefer choices measured under every condition (data type, in place or out of place). If there
    # is none, use the choices measured under only some conditions.
    common = _log_times(table, size, candidates)
    best, best_log = min(
        (common or _log_times(table, size, candidates, anywhere=True)).items(),
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


def _log_times(
    table: GainTable, size: int, candidates: Sequence[AnyChoice], *, anywhere: bool = False
) -> dict[AnyChoice, float]:
    """Return the log time of every candidate that was measured at `size` under every condition.

    With `anywhere`, candidates measured under only some conditions are included.
    """
    logs = {choice: table.log_time(size, choice, anywhere=anywhere) for choice in candidates}
    return {choice: log for choice, log in logs.items() if log is not None}


def evidence(table: GainTable, rule: Rule, covered: Sequence[int]) -> RuleEvidence:
    """Return the evidence for `rule` from the timings at the sizes `covered`."""
    choice = rule.choice
    timings = table.timings_of((size, item) for size in covered for item in (choice, DEFAULT))
    # The strict confidence is valid although the same timings selected the choice and the range.
    pooled = table.pooled(choice, covered, table.strict)
    channels = [table.channels(size, choice) for size in covered]
    default_channels = [table.channels(size, DEFAULT) for size in covered]
    found = RuleEvidence(
        rule=rule,
        sizes=list(covered),
        timings=timings,
        sure=False,
        reason="the fastest of the choices measured; the default was not measured",
        decided_by="measure the default in the same runs",
        channels=most_channels(channels),
        default_channels=most_channels(default_channels),
    )
    if pooled is None:
        return found
    single = [gain.value for size in covered if (gain := table.gain(size, choice)) is not None]
    reason = (
        f"faster than the default beyond noise ({100 * table.noise.typical:.2g} %) "
        f"in {count(pooled.n, 'replicate')}"
    )
    decided_by = None
    if not pooled.known:
        layout = table.layout(choice)
        problem = layout.problem or "the sizes of its range share too few rounds"
        reason = f"{problem}; a noise of {100 * table.row_noise:.2g} % is assumed"
        decided_by = layout.remedy or f"measure at least {MIN_ROUNDS} rounds of all its sizes"
    return msgspec.structs.replace(
        found,
        sure=pooled.known,
        reason=reason,
        decided_by=decided_by,
        gain=math.exp(pooled.value),
        gain_low=math.exp(pooled.low),
        gain_high=math.exp(pooled.high),
        least=math.exp(min(single)),
        most=math.exp(max(single)),
    )


def _doubted(found: RuleEvidence, doubts: Sequence[str]) -> RuleEvidence:
    """Return the evidence, marked as not sure if there are doubts about the platform."""
    if not doubts or not found.sure:
        return found
    return msgspec.structs.replace(
        found,
        sure=False,
        reason=doubts[0],
        decided_by="log all runs alike (NCCL_DEBUG=INFO) and import them into a new study",
    )


def _left_alone(table: GainTable, covered: Sequence[int], options: TuneOptions) -> LeftAlone:
    """Return a range without a rule, with the reason.

    The reason usually concerns the choice with the largest gain in the range.
    """
    compared = [
        (gain, choice, size)
        for size in covered
        for choice in table.choices
        if (gain := table.gain(size, choice)) is not None
    ]
    allowed = [
        item for item in compared if not _too_many_channels(table, item[2], item[1], options)
    ]
    not_slower = [item for item in allowed if not table.slower(item[2], item[1])]
    more_channels = [item for item in compared if item not in allowed and item[0].low > 0]
    floor = math.log1p(options.min_gain)
    if not compared:
        reason = "no other choice was measured beside the default"
    elif not not_slower:
        reason = "the default is the fastest measured"
    else:
        gain, choice, size = max(not_slower, key=lambda item: item[0].value)
        if gain.value <= 0:
            reason = "the default is the fastest measured"
        elif gain.value < floor:
            reason = (
                f"the best choice gains less than {100 * options.min_gain:.3g} % (noise "
                f"{100 * table.noise.typical:.2g} %)"
            )
        else:
            strict = table.gain(size, choice, table.strict)
            if gain.low <= 0:
                why = "which is not beyond noise"
            elif strict is not None and strict.low > 0:
                why = "too little to be worth a rule"
            else:
                why = f"which may be chance among {table.comparisons} comparisons"
            reason = (
                f"{choice.label} looks {math.exp(gain.value):.2f}x faster at {format_bytes(size)} "
                f"(95 % CI {math.exp(gain.low):.2f}-{math.exp(gain.high):.2f}), {why}"
            )
    reason = _only_for_some_calls(table, covered, floor) or reason
    if more_channels:
        gain, choice, size = max(more_channels, key=lambda item: item[0].value)
        more = table.channels(size, choice)
        own = table.channels(size, DEFAULT)
        reason += (
            f"; {choice.label} is {math.exp(gain.value):.2f}x faster at {format_bytes(size)} with "
            f"{more} channels (default {'unknown' if own is None else own}): --channels any"
        )
    return LeftAlone(covered[0], covered[-1], len(covered), reason)


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


def _geometric_mean(ratios: Sequence[float]) -> float | None:
    if not ratios:
        return None
    return math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios))


def _recovered(decisions: Sequence[Decision]) -> float | None:
    """Return the share of the possible gain that the rules reach, in log latency.

    The possible gain takes the fastest choice at every size. Return None if the possible gain is 0.
    """
    known = [item for item in decisions if item.default_us is not None]
    total = math.fsum(math.log((item.default_us or 1) / item.best_us) for item in known)
    kept = math.fsum(math.log((item.default_us or 1) / item.tuned_us) for item in known)
    return kept / total if total > 1e-12 else None
