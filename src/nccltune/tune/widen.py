# SPDX-License-Identifier: Apache-2.0
"""Merge equal rules of several scales into one rule for any scale, if it is sure at each scale."""

from collections.abc import Sequence

import msgspec

from nccltune.analyze.gains import GainTable, gain_tables
from nccltune.analyze.timings import Timings
from nccltune.model.choice import Choice
from nccltune.model.rule import Rule, RuleState
from nccltune.tune.result import RuleEvidence, TunedGroup, TuneOptions
from nccltune.tune.search import evidence
from nccltune.tune.state import state_of


def widen(
    groups: Sequence[TunedGroup], timings: Sequence[Timings], options: TuneOptions
) -> list[TunedGroup]:
    """Return the groups with rules for one scale replaced by rules for any scale, where possible.

    A range of sizes gets a rule for any scale if all scales have a rule with the same choice there,
    and it is sure in this range at each scale. A part of a rule outside the range stays a rule
    of its scale if the part has measured sizes. Collectives with separately measured registered
    buffers or pipe ops do not change. A rule for any scale also matches scales that were never
    measured, so it needs `--any-scale`.
    """
    tables = {
        (table.collective, table.scale): table
        for table in gain_tables(timings, options.assumed_noise)
    }
    result = list(groups)
    for collective in dict.fromkeys(group.collective for group in groups):
        own_groups = [group for group in groups if group.collective is collective]
        if any((group.registered, group.pipe_ops) != (None, None) for group in own_groups):
            # A rule for any scale would also apply to registered buffers or groups of calls, for
            # which the separate measurement may have found other rules.
            continue
        places = [
            place
            for place, group in enumerate(result)
            if group.collective is collective and group.registered is None
        ]
        if len(places) < 2:
            continue
        for rule in [item for item in result[places[0]].rules if _is_sure(item)]:
            common = _common(rule.rule, [result[place] for place in places])
            if common is None:
                continue
            low, high = common
            own = [tables[collective, result[place].scale] for place in places]
            if not all(_holds(table, rule.rule.choice, low, high, options) for table in own):
                continue
            wide = Rule(collective, low, high, rule.rule.choice)
            for place, table in zip(places, own, strict=True):
                result[place] = _replaced(result[place], table, wide, options)
    return result


def _common(rule: Rule, groups: Sequence[TunedGroup]) -> tuple[int, int] | None:
    """Return the range in which every group has a rule with the choice of `rule`.

    Return None if a group has no such rule in the range of `rule`, or several.
    """
    low, high = rule.min_bytes, rule.max_bytes
    for group in groups:
        same = [
            other.rule
            for other in group.rules
            if _is_sure(other)
            and other.rule.choice == rule.choice
            and other.rule.nodes is not None
            and other.rule.min_bytes <= high
            and other.rule.max_bytes >= low
        ]
        if len(same) != 1:
            return None
        low, high = max(low, same[0].min_bytes), min(high, same[0].max_bytes)
    return low, high


def _is_sure(item: RuleEvidence) -> bool:
    return item.state is RuleState.SURE


def _covered(table: GainTable, low: int, high: int) -> list[int]:
    return [size for size in table.sizes if low <= size <= high]


def _holds(table: GainTable, choice: Choice, low: int, high: int, options: TuneOptions) -> bool:
    sizes = _covered(table, low, high)
    return bool(sizes) and state_of(table, choice, sizes, options.min_gain) is RuleState.SURE


def _replaced(group: TunedGroup, table: GainTable, wide: Rule, options: TuneOptions) -> TunedGroup:
    rules: list[RuleEvidence] = []
    for item in group.rules:
        rule = item.rule
        overlaps = rule.min_bytes <= wide.max_bytes and rule.max_bytes >= wide.min_bytes
        if not _is_sure(item) or rule.choice != wide.choice or not overlaps:
            rules.append(item)
            continue
        for low, high in (
            (rule.min_bytes, wide.min_bytes - 1),
            (wide.max_bytes + 1, rule.max_bytes),
        ):
            covered = _covered(table, low, high)
            if covered:
                part = msgspec.structs.replace(rule, min_bytes=low, max_bytes=high)
                rules.append(evidence(table, part, covered, options))
        whole = _covered(table, wide.min_bytes, wide.max_bytes)
        rules.append(evidence(table, wide, whole, options))
    rules.sort(key=lambda item: item.rule.min_bytes)
    return msgspec.structs.replace(group, rules=rules)
