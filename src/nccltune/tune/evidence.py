# SPDX-License-Identifier: Apache-2.0
"""The evidence for a rule: its gain, its state, and the reason for it."""

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from nccltune.analyze.gains import GainTable
from nccltune.analyze.stats import MIN_ROUNDS, Interval
from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.numbers import percent_text
from nccltune.model.rule import Rule, RuleState, impossible
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes
from nccltune.tune.result import RuleEvidence, TuneOptions, most_channels
from nccltune.tune.segment import WIDE
from nccltune.tune.state import printed_gain, state_of


def never_runs(table: GainTable, choice: Choice) -> bool:
    """Return whether NCCL never runs a choice for this collective and scale."""
    return impossible(table.collective, choice, table.scale) is not None


def log_times(
    table: GainTable, size: int, candidates: Sequence[AnyChoice], *, anywhere: bool = False
) -> dict[AnyChoice, float]:
    """Return the log time of every candidate that was measured at `size` under every condition.

    With `anywhere`, candidates measured under only some conditions are included.
    """
    logs = {choice: table.log_time(size, choice, anywhere=anywhere) for choice in candidates}
    return {choice: log for choice, log in logs.items() if log is not None}


def evidence(
    table: GainTable, rule: Rule, covered: Sequence[int], options: TuneOptions
) -> RuleEvidence:
    """Return the evidence for `rule` from the timings at the sizes `covered`."""
    choice = rule.choice
    timings = table.timings_of((size, item) for size in covered for item in (choice, DEFAULT))
    found = RuleEvidence(
        rule=rule,
        sizes=list(covered),
        timings=timings,
        reason=_fastest(table, choice, covered),
        decided_by="measure the default in the same runs",
        channels=most_channels([table.channels(size, choice) for size in covered]),
        default_channels=most_channels([table.channels(size, DEFAULT) for size in covered]),
    )
    pooled = printed_gain(table, choice, covered)
    if pooled is None:
        return found
    single = [gain.value for size in covered if (gain := table.gain(size, choice)) is not None]
    state = state_of(table, choice, covered, options.min_gain) or RuleState.CANDIDATE
    noise, replicates = 100 * table.noise.typical, count(pooled.n, "replicate")
    reason = f"faster than the default beyond noise ({noise:.2g} %) in {replicates}"
    decided_by = None
    if state is not RuleState.SURE:
        reason, decided_by = _candidate_reason(table, choice, pooled)
    return msgspec.structs.replace(
        found,
        state=state,
        reason=reason,
        decided_by=decided_by,
        gain=math.exp(pooled.value),
        gain_low=math.exp(pooled.low),
        gain_high=math.exp(pooled.high),
        least=math.exp(min(single)),
        most=math.exp(max(single)),
    )


def _candidate_reason(table: GainTable, choice: Choice, pooled: Interval) -> tuple[str, str]:
    """Return why a rule is not sure, and the runs that would decide."""
    if pooled.known:
        rounds = count(pooled.n, "replicate")
        return (
            f"{rounds} leave an interval of {math.exp(pooled.low):.2f}-{math.exp(pooled.high):.2f}"
            f" among {count(table.comparisons, 'comparison')}",
            "measure more rounds of all its sizes",
        )
    layout = table.layout(choice)
    problem = layout.problem or "the sizes of its range share too few rounds"
    return (
        f"{problem}; a noise of {100 * table.row_noise:.2g} % is assumed",
        layout.remedy or f"measure at least {MIN_ROUNDS} rounds of all its sizes",
    )


def _fastest(table: GainTable, choice: Choice, covered: Sequence[int]) -> str:
    """Return how far `choice` is ahead of the next choice at `covered`, without a default."""
    leads, counts = [], []
    choices = [item for item in table.choices if not never_runs(table, item)]
    for size in covered:
        logs = log_times(table, size, choices)
        counts.append(len(logs))
        own, others = logs.pop(choice, None), list(logs.values())
        if own is not None and others:
            leads.append(math.exp(min(others) - own))
    if not leads:
        return "no other choice that NCCL runs was measured; against the default unknown"
    place = table.sizes.index(covered[0])
    beside = table.sizes[max(0, place - 1) : place + len(covered) + 1]
    number = " to ".join(map(str, sorted({min(counts), max(counts)})))
    best, where = f"best of {number}", " over the whole range"
    if any(above > WIDE * below for below, above in pairwise(beside)):
        # The rule reaches into a wide gap, for which nothing is claimed.
        ends = " to ".join(dict.fromkeys(map(format_bytes, (covered[0], covered[-1]))))
        where = f" at {ends} ({count(len(covered), 'size')} measured)"
        best += where
    if min(leads) < 1:
        behind = percent_text(1 / min(leads) - 1)
        best = best.removesuffix(where) + where
        return (
            f"{best}, at most {behind} slower than the best of one size; against the default "
            "unknown"
        )
    low, high = (f"{lead:.2f}x" for lead in (min(leads), max(leads)))
    ahead = low if low == high else f"{low} to {high}"
    return f"{best}, {ahead} as fast as the next; against the default unknown"


def doubted(found: RuleEvidence, doubts: Sequence[str]) -> RuleEvidence:
    """Return the evidence; with doubts about the platform, its rule is only a candidate."""
    if not doubts or found.state is RuleState.CANDIDATE:
        return found
    return msgspec.structs.replace(
        found,
        state=RuleState.CANDIDATE,
        reason=doubts[0],
        decided_by="log all runs alike (NCCL_DEBUG=INFO) and import them into a new study",
    )
